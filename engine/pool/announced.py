"""What is announced in the network, sorted: members to be dialled, strangers to be shown.

An announcement proves nothing. A member's is an address worth trying, and TLS says who is there;
a stranger's is only shown, while it waits for a PC to join. Who a member is only members can tell,
so all of it is looked at again whenever the roster changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.domain import NodeId
from engine.messages.pool import Versions
from engine.messages.roster_control import PoolNearby
from engine.pool.announcement import JOINABLE, clean_shown_name
from engine.pool.peer_address import PeerAddress
from engine.pool.sightings import Appeared, Vanished

if TYPE_CHECKING:
    from engine.pool.dialling import Targets
    from engine.pool.participant import Output, Participant
    from engine.pool.roster_keeper import RosterKeeper

MAX_NEARBY = 16  # more PCs that show a code at the same time are somebody's game


class Announced:
    """Who announces itself, as far as this node is concerned.

    Thread: the node's loop.
    """

    def __init__(self, keeper: RosterKeeper, targets: Targets, participant: Participant) -> None:
        """Begin with nobody.

        Args:
            keeper: Knows the members.
            targets: Told whom to dial.
            participant: Told of members of another version.
        """
        self._keeper = keeper
        self._targets = targets
        self._participant = participant
        self._seen: dict[str, Appeared] = {}  # by run
        self._members: dict[str, NodeId] = {}  # by run

    @property
    def clones(self) -> frozenset[str]:
        """Runs of other PCs that have this one's identity."""
        own = self._keeper.identity.node_id
        return frozenset(run for run, node_id in self._members.items() if node_id == own)

    def pools_nearby(self) -> tuple[PoolNearby, ...]:
        """Return which strangers show a code to join by."""
        waiting = [
            sight
            for run, sight in self._seen.items()
            if run not in self._members and JOINABLE in sight.announcement.flags
        ]
        return tuple(
            PoolNearby(
                name=clean_shown_name(sight.announcement.name, NodeId(sight.run_id)),
                address=str(PeerAddress(sight.addresses[0], sight.port)),
            )
            for sight in waiting[:MAX_NEARBY]
        )

    def take(self, event: Appeared | Vanished, now_s: float) -> list[Output]:
        """Take what discovery tells.

        Args:
            event: What.
            now_s: On the loop's clock.

        Returns:
            What is to be done about it.
        """
        if isinstance(event, Appeared):
            self._seen[event.run_id] = event
            return self._sort(event, now_s)
        self._seen.pop(event.run_id, None)
        self._forget(event.run_id)
        return []

    def follow_roster(self, now_s: float) -> list[Output]:
        """Dial whoever has become a member, and nobody who is one no longer.

        Args:
            now_s: On the loop's clock.

        Returns:
            What is to be done about it.
        """
        self._targets.keep_only(self._keeper.trust.members)
        return [done for sight in self._seen.values() for done in self._sort(sight, now_s)]

    def _sort(self, event: Appeared, now_s: float) -> list[Output]:
        node_id = self._whose(event)
        if node_id != self._members.get(event.run_id):
            self._forget(event.run_id)
        if node_id is None:
            return []
        self._members[event.run_id] = node_id
        addresses = tuple(PeerAddress(host, event.port) for host in event.addresses)
        if node_id == self._keeper.identity.node_id:
            for address in addresses:
                self._targets.known(address, now_s)  # whoever has the older right says so
            return []
        self._targets.announced(node_id, addresses, now_s)
        said, ours = event.announcement, self._participant.identity.versions
        theirs = Versions("", said.protocol_version, said.shard_format)
        if (theirs.protocol, theirs.shard_format) == (ours.protocol, ours.shard_format):
            return []
        # It is dialled all the same: anybody can announce anything.
        return self._participant.refused(node_id, theirs, addresses[0], now_s)

    def _whose(self, event: Appeared) -> NodeId | None:
        """Return which member announces itself; None for a stranger.

        What was recognised once stays so for that start, though its token changes with the pool's
        secret: a PC that was removed goes on to dial, and so finds out.
        """
        node_id = self._keeper.recognise(event.announcement) or self._members.get(event.run_id)
        own = self._keeper.identity.node_id
        return node_id if node_id in self._keeper.trust.members | {own} else None

    def _forget(self, run_id: str) -> None:
        """Forget whose announcement it was; a node that has started again is announced anew."""
        node_id = self._members.pop(run_id, None)
        if node_id is not None and node_id not in self._members.values():
            self._targets.left(node_id)

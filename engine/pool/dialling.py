"""Whom to dial, and when: the addresses worth trying, each with its next try.

Pure. An address that was announced or given by a person is tried until somebody is there; one
that was only known is tried for a while. A node with two addresses is dialled at both: when one
network fails, the other is open already. Of two nodes that know each other the one with the lower
id dials first, so that they seldom dial at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from engine.domain import NodeId
    from engine.pool.peer_address import PeerAddress

FIRST_RETRY_S = 1.0
LAST_RETRY_S = 15.0
YIELD_S = 2.0  # the node with the higher id waits this long for the other one to dial
REDIAL_YIELD_S = 0.5  # the same after a session was lost
NEXT_ADDRESS_S = 0.25  # between the first tries of two addresses of one node
TRY_LOST_FOR_S = 600.0  # as long as a node that went is remembered
TRY_HINTED_FOR_S = 30.0  # as long as whoever hinted goes on
MAX_WAYS = 2  # sessions to be had with one node at different addresses
MAX_TARGETS = 128  # a pool has 16 nodes; more announcements are somebody's game


@dataclass(slots=True)
class Target:
    """An address worth dialling.

    Attributes:
        address: Which.
        node_id: Who should be there; None where that isn't known.
        next_try_s: Not before this time.
        given_up_s: When it is dropped, unless it was announced or given by then; None for never.
        retry_s: From a try that fails to the next.
        is_dialling: A try is going on.
        problem: Why the last try failed, one sentence.
        is_untrusted: Whether it failed because one of both does not know the other.
        is_refused: It failed because nobody listens there; no firewall does that.
    """

    address: PeerAddress
    node_id: NodeId | None
    next_try_s: float
    given_up_s: float | None = None
    retry_s: float = FIRST_RETRY_S
    is_dialling: bool = False
    problem: str | None = None
    is_untrusted: bool = False
    is_refused: bool = False

    def answered(self, now_s: float) -> None:
        """Take note that a session was opened there."""
        self.is_dialling, self.problem, self.is_refused = False, None, False
        self.retry_s = FIRST_RETRY_S
        self.next_try_s = now_s + FIRST_RETRY_S  # also one that is lost at once

    def failed(self, problem: str | None, now_s: float, *, is_refused: bool = False) -> None:
        """Take note that no session could be opened there.

        Args:
            problem: Why, one sentence; None where nobody need be told.
            now_s: Monotonic.
            is_refused: Nobody listens there.
        """
        self.is_dialling, self.problem, self.is_refused = False, problem, is_refused
        self.next_try_s = now_s + self.retry_s
        self.retry_s = min(2 * self.retry_s, LAST_RETRY_S)


class Targets:
    """All targets of one node.

    Attributes:
        unknown_at: Where a PC of the pool said that it does not know this one, if none has opened
            a session since.
    """

    def __init__(self, own_id: NodeId) -> None:
        """Begin with none.

        Args:
            own_id: This node's.
        """
        self._own_id = own_id
        self.unknown_at: PeerAddress | None = None
        self._targets: dict[tuple[NodeId | None, PeerAddress], Target] = {}

    def announced(self, node_id: NodeId, addresses: Iterable[PeerAddress], now_s: float) -> None:
        """Take a node that says where it is, and nowhere else."""
        addresses = tuple(addresses)
        for target in self._of(node_id):
            if target.address not in addresses and target.given_up_s is None:
                del self._targets[node_id, target.address]
        at_s = now_s + (YIELD_S if self._own_id > node_id else 0.0)
        for i, address in enumerate(addresses):
            self._aim(Target(address, node_id, at_s + i * NEXT_ADDRESS_S))

    def given(self, address: PeerAddress, now_s: float) -> None:
        """Take an address a person gave."""
        self._aim(Target(address, None, now_s))

    def known(self, address: PeerAddress, now_s: float) -> None:
        """Take an address that a node was reached at earlier, for one try."""
        self._aim(Target(address, None, now_s, given_up_s=now_s))

    def hinted(self, node_id: NodeId, address: PeerAddress, now_s: float) -> None:
        """Take an address at which another node says that it reaches a node; tried for a while."""
        wait_s = YIELD_S if self._own_id > node_id else 0.0
        self._aim(Target(address, node_id, now_s + wait_s, given_up_s=now_s + TRY_HINTED_FOR_S))

    def lost(self, node_id: NodeId, address: PeerAddress, now_s: float) -> None:
        """Take a node whose last session has ended without a goodbye: it may still be there.

        Args:
            node_id: Whose.
            address: Where it was last reached.
            now_s: Monotonic.
        """
        at_s = now_s + (REDIAL_YIELD_S if self._own_id > node_id else 0.0)
        self._aim(Target(address, node_id, at_s, given_up_s=now_s + TRY_LOST_FOR_S))
        for target in self._targets.values():
            if target.address == address and not target.is_dialling:
                target.retry_s = FIRST_RETRY_S
                target.next_try_s = max(at_s, min(target.next_try_s, now_s + FIRST_RETRY_S))

    def left(self, node_id: NodeId) -> None:
        """Drop a node that said goodbye, or whose announcement holds no longer."""
        for target in self._of(node_id):
            del self._targets[node_id, target.address]

    def keep_only(self, members: frozenset[NodeId]) -> None:
        """Drop every node that is none of these."""
        for key in list(self._targets):
            if key[0] is not None and key[0] not in members:
                del self._targets[key]

    def addresses_of(self, node_id: NodeId) -> tuple[PeerAddress, ...]:
        """Return where a node is to be dialled; none where that isn't known."""
        return tuple(target.address for target in self._of(node_id))

    def is_refused(self, node_id: NodeId) -> bool:
        """Return whether nobody listens any more wherever a node was: it does not run."""
        return all(target.is_refused for target in self._of(node_id)) and bool(self._of(node_id))

    def unreached(self, connected: Iterable[NodeId]) -> tuple[Target, ...]:
        """Return the targets that were announced or given and where nobody can be reached.

        Args:
            connected: Nodes that can be reached, if need be elsewhere.
        """
        there = frozenset(connected)
        return tuple(
            target
            for target in self._targets.values()
            if target.problem is not None
            and target.given_up_s is None
            and target.node_id not in there
        )

    def try_all_now(self, now_s: float) -> None:
        """Try everything again at once: this PC's network has changed."""
        for target in self._targets.values():
            target.next_try_s, target.retry_s = now_s, FIRST_RETRY_S

    def due(self, ways: Mapping[NodeId, tuple[PeerAddress, ...]], now_s: float) -> list[Target]:
        """Return what is to be dialled now, and drop what was tried for long enough.

        Args:
            ways: Where each node there is a session with is reached.
            now_s: Monotonic.
        """
        reached = {address for addresses in ways.values() for address in addresses}
        due = []
        for key, target in list(self._targets.items()):
            num_ways = 0 if target.node_id is None else len(ways.get(target.node_id, ()))
            is_reached = target.address in reached or num_ways >= MAX_WAYS
            is_tried = target.problem is not None or is_reached
            if target.is_dialling:
                continue
            if target.given_up_s is not None and now_s >= target.given_up_s and is_tried:
                del self._targets[key]
            elif not is_reached and now_s >= target.next_try_s:
                target.is_dialling = True
                due.append(target)
        return due

    def _of(self, node_id: NodeId) -> list[Target]:
        return [target for target in self._targets.values() if target.node_id == node_id]

    def _aim(self, aimed: Target) -> None:
        key = (aimed.node_id, aimed.address)
        target = self._targets.get(key)
        if target is None:
            if len(self._targets) < MAX_TARGETS:
                self._targets[key] = aimed
        elif target.given_up_s is not None:
            target.given_up_s = (
                None if aimed.given_up_s is None else max(target.given_up_s, aimed.given_up_s)
            )

"""One node's part in the pool, put together: membership, election and fence behind one door.

Whoever drives it does the sending, the writing and the timing, and nothing else: what it is given
back is to be done in order. A heartbeat in that list never says more than the disk holds, because
a term enters it by ``written`` only.

Thread: the owner's only. Nothing waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec

from engine.domain import NodeId
from engine.messages.pool import Heartbeat, Preference, Versions
from engine.pool.actions import Action, Announce
from engine.pool.election import (
    Election,
    Happened,
    Resign,
    WriteFailed,
    Written,
    begin,
    step,
)
from engine.pool.heartbeat import HEARTBEAT_EVERY_S
from engine.pool.membership import Heard, Left, Membership, Refused, Ticked, alive, fold, gone
from engine.pool.office import Observed
from engine.pool.terms import Fence

if TYPE_CHECKING:
    from engine.messages.pool import Term
    from engine.pool.membership import Event
    from engine.pool.peer_address import PeerAddress

TICK_EVERY_S = 0.25  # how often ``tick`` is to be called; a lost lease is seen as late as this


class Identity(msgspec.Struct, frozen=True):
    """Who this node is, for as long as its engine runs."""

    pool_id: str
    node_id: NodeId
    incarnation: int  # u64, drawn at random
    versions: Versions


class Broadcast(msgspec.Struct, frozen=True):
    """Send this to every node there is a session with."""

    heartbeat: Heartbeat


Output: TypeAlias = Action | Broadcast


class Participant:
    """Takes what happens to a node of a pool; gives back what is to be done."""

    def __init__(
        self, identity: Identity, preference: Preference, accepted: Term | None, now_s: float
    ) -> None:
        """Begin to listen.

        Args:
            identity: Who this node is.
            preference: How well it would serve as coordinator; kept up to date by ``tick``.
            accepted: The term that was last written; None for never.
            now_s: Monotonic, as everywhere here.
        """
        self.identity = identity
        self.preference = preference
        self.fence = Fence(identity.pool_id, accepted)
        self.membership = Membership(
            node_id=identity.node_id,
            incarnation=identity.incarnation,
            versions=identity.versions,
            started_s=now_s,
            last_s=now_s,
        )
        self.election: Election = begin(identity.node_id, identity.incarnation, accepted, now_s)
        self._number = 0
        self._hears: tuple[NodeId, ...] = ()
        self._next_beat_s = now_s

    def heartbeat(self) -> Heartbeat:
        """Return a new heartbeat; also to be sent on every session that opens."""
        self._number += 1
        election = self.election
        return Heartbeat(
            node_id=self.identity.node_id,
            incarnation=self.identity.incarnation,
            number=self._number,
            term=election.accepted,
            coordinator=election.coordinator,
            vouches=election.vouches,
            followers=election.followers,
            hears=self._hears,
            preference=self.preference,
            versions=self.identity.versions,
        )

    def receive(self, heartbeat: Heartbeat, address: PeerAddress, now_s: float) -> list[Output]:
        """Take a heartbeat that came from an address, over a session that proved its sender."""
        return self._saw(Heard(heartbeat, address), now_s)

    def left(self, node_id: NodeId, incarnation: int, now_s: float) -> list[Output]:
        """Take a goodbye. A connection that closes without one says nothing: probe it."""
        return self._saw(Left(node_id, incarnation), now_s)

    def refused(
        self, node_id: NodeId, versions: Versions, address: PeerAddress, now_s: float
    ) -> list[Output]:
        """Take note of a node no session can be opened with, because the versions differ."""
        return self._saw(Refused(node_id, versions, address), now_s)

    def tick(self, preference: Preference, now_s: float) -> list[Output]:
        """Let time pass; to be called every ``TICK_EVERY_S``."""
        self.preference = preference
        return self._saw(Ticked(), now_s)

    def written(self, term: Term, now_s: float) -> list[Output]:
        """Take note that a term is on disk."""
        self.membership = fold(self.membership, Ticked(), now_s)
        return self._stepped([Written(term), self._observed(now_s)], now_s)

    def write_failed(self, term: Term, now_s: float) -> list[Output]:
        """Take note that a term could not be written."""
        self.membership = fold(self.membership, Ticked(), now_s)
        return self._stepped([WriteFailed(term)], now_s)  # what is seen next asks again

    def resign(self, now_s: float) -> list[Output]:
        """Leave the office to somebody else.

        Raises:
            LocalProtocolError: Another node is in office.
        """
        self.membership = fold(self.membership, Ticked(), now_s)
        return self._stepped([Resign()], now_s)

    def _saw(self, event: Event, now_s: float) -> list[Output]:
        self.membership = fold(self.membership, event, now_s)
        return self._stepped([self._observed(now_s)], now_s)

    def _observed(self, now_s: float) -> Observed:
        lives = alive(self.membership, now_s)
        own = self.identity.node_id
        mutual = tuple(life.heartbeat for life in lives if own in life.heartbeat.hears)
        return Observed(mutual, self.preference, gone(self.membership))

    def _stepped(self, inputs: list[Happened], now_s: float) -> list[Output]:
        actions: list[Action] = []
        for happened in inputs:
            self.election, done = step(self.election, happened, now_s)
            actions += done
        outputs: list[Output] = [action for action in actions if not isinstance(action, Announce)]
        accepted = self.election.accepted
        if accepted is not None and accepted != self.fence.accepted:
            self.fence.accept(accepted)
        hears = tuple(life.heartbeat.node_id for life in alive(self.membership, now_s))
        is_news = len(outputs) < len(actions) or hears != self._hears
        self._hears = hears
        if is_news or now_s >= self._next_beat_s:
            self._next_beat_s = now_s + HEARTBEAT_EVERY_S
            outputs.append(Broadcast(self.heartbeat()))
        return outputs

"""Whom to dial, and when: the addresses worth trying, each with its next try.

Pure. A node that was announced or given by a person is tried until it is there; one that was only
known is tried for a while. Of two nodes that know each other the one with the lower id dials
first, so that they seldom dial at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.domain import NodeId
from engine.pool.peer_address import PeerAddress

if TYPE_CHECKING:
    from collections.abc import Callable

FIRST_RETRY_S = 1.0
LAST_RETRY_S = 15.0
YIELD_S = 2.0  # the node with the higher id waits this long for the other one to dial
REDIAL_YIELD_S = 0.5  # the same after a session was lost
TRY_KNOWN_FOR_S = 600.0  # as long as a node that went is remembered
MAX_TARGETS = 64  # a pool has 16; more announcements are somebody's game

Key = NodeId | PeerAddress


@dataclass(slots=True)
class Target:
    """A node worth dialling, or an address whose node is not known yet.

    Attributes:
        addresses: To be tried in turn.
        next_try_s: Not before this time.
        given_up_s: When it is dropped, unless it is announced by then; None for never.
        retry_s: From a try that failed to the next.
        is_dialling: A try is going on, or a session that came of one is open.
        problem: Why the last try failed, one sentence.
    """

    addresses: tuple[PeerAddress, ...]
    next_try_s: float
    given_up_s: float | None = None
    retry_s: float = FIRST_RETRY_S
    is_dialling: bool = False
    problem: str | None = None

    def answered(self) -> None:
        """Take note that somebody was there."""
        self.problem, self.retry_s = None, FIRST_RETRY_S

    def ended(self, now_s: float) -> None:
        """Take note that a try failed, or that what came of it is over."""
        self.is_dialling = False
        self.next_try_s = now_s + self.retry_s
        self.retry_s = min(2 * self.retry_s, LAST_RETRY_S)


class Targets:
    """All targets of one node."""

    def __init__(self, own_id: NodeId) -> None:
        """Begin with none.

        Args:
            own_id: This node's.
        """
        self._own_id = own_id
        self._targets: dict[Key, Target] = {}

    @property
    def problems(self) -> tuple[str, ...]:
        """Why nodes that were announced or given can't be reached, one sentence each."""
        wanted = [t for t in self._targets.values() if t.given_up_s is None]
        return tuple(dict.fromkeys(t.problem for t in wanted if t.problem is not None))

    def announced(self, node_id: NodeId, addresses: tuple[PeerAddress, ...], now_s: float) -> None:
        """Take a node that says where it is."""
        wait_s = YIELD_S if self._own_id > node_id else 0.0
        self._aim(node_id, Target(addresses, now_s + wait_s))

    def given(self, address: PeerAddress, now_s: float) -> None:
        """Take an address a person gave."""
        self._aim(address, Target((address,), now_s))

    def known(self, address: PeerAddress, now_s: float) -> None:
        """Take an address that a node was reached at earlier, for one try."""
        self._aim(address, Target((address,), now_s, given_up_s=now_s))

    def lost(self, node_id: NodeId, addresses: tuple[PeerAddress, ...], now_s: float) -> None:
        """Take a node whose last session has ended without a goodbye: it may still be there."""
        wait_s = REDIAL_YIELD_S if self._own_id > node_id else 0.0
        target = self._targets.get(node_id)
        if target is None:
            until_s = now_s + TRY_KNOWN_FOR_S
            self._aim(node_id, Target(addresses, now_s + wait_s, given_up_s=until_s))
        else:
            target.next_try_s, target.retry_s = now_s + wait_s, FIRST_RETRY_S

    def left(self, node_id: NodeId) -> None:
        """Drop a node that said goodbye, or whose announcement holds no longer."""
        self._targets.pop(node_id, None)

    def addresses_of(self, node_id: NodeId) -> tuple[PeerAddress, ...]:
        """Return where a node is to be dialled; none where that isn't known."""
        target = self._targets.get(node_id)
        return () if target is None else target.addresses

    def try_all_now(self, now_s: float) -> None:
        """Try everything again at once: this PC's network has changed."""
        for target in self._targets.values():
            target.next_try_s, target.retry_s = now_s, FIRST_RETRY_S

    def due(self, is_connected: Callable[[Key], bool], now_s: float) -> list[Target]:
        """Return what is to be dialled now, and drop what was tried for long enough.

        Args:
            is_connected: Whether a session with that node, or at that address, is open.
            now_s: Monotonic.
        """
        waiting = [(k, t) for k, t in self._targets.items() if not t.is_dialling]
        due = []
        for key, target in waiting:
            is_over = target.given_up_s is not None and now_s > target.given_up_s
            if is_connected(key) or (is_over and target.problem is not None):
                if target.given_up_s is not None:
                    del self._targets[key]
            elif now_s >= target.next_try_s:
                target.is_dialling = True
                due.append(target)
        return due

    def _aim(self, key: Key, aimed: Target) -> None:
        target = self._targets.get(key)
        if target is not None:
            target.addresses = aimed.addresses
            if aimed.given_up_s is None:
                target.given_up_s = None
        elif len(self._targets) < MAX_TARGETS:
            self._targets[key] = aimed

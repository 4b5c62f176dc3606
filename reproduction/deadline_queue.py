"""Packets that are under way: each may leave when its time has come, and not before; pure.

A packet is stamped when it comes, so that a delay is no occupancy: however many follow, each takes
its own time. A rate is a byte clock before the delay, as a wire is. Order is kept, whatever the
jitter: a path does not shuffle one connection's packets often, and TCP would take it for loss.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

MAX_QUEUED_BYTES = 64 << 20
NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """What a link does to packets, in each direction.

    Attributes:
        one_way_ms: From sending to arrival.
        jitter_ms: At most so much is added, evenly spread.
        mbit_per_s: Of each direction of a connection; None for no limit.
        max_queued_bytes: Behind the byte clock; what comes beyond is dropped, as routers do.
    """

    one_way_ms: float = 0.0
    jitter_ms: float = 0.0
    mbit_per_s: float | None = None
    max_queued_bytes: int = MAX_QUEUED_BYTES


class DeadlineQueue:
    """One direction of one connection."""

    def __init__(self, settings: LinkSettings, random: Random) -> None:
        """Begin empty.

        Args:
            settings: Of the link.
            random: Draws the jitter.
        """
        self.settings = settings
        self._random = random
        self._packets: deque[tuple[int, bytes]] = deque()
        self._wire_free_ns = 0
        self._last_due_ns = 0
        self._num_queued_bytes = 0
        self.num_dropped = 0

    def __len__(self) -> int:
        return len(self._packets)

    def push(self, packet: bytes, now_ns: int) -> None:
        """Take a packet; one for which there is no room is dropped and counted.

        Args:
            packet: As it came.
            now_ns: When.
        """
        settings = self.settings
        if self._num_queued_bytes + len(packet) > settings.max_queued_bytes:
            self.num_dropped += 1
            return
        sent_ns = now_ns
        if settings.mbit_per_s is not None:
            # Megabits a second are bits a microsecond.
            on_wire_ns = int(len(packet) * 8 / settings.mbit_per_s * 1000)
            self._wire_free_ns = max(now_ns, self._wire_free_ns) + on_wire_ns
            sent_ns = self._wire_free_ns
        late_ms = settings.one_way_ms + self._random.random() * settings.jitter_ms
        self._last_due_ns = max(self._last_due_ns, sent_ns + int(late_ms * NS_PER_MS))
        self._packets.append((self._last_due_ns, packet))
        self._num_queued_bytes += len(packet)

    @property
    def next_due_ns(self) -> int | None:
        """When the next packet may leave; None where there is none."""
        return self._packets[0][0] if self._packets else None

    def pop_due(self, now_ns: int) -> list[bytes]:
        """Return the packets whose time has come, in order.

        Args:
            now_ns: Now.
        """
        due = []
        while self._packets and self._packets[0][0] <= now_ns:
            packet = self._packets.popleft()[1]
            self._num_queued_bytes -= len(packet)
            due.append(packet)
        return due

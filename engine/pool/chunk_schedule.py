"""Which chunk to ask of whom; pure.

The rarest chunk first, so that what only one PC has is not left for last; of the PCs that have
it, the one that failed least. A PC is given the next chunk when all of the one before is asked for.
A PC that sends a bad chunk is asked nothing more, and its chunk is asked of another; a PC that
fails otherwise gets a few more chances.
"""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from engine.domain import NodeId

MAX_FAILURES = 3  # in a row, without a chunk in between


class ChunkSchedule:
    """What is still to be fetched of one file, and who may be asked.

    Attributes:
        set_aside: PCs that are asked nothing more, and why.
    """

    def __init__(self, missing: Iterable[int], available: Mapping[NodeId, frozenset[int]]) -> None:
        """Begin with nothing asked for.

        Args:
            missing: Chunks to fetch.
            available: Which chunks each PC has.
        """
        self._wanted = set(missing)
        self._available = dict(available)
        self._waiting = sorted(self._wanted, key=self._rarity)  # not under way; next to ask first
        self._under_way: dict[int, NodeId] = {}
        self._asking: dict[NodeId, int] = {}  # whom for which chunk, not yet for all of it
        self._failures = dict.fromkeys(available, 0)
        self.set_aside: dict[NodeId, str] = {}

    @property
    def is_complete(self) -> bool:
        """Whether every chunk has come."""
        return not self._wanted

    @property
    def is_stuck(self) -> bool:
        """Whether there is more to fetch, nothing is under way, and nobody has any of it."""
        return bool(self._wanted) and not self._under_way and self._next() is None

    def take(self) -> tuple[NodeId, int] | None:
        """Return the next request, which counts as under way from now on; None to wait.

        Returns:
            The PC to ask, and the chunk.
        """
        request = self._next()
        if request is not None:
            node_id, index = request
            self._waiting.remove(index)  # it is near the front
            self._under_way[index] = node_id
            self._asking[node_id] = index
        return request

    def asked(self, index: int) -> None:
        """Note that all of a chunk is asked for; its sender may be given the next.

        Args:
            index: Of a chunk under way.
        """
        self._stop_asking(self._under_way[index], index)

    def came(self, index: int) -> None:
        """Note that a chunk came and is what it should be.

        Args:
            index: Of a chunk under way.
        """
        self._failures[self._end(index)] = 0
        self._wanted.discard(index)

    def was_bad(self, index: int, why: str) -> None:
        """Note that a chunk came and is not what it should be; its sender is set aside.

        Args:
            index: Of a chunk under way.
            why: For people.
        """
        self._drop(self._back(index), why)

    def was_mixed(self, index: int) -> None:
        """Note that a chunk is bad whose pieces came from several: nobody is set aside for it.

        Args:
            index: Of a chunk under way; it is asked for again.
        """
        self._back(index)

    def failed(self, index: int, why: str) -> None:
        """Note that a chunk did not come; its sender is set aside after ``MAX_FAILURES``.

        Args:
            index: Of a chunk under way.
            why: For people.
        """
        node_id = self._back(index)
        self._failures[node_id] += 1
        if self._failures[node_id] >= MAX_FAILURES:
            self._drop(node_id, why)

    def _back(self, index: int) -> NodeId:
        """Let a chunk wait again; return who was to send it."""
        insort(self._waiting, index, key=self._rarity)
        return self._end(index)

    def _end(self, index: int) -> NodeId:
        node_id = self._under_way.pop(index)
        self._stop_asking(node_id, index)
        return node_id

    def _stop_asking(self, node_id: NodeId, index: int) -> None:
        if self._asking.get(node_id) == index:
            del self._asking[node_id]

    def _drop(self, node_id: NodeId, why: str) -> None:
        self.set_aside.setdefault(node_id, why)
        self._available[node_id] = frozenset()
        self._waiting.sort(key=self._rarity)

    def _next(self) -> tuple[NodeId, int] | None:
        free = [node_id for node_id in self._available if node_id not in self._asking]
        for index in self._waiting if free else ():
            holders = [node_id for node_id in free if index in self._available[node_id]]
            if holders:
                return min(holders, key=lambda n: (self._failures[n], n)), index
        return None

    def _rarity(self, index: int) -> tuple[bool, int, int]:
        num_holders = sum(index in chunks for chunks in self._available.values())
        return num_holders == 0, num_holders, index

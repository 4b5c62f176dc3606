"""One round over the missing chunks of a file: pieces asked for, written, and chunks verified.

No more pieces are under way at once than a chunk has, from the question until the piece is written,
whoever sends them: if this process or another is killed, no more than that has to be sent again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from engine.errors import DaisyError, ShardCorruptError, first_of
from engine.messages.limits import MAX_PIECES
from engine.pool.chunk_pieces import num_pieces, piece_bytes
from engine.pool.chunk_schedule import ChunkSchedule

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.domain import NodeId
    from engine.pool.chunks import ChunkList
    from engine.pool.pull import ChunkSource, PullReport, Pulls


class ChunkFetch:
    """One round.

    Attributes:
        has_progressed: Whether a chunk came.

    Thread: the loop's.
    """

    def __init__(
        self,
        pulls: Pulls,
        chunks: ChunkList,
        sources: dict[NodeId, ChunkSource],
        report: Callable[[int, int], None],
        done: PullReport,
    ) -> None:
        """Ask nobody yet.

        Args:
            pulls: Into whose store.
            chunks: Of the file.
            sources: Whom to ask.
            report: Told of verified bytes, and of how many there are in all.
            done: Told what was fetched, and who was set aside.
        """
        self._pulls = pulls
        self._chunks = chunks
        self._sources = sources
        self._report = report
        self._done = done
        self._verified = 0
        self._missing: dict[int, set[int]] = {}  # pieces of each chunk
        self._senders: dict[int, set[NodeId | None]] = {}  # of those; None: an earlier round
        self._came_bytes: dict[int, int] = {}  # of each chunk, in this round
        self._room = asyncio.Semaphore(MAX_PIECES)
        self._changed = asyncio.Event()  # what the schedule says next may have
        self.has_progressed = False

    async def run(self) -> bool:
        """Fetch until nothing is missing, or nobody has what is.

        Returns:
            Which of the two.

        Raises:
            DaisyError: It can't be written.

        Cancellation: at once; what has landed stays.
        """
        chunks = self._chunks
        for index, pieces in (await self._pulls.missing_pieces(chunks.sha256)).items():
            self._missing[index] = set(pieces)
            self._senders[index] = {None} if len(pieces) < num_pieces(chunks, index) else set()
        self._verified = chunks.num_bytes - sum(map(chunks.chunk_bytes, self._missing))
        self._report(self._verified, chunks.num_bytes)
        asked = [self._pulls.chunks_there(s, chunks.sha256) for s in self._sources.values()]
        there = await asyncio.gather(*asked)
        schedule = ChunkSchedule(self._missing, dict(zip(self._sources, there, strict=True)))
        try:
            async with asyncio.TaskGroup() as tasks:
                await self._fetch_all(schedule, tasks)
        except BaseExceptionGroup as group:
            error = first_of(group)
            raise error from group
        self._done.set_aside.update(schedule.set_aside)
        return schedule.is_complete

    async def _fetch_all(self, schedule: ChunkSchedule, tasks: asyncio.TaskGroup) -> None:
        while not (schedule.is_complete or schedule.is_stuck):
            while (request := schedule.take()) is not None:
                tasks.create_task(self._fetch(schedule, *request))
            self._changed.clear()
            await self._changed.wait()

    async def _fetch(self, schedule: ChunkSchedule, node_id: NodeId, index: int) -> None:
        try:
            failure = await self._ask_for_pieces(schedule, node_id, index)
            if failure is None:
                await self._verify(schedule, index)
            else:
                schedule.failed(index, failure)
        finally:
            self._changed.set()

    async def _ask_for_pieces(
        self, schedule: ChunkSchedule, node_id: NodeId, index: int
    ) -> str | None:
        """Fetch the pieces of a chunk that are missing; return why it failed, if it did."""
        failures: list[str] = []
        async with asyncio.TaskGroup() as asking:
            for piece in sorted(self._missing[index]):
                await self._room.acquire()
                asking.create_task(self._fetch_piece(node_id, index, piece, failures))
            schedule.asked(index)
            self._changed.set()
        return failures[0] if failures else None

    async def _fetch_piece(
        self, node_id: NodeId, index: int, piece: int, failures: list[str]
    ) -> None:
        """Fetch a piece and write it; then the room it took is free."""
        try:
            data = None if failures else await self._ask(node_id, index, piece, failures)
            if data is not None:
                await self._pulls.land(self._chunks.sha256, index, piece, data)
                self._missing[index].discard(piece)
                self._senders[index].add(node_id)
                self._came_bytes[index] = self._came_bytes.get(index, 0) + len(data)
        finally:
            self._room.release()

    async def _ask(
        self, node_id: NodeId, index: int, piece: int, failures: list[str]
    ) -> bytes | None:
        """Return a piece; None where there is a failure more."""
        name = self._chunks.sha256
        try:
            data = await self._pulls.ask(self._sources[node_id], name, index, piece)
        except (DaisyError, TimeoutError) as exc:
            failures.append(why(exc))
            return None
        if len(data) != piece_bytes(self._chunks, index, piece):
            failures.append(f"it sent {len(data)} bytes for a piece of chunk {index}")
            return None
        return data

    async def _verify(self, schedule: ChunkSchedule, index: int) -> None:
        came_bytes = self._came_bytes.pop(index, 0)
        try:
            await self._pulls.verify(self._chunks.sha256, index)
        except ShardCorruptError as exc:
            self._fetch_again(schedule, index, exc.what)
            return
        schedule.came(index)
        self.has_progressed = True
        self._verified += self._chunks.chunk_bytes(index)
        self._done.fetched_bytes += came_bytes
        self._report(self._verified, self._chunks.num_bytes)

    def _fetch_again(self, schedule: ChunkSchedule, index: int, what: str) -> None:
        """Have all of a bad chunk come again; who sent all of it is set aside."""
        senders = self._senders[index]
        if len(senders) == 1 and None not in senders:
            schedule.was_bad(index, what)
        else:
            schedule.was_mixed(index)
        self._missing[index] = set(range(num_pieces(self._chunks, index)))
        self._senders[index] = set()


def why(exc: DaisyError | TimeoutError) -> str:
    """Return in one sentence why a PC did not give what it was asked for.

    Args:
        exc: What asking it raised.
    """
    return exc.what if isinstance(exc, DaisyError) else "it did not answer in time"

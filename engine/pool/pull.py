"""Fetching a file from whoever has it, into the store.

Each PC is asked for the file's chunk list first. PCs whose lists agree are asked for chunks
together; a list that turns out to be another file's sets aside all who gave it, and the next one is
tried. What is verified is never fetched again.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from engine.errors import DaisyError, RemoteProtocolError, ShardCorruptError
from engine.pool.chunk_fetch import ChunkFetch, why
from engine.pool.chunks import decode_chunk_list
from engine.pool.store_threads import MAX_DISK_THREADS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from engine.domain import NodeId
    from engine.pool.chunks import ChunkList
    from engine.pool.store import ShardStore
    from engine.pool.store_threads import StoreThreads

CHUNK_DEADLINE_S = 30.0  # a chunk's worth of pieces, 4 MiB, at 1.1 Mbit/s
MAX_VERIFICATIONS = MAX_DISK_THREADS - 1


class ChunkSource(Protocol):
    """Another PC that may have a file, or a part of it."""

    @property
    def node_id(self) -> NodeId:
        """Which."""
        ...

    async def chunk_list(self, name: str) -> bytes:
        """Return the encoded chunk list of a file; raises ``DaisyError`` if it has none."""
        ...

    async def chunks_there(self, name: str) -> frozenset[int]:
        """Return which chunks of it there are."""
        ...

    async def piece(self, name: str, index: int, piece: int) -> bytes:
        """Return a piece of a chunk; raises ``DaisyError`` if it can't."""
        ...


@dataclass(slots=True)
class PullReport:
    """What a pull did.

    Attributes:
        fetched_bytes: Verified bytes that came over the network.
        set_aside: PCs that were asked nothing more, and why.
    """

    fetched_bytes: int = 0
    set_aside: dict[NodeId, str] = field(default_factory=dict)


def no_report(verified_bytes: int, num_bytes: int) -> None:
    """Tell nobody.

    Args:
        verified_bytes: Not looked at.
        num_bytes: Not looked at.
    """


class Pulls:
    """The pulls into one store; a file that is being fetched is not fetched twice."""

    def __init__(
        self, store: ShardStore, threads: StoreThreads, chunk_deadline_s: float = CHUNK_DEADLINE_S
    ) -> None:
        """Begin with none.

        Args:
            store: Gets the files.
            threads: For its disk work.
            chunk_deadline_s: For one answer of a source.
        """
        self._store = store
        self._threads = threads
        self._deadline_s = chunk_deadline_s
        # Pieces wait for a thread, and their senders for them; verifying can wait.
        self._verifying = asyncio.Semaphore(MAX_VERIFICATIONS)
        self._running: dict[str, asyncio.Lock] = {}

    async def pull(
        self,
        name: str,
        sources: Sequence[ChunkSource],
        report: Callable[[int, int], None] = no_report,
        num_bytes: int | None = None,
    ) -> PullReport:
        """Fetch a file, or as much of it as is missing.

        Args:
            name: SHA-256 of the file, in hex.
            sources: PCs that may have it.
            report: Told of verified bytes, and of how many there are in all; never goes back
                while one chunk list holds.
            num_bytes: Of the file, as its manifest says; whoever gives another is set aside.

        Raises:
            ShardCorruptError: Nobody has a whole and right copy; names what each one did.

        Fails with ``StorageError`` if it can't be written, or has no room.

        Thread: the loop's. Cancellation: at once; what is verified stays, for the next time.
        """
        lock = self._running.setdefault(name, asyncio.Lock())
        done = PullReport()
        async with lock:
            if await self._threads.call(self._store.has, name):
                return done
            for chunks, group in await self._lists(name, sources, num_bytes, done):
                if await self._pull_from(chunks, group, report, done):
                    self._running.pop(name, None)
                    return done
                for source in group:
                    done.set_aside.setdefault(source.node_id, "it has only a part of it")
        told = "; ".join(f"{node_id}: {why}" for node_id, why in sorted(done.set_aside.items()))
        raise ShardCorruptError(
            f"No PC has a whole copy of the file {name}: {told or 'there is none to ask'}.",
            "Import or split the model again on one of them.",
        )

    async def _lists(
        self,
        name: str,
        sources: Sequence[ChunkSource],
        num_bytes: int | None,
        done: PullReport,
    ) -> list[tuple[ChunkList, list[ChunkSource]]]:
        """Return the chunk lists there are, and who gave each; that of the most PCs first."""
        groups: dict[bytes, tuple[ChunkList, list[ChunkSource]]] = {}

        async def ask(source: ChunkSource) -> None:
            try:
                async with asyncio.timeout(self._deadline_s):
                    chunks = decode_chunk_list(await source.chunk_list(name), name)
                if num_bytes is not None and chunks.num_bytes != num_bytes:
                    raise RemoteProtocolError(
                        f"its file {name} has {chunks.num_bytes} bytes instead of {num_bytes}"
                    )
            except (DaisyError, TimeoutError) as exc:
                done.set_aside[source.node_id] = why(exc)
            else:
                groups.setdefault(chunks.encoded(), (chunks, []))[1].append(source)

        async with asyncio.TaskGroup() as tasks:
            for source in sources:
                tasks.create_task(ask(source))
        return sorted(
            groups.values(), key=lambda group: (-len(group[1]), min(s.node_id for s in group[1]))
        )

    async def _pull_from(
        self,
        chunks: ChunkList,
        group: Sequence[ChunkSource],
        report: Callable[[int, int], None],
        done: PullReport,
    ) -> bool:
        """Fetch what is missing from PCs with one chunk list; return whether the file is whole."""
        name = chunks.sha256
        missing = await self._threads.call(self._store.begin, chunks)
        while True:
            sources = {s.node_id: s for s in group if s.node_id not in done.set_aside}
            fetch = ChunkFetch(self, chunks, sources, report, done)
            if not missing:
                report(chunks.num_bytes, chunks.num_bytes)
            elif not await fetch.run():
                if not fetch.has_progressed:
                    return False
                # Somebody who is still fetching it too may have more of it by now.
                missing = await self._threads.call(self._store.missing_chunks, name)
                continue
            try:
                await self._threads.call(self._store.finish, name)
            except ShardCorruptError as exc:
                missing = await self._threads.call(self._missing_or_none, name)
                if missing:  # lost on our own disk: those are fetched again
                    continue
                done.set_aside.update(dict.fromkeys(sources, exc.what))
                return False
            return True

    def _missing_or_none(self, name: str) -> tuple[int, ...]:
        try:
            return self._store.missing_chunks(name)
        except DaisyError:
            return ()

    async def ask(self, source: ChunkSource, name: str, index: int, piece: int) -> bytes:
        """Ask a PC for one piece.

        Args:
            source: Whom to ask.
            name: SHA-256 of the file, in hex.
            index: Of the chunk.
            piece: Of the chunk.

        Fails with ``TimeoutError`` after the deadline, and as the source does.
        """
        async with asyncio.timeout(self._deadline_s):
            return await source.piece(name, index, piece)

    async def land(self, name: str, index: int, piece: int, data: bytes) -> None:
        """Write a piece.

        Args:
            name: SHA-256 of the file, in hex.
            index: Of the chunk.
            piece: Of the chunk.
            data: As it came.
        """
        await self._threads.call(self._store.incoming.land, name, index, piece, data)

    async def verify(self, name: str, index: int) -> None:
        """Verify a chunk that was written.

        Args:
            name: SHA-256 of the file, in hex.
            index: Of the chunk.
        """
        async with self._verifying:
            await self._threads.call(self._store.incoming.verify, name, index)

    async def missing_pieces(self, name: str) -> dict[int, tuple[int, ...]]:
        """Return which pieces of which chunks are not there.

        Args:
            name: SHA-256 of the file, in hex.
        """
        return await self._threads.call(self._store.incoming.missing_pieces, name)

    async def chunks_there(self, source: ChunkSource, name: str) -> frozenset[int]:
        """Ask which chunks a PC has; none if it does not answer.

        Args:
            source: Whom to ask.
            name: SHA-256 of the file, in hex.
        """
        try:
            async with asyncio.timeout(self._deadline_s):
                return await source.chunks_there(name)
        except (DaisyError, TimeoutError):
            return frozenset()

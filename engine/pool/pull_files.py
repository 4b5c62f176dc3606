"""Pulling what belongs together: a small file nobody has measured, or all files of a list."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from engine.errors import ModelNotFoundError, RemoteProtocolError, ShardCorruptError, first_of
from engine.pool.chunks import decode_chunk_list
from engine.pool.shard_files import verify_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from engine.domain import NodeId
    from engine.pool.pull import ChunkSource, Pulls
    from engine.pool.store import ShardStore
    from engine.pool.store_threads import StoreThreads
    from engine.splitter.manifest import FileEntry

FILES_AT_ONCE = 3
HASHED_AGAIN_BYTES = 16 * 1024 * 1024  # what is there already and no larger


class _SmallFileSource:
    """A source that is not believed if it gives the file more bytes than it may have."""

    def __init__(self, source: ChunkSource, max_bytes: int) -> None:
        self._source = source
        self._max_bytes = max_bytes

    @property
    def node_id(self) -> NodeId:
        return self._source.node_id

    async def chunk_list(self, name: str) -> bytes:
        data = await self._source.chunk_list(name)
        num_bytes = decode_chunk_list(data, name).num_bytes
        if num_bytes > self._max_bytes:
            raise RemoteProtocolError(
                f"its file {name} has {num_bytes} bytes, and {self._max_bytes} are the most"
            )
        return data

    async def chunks_there(self, name: str) -> frozenset[int]:
        return await self._source.chunks_there(name)

    async def chunk(self, name: str, index: int) -> bytes:
        return await self._source.chunk(name, index)


class FilesPull:
    """Pulls of what belongs together, into one store."""

    def __init__(self, store: ShardStore, threads: StoreThreads, pulls: Pulls) -> None:
        """Join the parts.

        Args:
            store: Gets the files.
            threads: For its disk work.
            pulls: Into it.
        """
        self._store = store
        self._threads = threads
        self._pulls = pulls

    async def pull_small(self, name: str, sources: Sequence[ChunkSource], max_bytes: int) -> None:
        """Fetch a file whose size nobody vouches for; one that is there is hashed again.

        Args:
            name: SHA-256 of the file, in hex.
            sources: PCs that may have it.
            max_bytes: A PC that says it has more is set aside, before any of it is fetched.

        Fails and is cancelled as ``Pulls.pull`` does and is; with ``ShardCorruptError`` also if
        the file is there, and is longer.
        """
        await self._threads.call(self._look_at_small, name, max_bytes)
        await self._pulls.pull(name, [_SmallFileSource(source, max_bytes) for source in sources])

    async def pull(
        self,
        entries: Iterable[FileEntry],
        sources: Sequence[ChunkSource],
        report: Callable[[int, int], None],
    ) -> None:
        """Fetch what is missing, the small files first.

        Args:
            entries: With the sizes the files must have.
            sources: PCs that may have them.
            report: Told of the verified bytes of all files, and of how many there are in all.

        Fails with ``StorageError`` before the first byte if there is no room for all of them, and
        as ``Pulls.pull`` does.

        Thread: the loop's. Cancellation: at once; what is verified stays, for the next time.
        """
        sizes = {entry.sha256: entry.num_bytes for entry in entries}
        await self._threads.call(self._make_room, sizes)
        names = sorted(sizes, key=lambda name: (sizes[name], name))
        verified = dict.fromkeys(names, 0)
        places = asyncio.Semaphore(FILES_AT_ONCE)

        def note(name: str, num_bytes: int) -> None:
            verified[name] = num_bytes
            report(sum(verified.values()), sum(sizes.values()))

        async def pull_one(name: str) -> None:
            async with places:
                await self._pulls.pull(
                    name, sources, lambda there, _: note(name, there), sizes[name]
                )
            note(name, sizes[name])

        try:
            async with asyncio.TaskGroup() as tasks:
                for name in names:
                    tasks.create_task(pull_one(name))
        except BaseExceptionGroup as group:
            error = first_of(group)
            raise error from group

    def _look_at_small(self, name: str, max_bytes: int) -> None:
        """Take a small file out if it changed on the disk.

        Raises:
            ShardCorruptError: It is no small file.
        """
        if not self._store.has(name):
            return
        num_bytes = self._store.object_path(name).stat().st_size
        if num_bytes > max_bytes:
            raise ShardCorruptError(
                f"The file {name} has {num_bytes} bytes, and {max_bytes} are the most it may have.",
                "Load the model again.",
            )
        with suppress(ShardCorruptError):
            verify_file(self._store, name)

    def _make_room(self, sizes: dict[str, int]) -> None:
        """Take out what changed on the disk, and see that what is to come has room.

        Large files are hashed when a stage is loaded from them.
        """
        for name, num_bytes in sizes.items():
            if self._store.has(name):
                self._take_out_damaged(name, num_bytes)
        new = [name for name in sizes if not (self._store.has(name) or self._is_begun(name))]
        if new:
            self._store.make_room(sum(sizes[name] for name in new))

    def _take_out_damaged(self, name: str, num_bytes: int) -> None:
        if self._store.object_path(name).stat().st_size != num_bytes:
            self._store.remove(name)
        elif num_bytes <= HASHED_AGAIN_BYTES:
            with suppress(ShardCorruptError):
                verify_file(self._store, name)

    def _is_begun(self, name: str) -> bool:
        try:
            self._store.missing_chunks(name)
        except ModelNotFoundError:
            return False
        return True

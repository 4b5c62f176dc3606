"""Pulling what belongs together: a small file nobody has measured, or all files of a list."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from engine.errors import DaisyError, ModelNotFoundError, ShardCorruptError, first_of
from engine.pool.chunks import decode_chunk_list
from engine.pool.pull import CHUNK_DEADLINE_S
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

        Raises:
            ShardCorruptError: Nobody has a whole and right copy of a file so small; or it is
                there, and is longer.

        Fails and is cancelled otherwise as ``Pulls.pull`` does and is.
        """
        await self._threads.call(self._look_at_small, name, max_bytes)
        if await self._threads.call(self._store.has, name):
            return
        refused: dict[NodeId, str] = {}
        for num_bytes, group in await _said_sizes(name, sources, max_bytes, refused):
            try:
                await self._pulls.pull(name, group, num_bytes=num_bytes)
            except ShardCorruptError as exc:
                refused.update((source.node_id, exc.what) for source in group)
            else:
                return
        told = "; ".join(f"{node_id}: {why}" for node_id, why in sorted(refused.items()))
        raise ShardCorruptError(
            f"No PC has a whole copy of the file {name}: {told or 'there is none to ask'}.",
            "Import or split the model again on one of them.",
        )

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


async def _said_sizes(
    name: str, sources: Sequence[ChunkSource], max_bytes: int, refused: dict[NodeId, str]
) -> list[tuple[int, list[ChunkSource]]]:
    """Return which sizes a file is said to have, and by whom; that of the most PCs first."""
    groups: dict[int, list[ChunkSource]] = {}

    async def ask(source: ChunkSource) -> None:
        try:
            async with asyncio.timeout(CHUNK_DEADLINE_S):
                num_bytes = decode_chunk_list(await source.chunk_list(name), name).num_bytes
        except DaisyError as exc:
            refused[source.node_id] = exc.what
        except TimeoutError:
            refused[source.node_id] = "it did not answer in time"
        else:
            if num_bytes <= max_bytes:
                groups.setdefault(num_bytes, []).append(source)
            else:
                refused[source.node_id] = f"it has {num_bytes} bytes, {max_bytes} are the most"

    async with asyncio.TaskGroup() as tasks:
        for source in sources:
            tasks.create_task(ask(source))
    return sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))

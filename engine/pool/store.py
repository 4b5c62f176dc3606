"""Shards on disk, named by what is in them.

A piece is written at its place and only then its bit is set; a chunk of which all have come is
verified. A killed process loses at most what it had not written yet, because what it wrote is the
system's already: nothing is flushed for its sake, only now and then, so that little is left at the
end. If the power fails, a bit may be on the disk whose piece is not; the hash of the whole file,
which is read from the disk after a restart, finds that before the file gets its name, and those
chunks are fetched again. The file is flushed, then renamed, then its folder is flushed: an object
is whole or not there.
"""

from __future__ import annotations

import os
import shutil
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from engine.errors import DaisyError, ModelNotFoundError, ShardCorruptError, StorageError
from engine.models.shown_path import shown_path
from engine.models.storage import storage_errors
from engine.pool.chunk_pieces import PIECE_BYTES, piece_of
from engine.pool.chunks import (
    MAX_CHUNK_LIST_BYTES,
    ChunkList,
    checked_name,
    decode_chunk_list,
)
from engine.pool.disk import (
    StorePaths,
    bytes_below,
    is_one_volume,
    link_or_copy,
    read_at,
    remove_links,
    signature,
    write_whole,
)
from engine.pool.incoming import IncomingFiles

if TYPE_CHECKING:
    from pathlib import Path

SPARE_BYTES = 64 * 1024 * 1024  # of the disk that are never taken
_FETCH_AGAIN = "Load the model again; the file is fetched anew."


class ShardStore:
    """A store; one process owns it, any thread may use it.

    Methods block on the disk: an event loop calls them through ``StoreThreads``. Names that are no
    SHA-256 in hex raise ``UsageError`` everywhere.

    Attributes:
        paths: Where things lie.
        incoming: The files that were begun and are not whole yet.
        notes: What was wrong when it was opened and what was done, for people.
    """

    def __init__(
        self, root: Path, quota_bytes: int | None = None, spare_bytes: int = SPARE_BYTES
    ) -> None:
        """Open a store, or make one; a damaged one is set aside and begun anew.

        Args:
            root: The folder; made if it isn't there.
            quota_bytes: The most its files may take; None if only the disk limits them.
            spare_bytes: Of the disk that must stay free.

        Fails with ``StorageError`` if the folder can't be made or written.
        """
        self.paths = StorePaths(root)
        self.notes: list[str] = []
        self._quota_bytes = quota_bytes
        self._spare_bytes = spare_bytes
        self._lock = threading.RLock()
        self.incoming = IncomingFiles(self.paths, self._lock)
        self._pinned: set[str] = set()
        self._hashed: dict[str, tuple[int, int]] = {}
        with storage_errors(root):
            self._open()

    # ---- what is there

    def has(self, name: str) -> bool:
        """Return whether a whole file is there.

        Args:
            name: SHA-256 of the file, in hex.
        """
        return self.paths.whole(name).is_file() and self.paths.chunk_list(name).is_file()

    def object_path(self, name: str) -> Path:
        """Return where a whole file lies, and note that it was used.

        Args:
            name: SHA-256 of the file, in hex.

        Raises:
            ModelNotFoundError: It isn't there.
        """
        if not self.has(name):
            raise ModelNotFoundError(
                f"The store has no file {name}.", "Load the model again; it is fetched then."
            )
        with suppress(OSError):  # a date is not worth failing for
            os.utime(self.paths.chunk_list(name))
        return self.paths.whole(name)

    def chunk_list(self, name: str) -> ChunkList:
        """Return the chunk list of a file, whole or on its way.

        Args:
            name: SHA-256 of the file, in hex.

        Fails with ``ModelNotFoundError`` if there is neither.
        """
        with self._lock:
            if name in self.incoming:
                return self.incoming.chunk_list(name)
            self.object_path(name)
            return self._read_list(name)

    def missing_chunks(self, name: str) -> tuple[int, ...]:
        """Return the chunks of a file that are not there, ascending; none of a whole file.

        Args:
            name: SHA-256 of the file, in hex.

        Fails with ``ModelNotFoundError`` for a file that was not begun.
        """
        with self._lock:
            if name in self.incoming:
                return self.incoming.missing(name)
            self.object_path(name)
            return ()

    def serve_chunk(self, name: str, index: int) -> bytes:
        """Return a chunk for another PC, also of a file that is still on its way here.

        Args:
            name: SHA-256 of the file, in hex.
            index: Of the chunk.

        Raises:
            ModelNotFoundError: This PC has no such file or not that chunk.
            ShardCorruptError: The file changed on the disk; it is no longer in the store.
            UsageError: The file has no such chunk.
        """
        with self._lock:
            chunks = self.chunk_list(name)
            chunks.chunk_bytes(index)
            if name in self.incoming:
                # Read before anyone else's turn: no system renames an open file but Unix.
                return self.incoming.read(name, index)
            path = self.object_path(name)
        with storage_errors(path), path.open("rb") as file:
            data = read_at(file, index)
        if self._hashed.get(name) == signature(path):
            return data  # untouched since this process hashed all of it
        if not chunks.matches(index, data):
            self.remove(name)
            raise ShardCorruptError(
                f"Chunk {index} of {name} changed on the disk; the file was taken out.",
                _FETCH_AGAIN,
            )
        return data

    # ---- a file comes in

    def begin(self, chunks: ChunkList) -> tuple[int, ...]:
        """Begin a file, or go on with it.

        Args:
            chunks: What it is to be; chunks that are there already and agree are kept.

        Returns:
            The chunks that are missing; none if the file is whole.

        Fails with ``StorageError`` if quota or disk are too small, before anything is written.
        """
        with self._lock, storage_errors(self.paths.root):
            if self.has(chunks.sha256):
                return ()
            return self.incoming.begin(chunks, self.make_room)

    def write_chunk(self, name: str, index: int, data: bytes) -> None:
        """Write a whole chunk and verify it; ``incoming`` takes its pieces one by one.

        Args:
            name: Of a file that was begun.
            index: Of the chunk.
            data: As it came.

        Fails with ``ShardCorruptError`` if it is not that chunk, which is missing then; with
        ``ModelNotFoundError`` if the file was not begun; with ``StorageError`` if it can't be
        written.
        """
        for piece in range(max(1, -(-len(data) // PIECE_BYTES))):
            self.incoming.land(name, index, piece, piece_of(data, piece))
        self.incoming.verify(name, index)

    def finish(self, name: str) -> Path:
        """Hash a file of which every chunk is there, and give it its name.

        Args:
            name: Of a file that was begun, or is whole already.

        Returns:
            Where it lies.

        Fails with ``ShardCorruptError`` if a chunk is missing or was lost on the disk, and
        ``missing_chunks`` names it now; or if every chunk is as listed and yet it is another file:
        then the list is wrong, and the file is no longer begun.
        """
        with storage_errors(self.paths.root):
            if not self.has(name):
                self.incoming.finish(name)
                self._hashed[name] = signature(self.paths.whole(name))
        return self.object_path(name)

    def add_hashed(self, path: Path, chunks: ChunkList) -> bool:
        """Take in a file from this PC, by a hard link where that is possible.

        Args:
            path: The file.
            chunks: What was found in it just now.

        Returns:
            Whether it was new.

        Fails with ``StorageError`` if quota or disk are too small.
        """
        name = chunks.sha256
        with self._lock, storage_errors(self.paths.root):
            if self.has(name):
                return False
            self.incoming.drop(name)
            self.make_room(chunks.num_bytes, is_there=is_one_volume(path, self.paths.root))
            write_whole(self.paths.chunk_list(name), chunks.encoded())
            link_or_copy(path, self.paths.whole(name))
            self._hashed[name] = signature(self.paths.whole(name))
        return True

    # ---- a file goes

    def pin(self, name: str) -> None:
        """Keep a file whatever room is needed, until ``unpin``.

        Args:
            name: SHA-256 of the file, in hex; it need not be there yet.
        """
        self._pinned.add(checked_name(name))

    def unpin(self, name: str) -> None:
        """Let a file go when room is needed; nothing happens for one that isn't pinned.

        Args:
            name: SHA-256 of the file, in hex.
        """
        self._pinned.discard(checked_name(name))

    def remove(self, name: str) -> None:
        """Take a file out, whole or not, with every link to it below ``folders``.

        Args:
            name: SHA-256 of the file, in hex; nothing happens if it isn't there.
        """
        with self._lock, storage_errors(self.paths.root):
            self.incoming.drop(name)
            whole = self.paths.whole(name)
            remove_links(self.paths.folders, whole)
            whole.unlink(missing_ok=True)
            self.paths.chunk_list(name).unlink(missing_ok=True)

    def collect_garbage(self, wanted_bytes: int) -> int:
        """Take out files that are not pinned, the longest unused first, until there is room.

        Files on their way are left alone.

        Args:
            wanted_bytes: How much is to be gained.

        Returns:
            How much was.
        """
        gained = 0
        with self._lock, storage_errors(self.paths.root):
            for name in self._unpinned_by_last_use():
                if gained >= wanted_bytes:
                    break
                gained += self.paths.whole(name).stat().st_size
                self.remove(name)
        return gained

    def make_room(self, num_bytes: int, *, is_there: bool = False) -> None:
        """Return if new files have room; take out what is not pinned if the quota is too small.

        Args:
            num_bytes: Of all of them.
            is_there: Whether they are on the store's volume already, and only get another name.

        Raises:
            StorageError: They have not; says by how much.
        """
        with self._lock, storage_errors(self.paths.root):
            self._require_quota(num_bytes)
            taken = self._spare_bytes + self.incoming.outstanding_bytes()
            free = max(0, shutil.disk_usage(self.paths.root).free - taken)
        if free < num_bytes and not is_there:
            raise StorageError(
                f"{num_bytes} bytes are to come, and the disk of {shown_path(self.paths.root)} "
                f"has {free} for them: {num_bytes - free} too few."
            )

    # ---- inside

    def _open(self) -> None:
        root = self.paths.root
        if self.paths.is_damaged():
            aside = self.paths.set_aside()
            self.notes.append(
                f"{shown_path(root)} was damaged. It is now called {shown_path(aside.name)}, and "
                "a new one was begun; models are fetched again when they are needed."
            )
        self.paths.make()
        for path in sorted(self.paths.lists.iterdir()):
            self._open_file(path)
        for path in (*root.glob("objects/*"), *root.glob("partial/*")):
            # A file nobody has a list of: a process was killed between the two.
            if not (self.paths.lists / path.name.partition(".")[0]).is_file():
                path.unlink()

    def _open_file(self, path: Path) -> None:
        """Take up one file: whole, on its way, or of no use any more."""
        name = path.name
        try:
            chunks = self._read_list(name)
        except DaisyError:
            path.unlink()
            if not name.endswith(".unfinished"):
                self.notes.append(f"The file {name[:80]} was taken out: its list is damaged.")
            return
        whole = self.paths.whole(name)
        if whole.is_file():
            self.incoming.drop(name)  # it was renamed, and the process ended there
            size = whole.stat().st_size
            if size != chunks.num_bytes:
                self.remove(name)
                self.notes.append(
                    f"The file {name} was taken out: it has {size} bytes and must have "
                    f"{chunks.num_bytes}."
                )
        elif self.paths.data(name).is_file():
            self.incoming.take_up(chunks)
        else:
            path.unlink()

    def _require_quota(self, num_bytes: int) -> None:
        if self._quota_bytes is None:
            return
        excess = bytes_below(self.paths.root) + num_bytes - self._quota_bytes
        spared = sum(self.paths.whole(name).stat().st_size for name in self._unpinned_by_last_use())
        if excess > spared:  # then nothing is taken out in vain
            raise StorageError(
                f"{num_bytes} bytes are to come, and the store may take "
                f"{self._quota_bytes} in all: {excess - spared} too few.",
                "Allow the store more space, or unload a model.",
            )
        if excess > 0:
            self.collect_garbage(excess)

    def _unpinned_by_last_use(self) -> list[str]:
        dates = [
            (path.stat().st_mtime_ns, path.name)
            for path in self.paths.lists.iterdir()
            if path.name not in self._pinned and self.has(path.name)
        ]
        return [name for _, name in sorted(dates)]

    def _read_list(self, name: str) -> ChunkList:
        with self.paths.chunk_list(name).open("rb") as file:
            return decode_chunk_list(file.read(MAX_CHUNK_LIST_BYTES + 1), name)

"""Files on their way into a store: which chunks are there, through any number of restarts."""

from __future__ import annotations

import hashlib
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from engine.errors import ModelNotFoundError, ShardCorruptError
from engine.models.storage import storage_errors
from engine.pool.chunks import CHUNK_BYTES, ChunkBitmap, ChunkList, checked_name, chunk_list_of
from engine.pool.disk import flush_file, flush_folder, pieces_of, read_at, write_at, write_whole

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from engine.pool.disk import StorePaths


class _RunningHash:
    """The SHA-256 of a file from its beginning up to the first chunk that is missing.

    It goes on while chunks come, so that little is left to hash when the last one is there.
    """

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._num_hashed = 0
        self._turn = threading.Lock()

    def go_on(self, path: Path, bitmap: ChunkBitmap) -> None:
        """Hash what can be hashed, unless another thread is at it."""
        if self._turn.acquire(blocking=False):
            try:
                self._hash_on(path, bitmap)
            finally:
                self._turn.release()

    def whole(self, path: Path, bitmap: ChunkBitmap) -> str:
        """Return the hash of a file of which every chunk is there, in hex."""
        with self._turn:
            self._hash_on(path, bitmap)
            return self._hash.hexdigest()

    def _hash_on(self, path: Path, bitmap: ChunkBitmap) -> None:
        while self._num_hashed in bitmap:
            # Opened for each chunk: a file's buffer may hold what was a hole a moment ago.
            with path.open("rb") as file:
                self._hash.update(read_at(file, self._num_hashed))
            self._num_hashed += 1


class _Incoming(NamedTuple):
    chunks: ChunkList
    bitmap: ChunkBitmap
    running_hash: _RunningHash


class IncomingFiles:
    """The files that were begun and are not whole yet; any thread may use it.

    The data file is as long as the whole file from the beginning, with holes. A chunk is written
    at its place before its bit is set, so a bit never promises what a killed process didn't write.
    """

    def __init__(self, paths: StorePaths, lock: threading.RLock) -> None:
        """Begin with none; ``take_up`` adds what is left of an earlier run.

        Args:
            paths: Of the store.
            lock: The store's: a file is on its way or whole, and nobody sees it in between.
        """
        self._paths = paths
        self._lock = lock
        self._begun: dict[str, _Incoming] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._begun

    def chunk_list(self, name: str) -> ChunkList:
        """Return what a file is to be.

        Args:
            name: Of a file that was begun.
        """
        return self._state(name).chunks

    def missing(self, name: str) -> tuple[int, ...]:
        """Return the chunks that are not there, ascending.

        Args:
            name: Of a file that was begun.
        """
        return self._state(name).bitmap.missing()

    def read(self, name: str, index: int) -> bytes:
        """Return a chunk that is there.

        Args:
            name: Of a file that was begun.
            index: Of the chunk.

        Raises:
            ModelNotFoundError: It is not there yet, or the disk lost it.
        """
        chunks, bitmap, _ = self._state(name)
        if index in bitmap:
            with storage_errors(self._paths.root), self._paths.data(name).open("rb") as file:
                data = read_at(file, index)
            if chunks.matches(index, data):
                return data
        raise ModelNotFoundError(f"Chunk {index} of {name} is not here yet.")

    def outstanding_bytes(self) -> int:
        """Return what the disk must still give to the files that were begun."""
        with self._lock:
            return sum(
                chunks.chunk_bytes(index)
                for chunks, bitmap, _ in self._begun.values()
                for index in bitmap.missing()
            )

    def take_up(self, chunks: ChunkList) -> None:
        """Go on with a file that an earlier run left.

        Args:
            chunks: As it was begun.
        """
        name = chunks.sha256
        with self._lock:
            try:
                bits = self._paths.bitmap(name).read_bytes()
                bitmap = ChunkBitmap(chunks.num_chunks, bits)
            except (OSError, ShardCorruptError):
                bitmap = self._found_by_hashing(chunks)
                self._paths.bitmap(name).write_bytes(bitmap.encoded())
            self._begun[name] = _Incoming(chunks, bitmap, _RunningHash())

    def begin(self, chunks: ChunkList, require_room: Callable[[int], None]) -> tuple[int, ...]:
        """Begin a file, or go on with it under the same chunk list or another.

        Args:
            chunks: What it is to be; chunks that are there already and agree are kept.
            require_room: Called with the bytes of a new file before anything is written; raises.

        Returns:
            The chunks that are missing.
        """
        name = chunks.sha256
        with self._lock:
            begun = self._begun.get(name)
            if begun is None or begun.chunks != chunks:
                data = self._paths.data(name)
                require_room(chunks.num_bytes - (0 if begun is None else begun.chunks.num_bytes))
                write_whole(self._paths.chunk_list(name), chunks.encoded())
                with data.open("ab") as file:
                    file.truncate(chunks.num_bytes)
                bitmap = ChunkBitmap(chunks.num_chunks)
                if begun is not None:
                    bitmap = self._found_by_hashing(chunks)
                self._paths.bitmap(name).write_bytes(bitmap.encoded())
                self._begun[name] = _Incoming(chunks, bitmap, _RunningHash())
            return self._begun[name].bitmap.missing()

    def write(self, name: str, index: int, data: bytes) -> None:
        """Verify a chunk, write it, and only then set its bit.

        Args:
            name: Of a file that was begun.
            index: Of the chunk.
            data: As it came.

        Raises:
            ShardCorruptError: It is not that chunk; nothing was written.
        """
        state = self._state(name)
        if not state.chunks.matches(index, data):
            raise ShardCorruptError(f"Chunk {index} of {name} is not what it should be.")
        write_at(self._paths.data(name), index * CHUNK_BYTES, data)
        with self._lock:
            if self._begun.get(name) is not state:
                return  # another list counts now
            state.bitmap.add(index)
            bits = state.bitmap.encoded()[index // 8 : index // 8 + 1]
            write_at(self._paths.bitmap(name), index // 8, bits)
        state.running_hash.go_on(self._paths.data(name), state.bitmap)

    def finish(self, name: str) -> None:
        """Hash a file of which every chunk is there, and give it its name; for one thread.

        Args:
            name: Of a file that was begun.

        Raises:
            ShardCorruptError: A chunk is missing or was lost on the disk; ``missing`` names it
                now. Or every chunk is as listed and yet it is another file: the list is wrong,
                and the file is no longer begun.
        """
        chunks, bitmap, running_hash = self._state(name)
        if bitmap.missing():
            raise ShardCorruptError(f"{len(bitmap.missing())} chunks of {name} are missing.")
        if running_hash.whole(self._paths.data(name), bitmap) != name:
            self._forget_lost(chunks, chunk_list_of(pieces_of(self._paths.data(name))))
        flush_file(self._paths.data(name))  # may take long; nobody has to wait for it
        with self._lock:
            self._paths.data(name).replace(self._paths.whole(name))
            flush_folder(self._paths.whole(name).parent)
            self.drop(name)

    def drop(self, name: str) -> None:
        """Forget a file and what there is of it.

        Args:
            name: SHA-256 of the file, in hex; nothing happens if it wasn't begun.
        """
        with self._lock:
            self._begun.pop(name, None)
            self._paths.data(name).unlink(missing_ok=True)
            self._paths.bitmap(name).unlink(missing_ok=True)

    def _state(self, name: str) -> _Incoming:
        try:
            return self._begun[checked_name(name)]
        except KeyError:
            raise ModelNotFoundError(f"Nobody began to fetch {name}.") from None

    def _found_by_hashing(self, chunks: ChunkList) -> ChunkBitmap:
        bitmap = ChunkBitmap(chunks.num_chunks)
        with suppress(FileNotFoundError):
            for index, piece in enumerate(pieces_of(self._paths.data(chunks.sha256))):
                if index < chunks.num_chunks and chunks.matches(index, piece):
                    bitmap.add(index)
        return bitmap

    def _forget_lost(self, chunks: ChunkList, found: ChunkList) -> None:
        """Keep only the chunks that are as listed.

        Raises:
            ShardCorruptError: Always; says what is wrong.
        """
        name = chunks.sha256
        bitmap = ChunkBitmap(chunks.num_chunks)
        for index in range(chunks.num_chunks):
            if found.digest(index) == chunks.digest(index):
                bitmap.add(index)
        lost = bitmap.missing()
        with self._lock, storage_errors(self._paths.root):
            if not lost:
                self.drop(name)
                self._paths.chunk_list(name).unlink(missing_ok=True)
                raise ShardCorruptError(f"The chunk list of {name} is that of another file.")
            self._begun[name] = _Incoming(chunks, bitmap, _RunningHash())
            self._paths.bitmap(name).write_bytes(bitmap.encoded())
        raise ShardCorruptError(f"{len(lost)} chunks of {name} were lost on the disk.")

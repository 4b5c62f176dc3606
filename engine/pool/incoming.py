"""Files on their way into a store: which chunks are there, through any number of restarts."""

from __future__ import annotations

import hashlib
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from engine.errors import ModelNotFoundError, ShardCorruptError
from engine.models.storage import storage_errors
from engine.pool.chunk_pieces import PIECE_BYTES, LandedPieces, piece_bytes
from engine.pool.chunks import CHUNK_BYTES, ChunkBitmap, ChunkList, checked_name, chunk_list_of
from engine.pool.disk import flush_file, flush_folder, pieces_of, read_at, write_at, write_whole

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from engine.pool.disk import StorePaths

FLUSHED_CHUNKS = 16  # 64 MiB: so much is left to flush at the end, not the whole file


class _RunningHash:
    """The SHA-256 of a file from its beginning up to the first chunk that is missing.

    It goes on while chunks come, so that little is left to hash when the last one is there.
    """

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._num_hashed = 0
        self._turn = threading.Lock()

    def go_on(self, path: Path, bitmap: ChunkBitmap, index: int, data: bytes) -> None:
        """Hash what can be hashed, unless another thread is at it.

        Args:
            path: The file.
            bitmap: Its chunks that are there.
            index: Of one of them that need not be read.
            data: That one.
        """
        if self._turn.acquire(blocking=False):
            try:
                if self._num_hashed == index:
                    self._hash.update(data)
                    self._num_hashed += 1
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
            self._hash.update(_chunk_at(path, self._num_hashed))
            self._num_hashed += 1


class _Incoming:
    """One file on its way.

    Attributes:
        chunks: What it is to be.
        landed: What is written of it; the disk says the same.
        bitmap: The chunks that are there and verified.
        running_hash: Of its beginning.
        num_unflushed: Chunks verified since the file was last flushed.
    """

    def __init__(self, chunks: ChunkList, landed: LandedPieces) -> None:
        self.chunks = chunks
        self.landed = landed
        self.bitmap = ChunkBitmap(chunks.num_chunks)
        self.running_hash = _RunningHash()
        self.num_unflushed = 0
        for index in range(chunks.num_chunks):
            if landed.is_whole(index):
                self.bitmap.add(index)


class IncomingFiles:
    """The files that were begun and are not whole yet; any thread may use it.

    The data file is as long as the whole file from the beginning, with holes. A piece is written
    at its place, then its bit is set on the disk: it need not come again, whoever is killed. When
    all pieces of a chunk have landed it is verified, and is there. If the process was killed in
    between, and the chunk was bad, the hash of the whole file finds it, as it finds a chunk that
    the disk lost.
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

    def missing_pieces(self, name: str) -> dict[int, tuple[int, ...]]:
        """Return the chunks that are not there, and which pieces of each have to come.

        Args:
            name: Of a file that was begun.
        """
        state = self._state(name)
        return {index: state.landed.missing(index) for index in state.bitmap.missing()}

    def read(self, name: str, index: int) -> bytes:
        """Return a chunk that is there.

        Args:
            name: Of a file that was begun.
            index: Of the chunk.

        Raises:
            ModelNotFoundError: It is not there yet, or the disk lost it.
        """
        state = self._state(name)
        if index in state.bitmap:
            with storage_errors(self._paths.root):
                data = _chunk_at(self._paths.data(name), index)
            if state.chunks.matches(index, data):
                return data
        raise ModelNotFoundError(f"Chunk {index} of {name} is not here yet.")

    def outstanding_bytes(self) -> int:
        """Return what the disk must still give to the files that were begun."""
        with self._lock:
            return sum(
                piece_bytes(state.chunks, index, piece)
                for state in self._begun.values()
                for index in state.bitmap.missing()
                for piece in state.landed.missing(index)
            )

    def take_up(self, chunks: ChunkList) -> None:
        """Go on with a file that an earlier run left.

        Args:
            chunks: As it was begun.
        """
        name = chunks.sha256
        with self._lock:
            try:
                landed = LandedPieces(chunks, self._paths.bitmap(name).read_bytes())
            except (OSError, ShardCorruptError):
                landed = self._found_by_hashing(chunks)
            self._take_over(chunks, landed)

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
                landed = LandedPieces(chunks) if begun is None else self._found_by_hashing(chunks)
                self._take_over(chunks, landed)
            return self._begun[name].bitmap.missing()

    def land(self, name: str, index: int, piece: int, data: bytes | memoryview) -> None:
        """Write a piece and set its bit on the disk.

        Args:
            name: Of a file that was begun.
            index: Of the chunk.
            piece: Of the chunk.
            data: As it came.

        Raises:
            ShardCorruptError: It is not as long as that piece; nothing was written.

        Fails with ``StorageError`` if it can't be written.
        """
        state = self._state(name)
        if len(data) != piece_bytes(state.chunks, index, piece):
            raise ShardCorruptError(f"Chunk {index} of {name} has no piece of {len(data)} bytes.")
        place = index * CHUNK_BYTES + piece * PIECE_BYTES
        with storage_errors(self._paths.root):
            write_at(self._paths.data(name), place, data)
            with self._lock:
                state.landed.add(index, piece)
                self._keep(state, index)

    def verify(self, name: str, index: int) -> None:
        """Verify a chunk of which every piece has landed; only then it is there.

        Args:
            name: Of a file that was begun.
            index: Of the chunk.

        Raises:
            ShardCorruptError: It is not that chunk; all of it is missing again.

        Fails with ``StorageError`` if it can't be read.
        """
        state = self._state(name)
        path = self._paths.data(name)
        with storage_errors(self._paths.root):
            data = _chunk_at(path, index)
            if not (state.landed.is_whole(index) and state.chunks.matches(index, data)):
                with self._lock:
                    state.landed.drop(index)
                    self._keep(state, index)
                raise ShardCorruptError(f"Chunk {index} of {name} is not what it should be.")
            with self._lock:
                state.bitmap.add(index)
                state.num_unflushed = (state.num_unflushed + 1) % FLUSHED_CHUNKS
                is_much = state.num_unflushed == 0
            state.running_hash.go_on(path, state.bitmap, index, data)
            if is_much:
                flush_file(path)

    def _keep(self, state: _Incoming, index: int) -> None:
        """Write down what has landed of a chunk, unless another list counts now."""
        name = state.chunks.sha256
        if self._begun.get(name) is state:
            mask = state.landed.encoded()[index : index + 1]
            write_at(self._paths.bitmap(name), index, mask)

    def finish(self, name: str) -> None:
        """Hash a file of which every chunk is there, and give it its name; for one thread.

        Args:
            name: Of a file that was begun.

        Raises:
            ShardCorruptError: A chunk is missing or was lost on the disk; ``missing`` names it
                now. Or every chunk is as listed and yet it is another file: the list is wrong,
                and the file is no longer begun.
        """
        state = self._state(name)
        missing = state.bitmap.missing()
        if missing:
            raise ShardCorruptError(f"{len(missing)} chunks of {name} are missing.")
        if state.running_hash.whole(self._paths.data(name), state.bitmap) != name:
            self._forget_lost(state.chunks, chunk_list_of(pieces_of(self._paths.data(name))))
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

    def _take_over(self, chunks: ChunkList, landed: LandedPieces) -> None:
        """Count this list and these pieces from now on."""
        self._paths.bitmap(chunks.sha256).write_bytes(landed.encoded())
        self._begun[chunks.sha256] = _Incoming(chunks, landed)

    def _found_by_hashing(self, chunks: ChunkList) -> LandedPieces:
        landed = LandedPieces(chunks)
        with suppress(FileNotFoundError):
            for index, piece in enumerate(pieces_of(self._paths.data(chunks.sha256))):
                if index < chunks.num_chunks and chunks.matches(index, piece):
                    landed.add_all(index)
        return landed

    def _forget_lost(self, chunks: ChunkList, found: ChunkList) -> None:
        """Keep only the chunks that are as listed.

        Raises:
            ShardCorruptError: Always; says what is wrong.
        """
        name = chunks.sha256
        landed = LandedPieces(chunks)
        for index in range(chunks.num_chunks):
            if found.digest(index) == chunks.digest(index):
                landed.add_all(index)
        lost = [index for index in range(chunks.num_chunks) if not landed.is_whole(index)]
        with self._lock, storage_errors(self._paths.root):
            if not lost:
                self.drop(name)
                self._paths.chunk_list(name).unlink(missing_ok=True)
                raise ShardCorruptError(f"The chunk list of {name} is that of another file.")
            self._take_over(chunks, landed)
        raise ShardCorruptError(f"{len(lost)} chunks of {name} were lost on the disk.")


def _chunk_at(path: Path, index: int) -> bytes:
    """Read a chunk; the file is opened for it, as a buffer may hold what was a hole before."""
    with path.open("rb") as file:
        return read_at(file, index)

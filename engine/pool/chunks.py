"""A file in chunks of 4 MiB, each with a hash of its own, and which of them are there; pure.

A file is known by the SHA-256 of all of it, which comes from a manifest. Its chunk list may come
from any PC: a list that lies is found out at the latest when the whole file is hashed.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

import msgspec

from engine.errors import RemoteProtocolError, ShardCorruptError, UsageError
from engine.messages import limits

if TYPE_CHECKING:
    from collections.abc import Iterable

CHUNK_BYTES = limits.MAX_CHUNK_BYTES
CHUNK_LIST_FORMAT = 1
DIGEST_BYTES = 32
MAX_CHUNKS = limits.MAX_CHUNKS
MAX_CHUNK_LIST_BYTES = limits.MAX_CHUNK_LIST_BYTES
_NAME = re.compile("[0-9a-f]{64}")


def checked_name(name: str) -> str:
    """Return a file's name if it is one: a SHA-256 in lower-case hex, never a path.

    Args:
        name: As anyone gives it.

    Raises:
        UsageError: It is something else.
    """
    if _NAME.fullmatch(name) is None:
        raise UsageError(f"{name[:80]!r} is no SHA-256 in small hex digits.")
    return name


class ChunkList(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the chunks of one file are.

    Attributes:
        format: Of this list.
        sha256: Of the whole file, in hex: its name.
        num_bytes: Of the whole file.
        digests: SHA-256 of each chunk, one after the other; every chunk but the last has
            ``CHUNK_BYTES``.
    """

    format: int
    sha256: str
    num_bytes: int
    digests: bytes

    @property
    def num_chunks(self) -> int:
        """Chunks of the file; an empty file has none."""
        return -(-self.num_bytes // CHUNK_BYTES)

    def chunk_bytes(self, index: int) -> int:
        """Return how long a chunk is.

        Args:
            index: From 0.

        Raises:
            UsageError: There is no such chunk.
        """
        if not 0 <= index < self.num_chunks:
            raise UsageError(f"There is no chunk {index} of {self.num_chunks} of {self.sha256}.")
        return min(CHUNK_BYTES, self.num_bytes - index * CHUNK_BYTES)

    def digest(self, index: int) -> bytes:
        """Return the SHA-256 of a chunk.

        Args:
            index: Of a chunk that exists.
        """
        return self.digests[index * DIGEST_BYTES : (index + 1) * DIGEST_BYTES]

    def matches(self, index: int, data: bytes | memoryview) -> bool:
        """Return whether bytes are the chunk they are said to be.

        Args:
            index: Of a chunk that exists.
            data: Read or received.
        """
        is_as_long = len(data) == self.chunk_bytes(index)
        return is_as_long and hashlib.sha256(data).digest() == self.digest(index)

    def encoded(self) -> bytes:
        """Return the list as msgpack, always the same bytes for the same content."""
        return msgspec.msgpack.encode(self)


def decode_chunk_list(data: bytes, sha256: str) -> ChunkList:
    """Read a chunk list that may come from anywhere.

    Args:
        data: msgpack.
        sha256: Name of the file it must be about.

    Raises:
        RemoteProtocolError: It is no chunk list, of another file, or contradicts itself.
    """
    if len(data) > MAX_CHUNK_LIST_BYTES:
        raise RemoteProtocolError(f"A chunk list is {len(data)} bytes long, more than any can be.")
    try:
        chunks = msgspec.msgpack.decode(data, type=ChunkList)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise RemoteProtocolError(f"A chunk list can't be read: {exc}") from exc
    if chunks.format != CHUNK_LIST_FORMAT:
        raise RemoteProtocolError(
            f"A chunk list has format {chunks.format}; this version reads {CHUNK_LIST_FORMAT}."
        )
    if chunks.sha256 != sha256:
        raise RemoteProtocolError(f"A chunk list is about another file than {sha256}.")
    if not 0 <= chunks.num_bytes <= MAX_CHUNKS * CHUNK_BYTES:
        raise RemoteProtocolError(f"A chunk list gives its file {chunks.num_bytes} bytes.")
    if len(chunks.digests) != chunks.num_chunks * DIGEST_BYTES:
        raise RemoteProtocolError(
            f"A chunk list has {len(chunks.digests)} bytes of hashes for {chunks.num_chunks} "
            f"chunks of {DIGEST_BYTES}."
        )
    return chunks


def chunk_list_of(pieces: Iterable[bytes]) -> ChunkList:
    """Return the chunk list of a file.

    Args:
        pieces: Its bytes in order, each piece ``CHUNK_BYTES`` long but the last.

    Raises:
        ShardCorruptError: A piece that isn't the last is shorter: the file changes meanwhile.
    """
    whole = hashlib.sha256()
    digests = bytearray()
    num_bytes = 0
    for piece in pieces:
        if num_bytes % CHUNK_BYTES:
            raise ShardCorruptError("The file is being changed while it is read.")
        whole.update(piece)
        digests += hashlib.sha256(piece).digest()
        num_bytes += len(piece)
    return ChunkList(CHUNK_LIST_FORMAT, whole.hexdigest(), num_bytes, bytes(digests))


class ChunkBitmap:
    """Which chunks of a file are there and verified: one bit each, the lowest first."""

    def __init__(self, num_chunks: int, bits: bytes | None = None) -> None:
        """Begin with none, or with what was written down.

        Args:
            num_chunks: Of the file.
            bits: As ``encoded`` gives them.

        Raises:
            ShardCorruptError: They are not those of so many chunks.
        """
        num_bytes = -(-num_chunks // 8)
        self._bits = bytearray(num_bytes) if bits is None else bytearray(bits)
        self.num_chunks = num_chunks
        unused = int.from_bytes(self._bits, "little") >> num_chunks
        if len(self._bits) != num_bytes or unused:
            raise ShardCorruptError(
                f"A bitmap of {num_chunks} chunks has {len(self._bits)} bytes or bits too many."
            )

    def __contains__(self, index: int) -> bool:
        return 0 <= index < self.num_chunks and bool(self._bits[index // 8] >> index % 8 & 1)

    def add(self, index: int) -> None:
        """Note that a chunk is there.

        Args:
            index: Of a chunk that exists.
        """
        self._bits[index // 8] |= 1 << index % 8

    def missing(self) -> tuple[int, ...]:
        """Return the chunks that are not there, ascending."""
        return tuple(index for index in range(self.num_chunks) if index not in self)

    def encoded(self) -> bytes:
        """Return the bits, ``ceil(num_chunks / 8)`` bytes."""
        return bytes(self._bits)

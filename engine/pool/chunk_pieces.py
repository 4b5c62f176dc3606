"""Which pieces of a file's chunks have landed: written at their place, verified or not; pure.

A chunk has a hash and is too large to be lost; a piece has none and is what is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.errors import ShardCorruptError
from engine.messages import limits

if TYPE_CHECKING:
    from engine.pool.chunks import ChunkList

PIECE_BYTES = limits.MAX_PIECE_BYTES


def num_pieces(chunks: ChunkList, index: int) -> int:
    """Return how many pieces a chunk has.

    Args:
        chunks: Of the file.
        index: Of a chunk that exists.
    """
    return -(-chunks.chunk_bytes(index) // PIECE_BYTES)


def piece_bytes(chunks: ChunkList, index: int, piece: int) -> int:
    """Return how long a piece is.

    Args:
        chunks: Of the file.
        index: Of a chunk that exists.
        piece: Of a piece of it that exists.
    """
    return min(PIECE_BYTES, chunks.chunk_bytes(index) - piece * PIECE_BYTES)


def piece_of(data: bytes, piece: int) -> memoryview:
    """Return a piece of a chunk, as a view; an empty one beyond its end.

    Args:
        data: The chunk.
        piece: From 0.
    """
    return memoryview(data)[piece * PIECE_BYTES : (piece + 1) * PIECE_BYTES]


class LandedPieces:
    """A byte for each chunk, in it a bit for each piece that has landed, the lowest first."""

    def __init__(self, chunks: ChunkList, masks: bytes | None = None) -> None:
        """Begin with none, or with what was written down.

        Args:
            chunks: Of the file.
            masks: As ``encoded`` gives them.

        Raises:
            ShardCorruptError: They are not those of this file.
        """
        self._whole = bytes((1 << num_pieces(chunks, i)) - 1 for i in range(chunks.num_chunks))
        self._masks = bytearray(len(self._whole)) if masks is None else bytearray(masks)
        is_as_long = len(self._masks) == len(self._whole)
        if not is_as_long or any(m & ~w for m, w in zip(self._masks, self._whole, strict=True)):
            raise ShardCorruptError(
                f"What is written down of {len(self._whole)} chunks has {len(self._masks)} bytes, "
                "or more pieces than there are."
            )

    def add(self, index: int, piece: int) -> None:
        """Note that a piece has landed.

        Args:
            index: Of the chunk.
            piece: Of the chunk.
        """
        self._masks[index] |= 1 << piece

    def add_all(self, index: int) -> None:
        """Note that a whole chunk has landed.

        Args:
            index: Of the chunk.
        """
        self._masks[index] = self._whole[index]

    def drop(self, index: int) -> None:
        """Note that nothing of a chunk is there.

        Args:
            index: Of the chunk.
        """
        self._masks[index] = 0

    def is_whole(self, index: int) -> bool:
        """Return whether every piece of a chunk has landed.

        Args:
            index: Of the chunk.
        """
        return self._masks[index] == self._whole[index]

    def missing(self, index: int) -> tuple[int, ...]:
        """Return the pieces of a chunk that have not landed, ascending.

        Args:
            index: Of the chunk.
        """
        lacking = self._whole[index] & ~self._masks[index]
        return tuple(piece for piece in range(lacking.bit_length()) if lacking >> piece & 1)

    def encoded(self) -> bytes:
        """Return the masks, one byte a chunk."""
        return bytes(self._masks)

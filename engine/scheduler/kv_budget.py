"""Room in the KV caches, counted in blocks as the stages count it.

Every stage holds the same tokens of a sequence, so one count at the head stands for all: that of
the stage with the least room.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.domain import SequenceId


class KVBudget:
    """Who holds how many blocks; always ``used + free == total``."""

    def __init__(self, max_tokens: int, block_tokens: int) -> None:
        """Begin with everything free.

        Args:
            max_tokens: Room over all sequences together; a last partial block is not counted.
            block_tokens: Tokens of one block.
        """
        self._block_tokens = block_tokens
        self._held: dict[SequenceId, int] = {}
        self.total_blocks = max_tokens // block_tokens
        self.free_blocks = self.total_blocks

    @property
    def is_whole(self) -> bool:
        """Whether every block is either held or free."""
        return sum(self._held.values()) + self.free_blocks == self.total_blocks

    def blocks_for(self, num_tokens: int) -> int:
        """Return the blocks that many tokens of one sequence take."""
        return -(-num_tokens // self._block_tokens)

    def reserve(self, sequence_id: SequenceId, num_tokens: int) -> bool:
        """Hold room for the first ``num_tokens`` of a sequence, beside what it holds already.

        Returns:
            Whether it is held now; if not, nothing changed.
        """
        needed = self.blocks_for(num_tokens) - self._held.get(sequence_id, 0)
        if needed > self.free_blocks:
            return False
        if needed > 0:
            self._held[sequence_id] = self._held.get(sequence_id, 0) + needed
            self.free_blocks -= needed
        return True

    def release(self, sequence_id: SequenceId) -> None:
        """Free what a sequence holds; nothing happens for one that holds nothing."""
        self.free_blocks += self._held.pop(sequence_id, 0)

    def holders(self) -> frozenset[SequenceId]:
        """Return the sequences that hold blocks."""
        return frozenset(self._held)

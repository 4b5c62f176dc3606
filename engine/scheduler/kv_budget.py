"""Room in the KV caches, counted in blocks as the stages count it.

Every stage holds the same tokens of a sequence, so one count at the head stands for all: that of
the stage with the least room. What sequences share on the stages they share here, so that it is
counted once. What is kept of ended ones is told apart: it may have to go.
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
        self.total_blocks = max_tokens // block_tokens
        self._free = list(range(self.total_blocks))
        self._num_owners = [0] * self.total_blocks
        self._tables: dict[SequenceId, list[int]] = {}
        self._kept: set[SequenceId] = set()
        self._num_users = [0] * self.total_blocks  # owners that are not kept
        self.used_blocks = 0  # that have a user

    @property
    def free_blocks(self) -> int:
        """Blocks that nobody holds."""
        return len(self._free)

    @property
    def is_whole(self) -> bool:
        """Whether every block is free, or held by as many as it has owners."""
        num_owners = [0] * self.total_blocks
        num_users = [0] * self.total_blocks
        for sequence_id, table in self._tables.items():
            for block in table:
                num_owners[block] += 1
                num_users[block] += sequence_id not in self._kept
        unowned = [block for block, count in enumerate(num_owners) if not count]
        return (
            (num_owners, num_users) == (self._num_owners, self._num_users)
            and sorted(self._free) == unowned
            and self.total_blocks - num_users.count(0) == self.used_blocks
        )

    def blocks_for(self, num_tokens: int) -> int:
        """Return the blocks that many tokens of one sequence take."""
        return -(-num_tokens // self._block_tokens)

    def reserve(self, sequence_id: SequenceId, num_tokens: int) -> bool:
        """Hold room for the first ``num_tokens`` of a sequence, beside what it holds already.

        Returns:
            Whether it is held now; if not, nothing changed.
        """
        needed = self.blocks_for(num_tokens) - len(self._tables.get(sequence_id, ()))
        if needed > len(self._free):
            return False
        if needed > 0:
            taken = [self._free.pop() for _ in range(needed)]
            self._tables.setdefault(sequence_id, []).extend(taken)
            self._own(taken)
        return True

    def share(self, kept_id: SequenceId, sequence_id: SequenceId, num_blocks: int) -> None:
        """Let a sequence that holds nothing begin with the first blocks of another.

        Args:
            kept_id: Holds as many.
            sequence_id: Begins.
            num_blocks: That both hold from now on, at least 1.
        """
        table = self._tables[sequence_id] = self._tables[kept_id][:num_blocks]
        self._own(table)

    def keep(self, sequence_id: SequenceId) -> None:
        """Let a sequence hold its blocks as a kept one, which uses them no more."""
        self._kept.add(sequence_id)
        self._leave(self._tables[sequence_id])

    def shares_from(self, sequence_id: SequenceId, position: int) -> bool:
        """Whether the token at a position lies in a block that another sequence holds as well."""
        table = self._tables.get(sequence_id, [])
        number = position // self._block_tokens
        return number < len(table) and self._num_owners[table[number]] > 1

    def release(self, sequence_id: SequenceId) -> None:
        """Let a sequence's blocks go; nothing happens for one that holds nothing."""
        table = self._tables.pop(sequence_id, [])
        if sequence_id in self._kept:
            self._kept.remove(sequence_id)
        else:
            self._leave(table)
        for block in table:
            self._num_owners[block] -= 1
            if not self._num_owners[block]:
                self._free.append(block)

    def holders(self) -> frozenset[SequenceId]:
        """Return the sequences that hold blocks."""
        return frozenset(self._tables)

    def _own(self, blocks: list[int]) -> None:
        for block in blocks:
            self._num_owners[block] += 1
            self._num_users[block] += 1
            self.used_blocks += self._num_users[block] == 1

    def _leave(self, blocks: list[int]) -> None:
        for block in blocks:
            self._num_users[block] -= 1
            self.used_blocks -= self._num_users[block] == 0

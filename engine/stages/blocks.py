"""Which KV blocks belong to which sequence.

A block holds a fixed number of tokens, in all layers of the stage at once. Sequences grow, are
cut back and end; a batch gets all the blocks it needs or none. Pure: knows no device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from engine.domain import KVUsage
from engine.errors import KVCacheFullError, StageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from engine.domain import SequenceId

_FIRST_TABLE_SIZE = 16


class _Table:
    """One sequence's blocks in logical order; the array is kept and grows by doubling."""

    __slots__ = ("blocks", "num_blocks", "num_tokens")

    def __init__(self) -> None:
        self.blocks: NDArray[np.int32] = np.empty(_FIRST_TABLE_SIZE, np.int32)
        self.num_blocks = 0
        self.num_tokens = 0

    def append(self, block: int) -> None:
        if self.num_blocks == len(self.blocks):
            self.blocks = np.concatenate([self.blocks, np.empty_like(self.blocks)])
        self.blocks[self.num_blocks] = block
        self.num_blocks += 1


class KVBlocks:
    """The blocks of one stage, free and used."""

    def __init__(self, num_blocks: int, block_tokens: int, block_bytes: int) -> None:
        """Begin with all blocks free.

        Args:
            num_blocks: How many there are, at least 1.
            block_tokens: Tokens one block holds, at least 1.
            block_bytes: Bytes of one block over all layers of the stage.
        """
        self.num_blocks = num_blocks
        self.block_tokens = block_tokens
        self.block_bytes = block_bytes
        # A stack: blocks just freed are the likeliest to be in a processor cache.
        self._free = list(range(num_blocks - 1, -1, -1))
        self._tables: dict[SequenceId, _Table] = {}

    def num_tokens(self, sequence_id: SequenceId) -> int:
        """Return the tokens a sequence has room for and keeps; 0 for one that is not known."""
        table = self._tables.get(sequence_id)
        return 0 if table is None else table.num_tokens

    def table(self, sequence_id: SequenceId) -> NDArray[np.int32]:
        """Return the physical blocks of a known sequence.

        Returns:
            int32 ``[blocks]`` in logical order; a view, valid until the sequence is resized.
        """
        table = self._tables[sequence_id]
        return table.blocks[: table.num_blocks]

    def resize(self, wanted: Iterable[tuple[SequenceId, int]]) -> None:
        """Let each sequence hold exactly so many tokens: all of them, or none is changed.

        Args:
            wanted: Sequences, each once, with their new numbers of tokens. One that is not known
                is opened; a smaller number gives blocks back.

        Raises:
            KVCacheFullError: They need more blocks than are free, counting what the same call
                gives back.
        """
        changes: list[tuple[SequenceId, int, int]] = []
        growth = shrinkage = 0
        for sequence_id, num_tokens in wanted:
            table = self._tables.get(sequence_id)
            target = -(-num_tokens // self.block_tokens)
            change = target - (0 if table is None else table.num_blocks)
            growth += max(change, 0)
            shrinkage -= min(change, 0)
            changes.append((sequence_id, num_tokens, target))
        if growth > len(self._free) + shrinkage:
            raise KVCacheFullError(growth, len(self._free) + shrinkage)
        # What shrinks goes first: its blocks may be what the others need.
        for sequence_id, num_tokens, target in changes:
            self._shrink(sequence_id, num_tokens, target)
        for sequence_id, _, target in changes:
            self._grow(self._tables[sequence_id], target)

    def _shrink(self, sequence_id: SequenceId, num_tokens: int, target: int) -> None:
        table = self._tables.get(sequence_id)
        if table is None:
            table = self._tables[sequence_id] = _Table()
        table.num_tokens = num_tokens
        if target < table.num_blocks:
            self._free.extend(reversed(table.blocks[target : table.num_blocks].tolist()))
            table.num_blocks = target

    def _grow(self, table: _Table, target: int) -> None:
        while table.num_blocks < target:
            table.append(self._free.pop())

    def release(self, sequence_id: SequenceId) -> None:
        """Give a sequence's blocks back; nothing happens for one that is not known."""
        table = self._tables.pop(sequence_id, None)
        if table is not None:
            self._free.extend(reversed(table.blocks[: table.num_blocks].tolist()))

    def usage(self) -> KVUsage:
        """Count the blocks in use, after checking that none is lost."""
        self.check()
        used = self.num_blocks - len(self._free)
        return KVUsage(
            used_blocks=used,
            free_blocks=len(self._free),
            used_bytes=used * self.block_bytes,
            num_sequences=len(self._tables),
        )

    def check(self) -> None:
        """Check that every block is either free or in exactly one table.

        Raises:
            StageError: One is lost or has two owners; the accounting is wrong.
        """
        owned = [self.table(sequence_id) for sequence_id in self._tables]
        everywhere = np.concatenate([np.array(self._free, np.int32), *owned])
        if not np.array_equal(np.sort(everywhere), np.arange(self.num_blocks)):
            raise StageError(
                f"Of {self.num_blocks} KV blocks, {len(self._free)} are free and "
                f"{len(everywhere) - len(self._free)} in tables, and they are not each once."
            )

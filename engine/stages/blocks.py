"""Which KV blocks belong to which sequence.

A block holds a fixed number of tokens, in all layers of the stage at once. Sequences grow, are
cut back and end; a batch gets all the blocks it needs or none. Whole blocks at the beginning of a
sequence may be shared with others; a shared block is read by all of them and written by none. It
is free when the last of them lets it go. Pure: knows no device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from engine.domain import KVUsage
from engine.errors import KVCacheFullError, LocalProtocolError, StageError

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
        self._num_owners: NDArray[np.int32] = np.zeros(num_blocks, np.int32)

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
                gives back; of a shared one it gives nothing back.
        """
        changes: list[tuple[SequenceId, int, int]] = []
        growth = shrinkage = 0
        for sequence_id, num_tokens in wanted:
            table = self._tables.get(sequence_id)
            target = -(-num_tokens // self.block_tokens)
            change = target - (0 if table is None else table.num_blocks)
            growth += max(change, 0)
            shrinkage += 0 if table is None or change >= 0 else self._num_own(table, target)
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
            self._let_go(table, target)

    def _grow(self, table: _Table, target: int) -> None:
        while table.num_blocks < target:
            block = self._free.pop()
            self._num_owners[block] = 1
            table.append(block)

    def _let_go(self, table: _Table, target: int) -> None:
        """Let the last blocks of a table go, down to so many."""
        blocks = table.blocks[target : table.num_blocks]
        self._num_owners[blocks] -= 1
        self._free.extend(reversed(blocks[self._num_owners[blocks] == 0].tolist()))
        table.num_blocks = target

    def _num_own(self, table: _Table, first: int) -> int:
        """Count the blocks of a table, from one on, that nobody else has."""
        return int(np.count_nonzero(self._num_owners[table.blocks[first : table.num_blocks]] == 1))

    # ---- beginning with what another has ---------------------------------------------------------

    def share(self, kept_id: SequenceId, sequence_id: SequenceId, num_tokens: int) -> None:
        """Let a new sequence begin with the first blocks of another, which keeps them as well.

        Args:
            kept_id: Has the blocks. Where it has not so many, the new one begins with nothing.
            sequence_id: Begins; what it had before is given back.
            num_tokens: Of whole blocks; of others, both would go on to write the last one, and
                nothing is shared.
        """
        self.release(sequence_id)
        num_blocks, rest = divmod(num_tokens, self.block_tokens)
        if rest or num_tokens > self.num_tokens(kept_id):
            return
        table = self._tables[sequence_id] = _Table()
        for block in self._tables[kept_id].blocks[:num_blocks].tolist():
            table.append(block)
        self._num_owners[table.blocks[:num_blocks]] += 1
        table.num_tokens = num_tokens

    def hand_over(self, kept_id: SequenceId, sequence_id: SequenceId) -> None:
        """Make all that is one sequence's another's; nothing happens for one that is not known.

        Args:
            kept_id: Is not known any more afterwards.
            sequence_id: What it had before is given back.
        """
        if kept_id in self._tables:
            self.release(sequence_id)
            self._tables[sequence_id] = self._tables.pop(kept_id)

    def check_writable(self, sequence_id: SequenceId, past_len: int) -> None:
        """Check that a sequence may write all its positions from ``past_len`` on.

        Args:
            sequence_id: One that is not known may.
            past_len: Tokens that stay as they are.

        Raises:
            LocalProtocolError: One lies in a block that another reads.
        """
        table = self._tables.get(sequence_id)
        if table is None:
            return
        first = past_len // self.block_tokens
        if self._num_own(table, first) < table.num_blocks - first:
            raise LocalProtocolError(
                f"Sequence {sequence_id} goes on at position {past_len}, inside what it shares."
            )

    def release(self, sequence_id: SequenceId) -> None:
        """Give a sequence's blocks back; nothing happens for one that is not known."""
        table = self._tables.pop(sequence_id, None)
        if table is not None:
            self._let_go(table, 0)

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
        """Check that every block is either free, once, or in as many tables as it has owners.

        Raises:
            StageError: One is lost or has owners nobody knows of; the accounting is wrong.
        """
        owned = [self.table(sequence_id) for sequence_id in self._tables]
        in_tables = np.bincount(
            np.concatenate([np.empty(0, np.int32), *owned]), minlength=self.num_blocks
        )
        in_free = np.bincount(np.array(self._free, np.int32), minlength=self.num_blocks)
        is_right = np.array_equal(in_tables, self._num_owners)
        if not is_right or not np.array_equal(in_free, in_tables == 0):
            raise StageError(
                f"Of {self.num_blocks} KV blocks, {len(self._free)} are free and "
                f"{int(in_tables.sum())} in tables, and they are not each where they belong."
            )

"""Rows that are equal to the last bit whoever is computed beside them.

A device has other kernels for one row than for several: one token of a sequence is attended to by
another one than two are, and a matrix by one row is multiplied by another one than by two. The
results differ in the last bits, so a token decoded alone could differ, once in a long while, from
the same token decoded with drafts behind it or with neighbours. In exact mode no sequence is
therefore computed by a single row: such a step gets a second one, which nobody looks at. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from engine.domain import MicroBatch, SequenceStep

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Widened(NamedTuple):
    """A batch in which every step has two rows at least.

    Attributes:
        batch: With the rows that were put in; they count for no logits.
        rows: int64 ``[num_tokens]``, where in it the rows of the batch before are.
    """

    batch: MicroBatch
    rows: NDArray[np.int64]


def widened(batch: MicroBatch) -> Widened:
    """Repeat the row of every step that has only one, behind it.

    Args:
        batch: Checked.

    Returns:
        The batch itself where no step has a single row. Its ``num_logits`` are those of before,
        and do not say any more which rows are wanted.
    """
    counts = np.array([step.num_tokens for step in batch.steps])
    repeats = np.repeat(np.where(counts == 1, 2, 1), counts)
    rows = np.cumsum(repeats) - repeats
    if repeats.sum() == len(rows):
        return Widened(batch, np.arange(len(batch.token_ids)))
    steps = tuple(
        SequenceStep(s.sequence_id, s.past_len, max(s.num_tokens, 2), s.num_logits)
        for s in batch.steps
    )
    doubled = np.repeat(np.arange(len(rows)), repeats)
    return Widened(batch.taking(steps, doubled), rows)

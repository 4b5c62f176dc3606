"""Rows that are equal to the last bit whoever is computed beside them.

A device has other kernels for one row than for several: one token of a sequence is attended to by
another one than two are, and a matrix by one row is multiplied by another one than by two. The
results differ in the last bits, so a token decoded alone could differ, once in a long while, from
the same token decoded with drafts behind it or with neighbours. Two ways keep to one kernel:

- *widened*, exact mode: no sequence is computed by a single row. Such a step gets a second one,
  which nobody looks at. Prompts and tokens are then alike, whoever reads them again.
- *apart*, fast mode: a token and the drafts behind it are computed as so many sequences of one row
  each, on the same blocks: what a row writes, the rows behind it read in the same pass. That costs
  nothing where there are many users, and a prompt read again may differ in the last bits.

Whichever it is, no matrix is multiplied by one row: rows are filled up in a block that nobody
reads. And with as many threads as a pass has sequences or more, the device attends to single rows
in another way than beside a sequence of several; there always is one of several, then. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from engine.domain import MicroBatch, SequenceId, SequenceStep

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

LEAST_ROWS = 2  # of a matrix that is multiplied
_NOBODY = SequenceId(2**32 - 1)  # no head gives it out


def num_fillers(num_threads: int) -> int:
    """Return how many rows are put behind those of every pass whose rows are apart, at least.

    Args:
        num_threads: Of the device. It attends in one way where a pass has as many sequences as
            threads, or one of several rows; in another way elsewhere.
    """
    return 0 if num_threads <= LEAST_ROWS else 2


class Widened(NamedTuple):
    """A batch in which every step has two rows at least.

    Attributes:
        batch: With the rows that were put in; they count for no logits.
        rows: int64 ``[num_tokens]``, where in it the rows of the batch before are.
    """

    batch: MicroBatch
    rows: NDArray[np.int64]


class Subsequences(NamedTuple):
    """A batch as a paged device is given it.

    Attributes:
        batch: Its steps are what the device attends to at once.
        tables: The physical blocks of each step, int32 ``[blocks]``, past and new tokens.
    """

    batch: MicroBatch
    tables: Sequence[NDArray[np.int32]]


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


def apart(given: Subsequences, block_tokens: int) -> Subsequences:
    """Make each row of a token with drafts a step of its own.

    Prompts stay as they are: their rows have no logits, but for the last.

    Args:
        given: Checked.
        block_tokens: A block holds so many.
    """
    batch = given.batch
    if all(s.num_tokens == 1 or s.num_logits != s.num_tokens for s in batch.steps):
        return given
    steps: list[SequenceStep] = []
    tables: list[NDArray[np.int32]] = []
    for step, table in zip(batch.steps, given.tables, strict=True):
        if step.num_logits != step.num_tokens:
            steps.append(step)
            tables.append(table)
            continue
        for past_len in range(step.past_len, step.past_len + step.num_tokens):
            steps.append(SequenceStep(step.sequence_id, past_len, 1, 1))
            tables.append(table[: past_len // block_tokens + 1])
    arrays = (batch.token_ids, batch.hidden_states, batch.row_scales)
    return Subsequences(MicroBatch(batch.batch_id, batch.epoch, tuple(steps), *arrays), tables)


def filled(given: Subsequences, num_rows: int, block: int) -> Subsequences:
    """Put rows behind a batch's, up to a number of rows; the last row is repeated.

    Args:
        given: Any.
        num_rows: Where it has as many, it stays as it is; at most a block more than it has.
        block: Physical block that is no sequence's: the rows that are put in write there.
    """
    batch = given.batch
    num_missing = num_rows - len(batch.token_ids)
    if num_missing <= 0:
        return given
    step = SequenceStep(_NOBODY, 0, num_missing, 0)
    rows = np.minimum(np.arange(num_rows), len(batch.token_ids) - 1)
    return Subsequences(
        batch.taking((*batch.steps, step), rows),
        [*given.tables, np.array([block], np.int32)],
    )

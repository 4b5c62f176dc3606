"""What every stage makes of a micro-batch's steps: checks, positions, row numbers.

Pure. No loop over tokens: only over sequences, and numpy does the rest.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from engine.errors import InferenceError, LocalProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from engine.domain import MicroBatch, SequenceId, SequenceStep


def check_batch(
    batch: MicroBatch, cached: Callable[[SequenceId], int], hidden_size: int | None
) -> None:
    """Check that a batch agrees with itself and with what is cached.

    Args:
        batch: As it came.
        cached: Returns how many tokens of a sequence are cached, 0 where it is not known.
        hidden_size: Values of a row of hidden states; None on the first stage, which has none.

    Raises:
        LocalProtocolError: It does not; the sentence names the sequence and the numbers.
    """
    num_tokens = 0
    for step in batch.steps:
        num_tokens += step.num_tokens
        _check_step(step, cached(step.sequence_id))
    if num_tokens == 0 or batch.token_ids.shape != (num_tokens,):
        raise LocalProtocolError(
            f"Batch {batch.batch_id} has token ids of shape {list(batch.token_ids.shape)} for "
            f"{num_tokens} tokens in its steps."
        )
    if len(batch.steps) > 1 and len({s.sequence_id for s in batch.steps}) < len(batch.steps):
        raise LocalProtocolError(f"Batch {batch.batch_id} names a sequence twice.")
    if hidden_size is not None:
        _check_hidden(batch, (num_tokens, hidden_size))


def _check_step(step: SequenceStep, cached: int) -> None:
    if not 0 <= step.past_len <= cached:
        raise LocalProtocolError(
            f"Sequence {step.sequence_id} goes on at position {step.past_len}, and {cached} "
            f"positions of it are cached."
        )
    if step.num_tokens < 1 or not 0 <= step.num_logits <= step.num_tokens:
        raise LocalProtocolError(
            f"Sequence {step.sequence_id} has a step of {step.num_tokens} tokens with "
            f"{step.num_logits} logits."
        )


def _check_hidden(batch: MicroBatch, shape: tuple[int, int]) -> None:
    hidden = batch.hidden_states
    if hidden is None or hidden.shape != shape:
        raise LocalProtocolError(
            f"Batch {batch.batch_id} has hidden states of shape "
            f"{None if hidden is None else list(hidden.shape)}; this stage needs {list(shape)}."
        )


def positions(steps: Sequence[SequenceStep]) -> NDArray[np.int64]:
    """Return each row's position in its sequence, int64 ``[num_tokens]``."""
    if len(steps) == 1:
        step = steps[0]
        return np.arange(step.past_len, step.past_len + step.num_tokens)
    lengths = np.array([step.num_tokens for step in steps])
    ends = np.cumsum(lengths)
    first = np.array([step.past_len for step in steps]) - (ends - lengths)
    return np.repeat(first, lengths) + np.arange(ends[-1])


def logits_rows(steps: Sequence[SequenceStep]) -> NDArray[np.int64]:
    """Return the rows of the batch that go through the LM head, int64 ``[num_logits]``."""
    if len(steps) == 1:
        step = steps[0]
        return np.arange(step.num_tokens - step.num_logits, step.num_tokens)
    lengths = np.array([step.num_logits for step in steps])
    ends = np.cumsum([step.num_tokens for step in steps])
    first = ends - np.cumsum(lengths)
    return np.repeat(first, lengths) + np.arange(lengths.sum())


def check_finite(rows: NDArray[np.float32], what: str, *, may_ban: bool = False) -> None:
    """Check that no NaN and no infinity is among the values.

    Args:
        rows: Any shape. One sum over it is enough: both survive every addition.
        what: Names the values in the error, as in ``"hidden states of layers 0..3"``.
        may_ban: Whether -inf is allowed: in logits it bans a token.

    Raises:
        InferenceError: One is.
    """
    with np.errstate(all="ignore"):
        total = float(rows.sum())
    if math.isfinite(total):
        return
    # A sum may overflow although every value is finite; only now are they all looked at.
    is_bad = ~np.isfinite(rows)
    if may_ban:
        is_bad &= ~np.isneginf(rows)
    bad = int(np.count_nonzero(is_bad))
    if bad:
        raise InferenceError(
            f"The {what} have {bad} values of {rows.size} that are not numbers.",
            "Use another device or precision for this stage.",
        )

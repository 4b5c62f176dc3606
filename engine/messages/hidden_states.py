"""Hidden states as they go from stage to stage: f32 as they are, f16, or int8 by row.

f16 is made and read by shifting bits, four to ten times faster than numpy's own conversion of many
rows. The values of f32 times 2**-112 have the exponents of f16 in the same place, 13 bits further
up; what is too small for a normal f16 becomes a subnormal f32 of the same kind. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from engine.errors import UsageError
from engine.messages.limits import MAX_ROW_SCALE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from engine.domain import ComputeMode, HiddenPrecision, LinkPrecision, MicroBatch

MAX_F16 = 65504.0
MAX_INT8 = 127

# All of no dimensions: a number of Python's would be looked at anew in every call.
_DOWN = np.array(2.0**-112, np.float32)
_UP = np.array(2.0**112, np.float32)
_HALF_STEP = np.array(1 << 12, np.int32)  # of the 13 bits that f16 does not have
_DROPPED_BITS = np.array(13, np.int32)
_SIGN_SHIFT = np.array(3, np.int32)  # from bit 18 to bit 15
_F16_SIGN = np.array(1 << 15, np.int32)
_F32_BITS_OF_F16 = np.array(0x8FFFE000, np.uint32).view(np.int32)
_STEPS = np.array(MAX_INT8, np.float32)
# A row of zeros has a scale too, and one that no division makes infinite.
_LEAST_SCALE = np.array(np.finfo(np.float32).tiny, np.float32)


class SentHiddenStates(NamedTuple):
    """Hidden states in the form in which they are sent.

    Attributes:
        values: float32, float16 or int8 ``[num_tokens, hidden_size]``.
        row_scales: float32 ``[num_tokens]`` beside int8, else None.
    """

    values: NDArray[np.float32] | NDArray[np.float16] | NDArray[np.int8]
    row_scales: NDArray[np.float32] | None = None


def hidden_precision(mode: ComputeMode, asked: LinkPrecision) -> HiddenPrecision:
    """Return what a stage sends its hidden states in.

    Args:
        mode: Of the stage.
        asked: By whoever loads the model.

    Raises:
        UsageError: Exact mode with anything but f32, which is what makes its tokens the same.
    """
    if asked == "auto":
        return "f32" if mode == "exact" else "f16"
    if mode == "exact" and asked != "f32":
        raise UsageError(
            f"Exact mode sends hidden states in f32, and {asked} was asked for.",
            "Leave out --exact or --link-precision.",
        )
    return asked


def narrowed(rows: NDArray[np.float32], precision: HiddenPrecision) -> SentHiddenStates:
    """Bring a stage's output into the form in which it is sent.

    All rows of a frame go as f32 where a value of any is too large for the form or is no finite
    number. No row depends on another: in such a frame, too, those that fit are rounded as the form
    rounds them. f16 is rounded to nearest, and halves away from zero.

    Args:
        rows: float32 ``[num_tokens, hidden_size]``, at least one value; not changed. The result
            has the array itself where that goes as f32.
        precision: Which form.
    """
    if precision == "f32":
        return SentHiddenStates(rows)
    if precision == "f16":
        # A NaN is neither.
        if rows.max() <= MAX_F16 and rows.min() >= -MAX_F16:
            return SentHiddenStates(_to_f16(rows))
        return SentHiddenStates(_rounded(rows, _largest(rows) <= MAX_F16, precision))
    largest = _largest(rows)
    fits = largest <= MAX_INT8 * MAX_ROW_SCALE
    if not fits.all():
        return SentHiddenStates(_rounded(rows, fits, precision))
    scales = np.maximum(np.divide(largest, _STEPS), _LEAST_SCALE)
    steps = np.divide(rows, scales[:, None])
    np.rint(steps, steps)
    return SentHiddenStates(steps.astype(np.int8), scales)


def _largest(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the largest size of a value of each row, float32 ``[num_tokens]``."""
    largest: NDArray[np.float32] = np.maximum(rows.max(axis=1), -rows.min(axis=1))
    return largest


def _rounded(
    rows: NDArray[np.float32], fits: NDArray[np.bool_], precision: HiddenPrecision
) -> NDArray[np.float32]:
    """Return rows of which those that fit a form are what they would be in it, in f32."""
    rounded = rows.copy()
    if fits.any():
        out = np.empty((int(fits.sum()), rows.shape[1]), np.float32)
        _widen(narrowed(rows[fits], precision), out)
        rounded[fits] = out
    return rounded


def widen_into(batch: MicroBatch, out: NDArray[np.float32]) -> None:
    """Write a batch's hidden states where a stage takes them from.

    Args:
        batch: With hidden states, of whichever form.
        out: float32, C-contiguous ``[num_tokens, hidden_size]``.

    Raises:
        ValueError: It has none.
    """
    if batch.hidden_states is None:
        raise ValueError("the batch has no hidden states")
    _widen(SentHiddenStates(batch.hidden_states, batch.row_scales), out)


def _widen(sent: SentHiddenStates, out: NDArray[np.float32]) -> None:
    values, scales = sent
    if scales is not None:
        np.multiply(values, scales[:, None], out)
    elif values.dtype == np.float16:
        bits = values.view(np.int16).astype(np.int32)  # the sign fills all bits above
        np.left_shift(bits, _DROPPED_BITS, bits)
        np.bitwise_and(bits, _F32_BITS_OF_F16, bits)
        np.multiply(bits.view(np.float32), _UP, out)
    else:
        np.copyto(out, values)


def widened_rows(batch: MicroBatch) -> NDArray[np.float32] | None:
    """Return a batch's hidden states as float32; the array itself where they are, None for none.

    Args:
        batch: With hidden states of whichever form, or none.
    """
    values = batch.hidden_states
    if values is None or values.dtype == np.float32:
        return values  # type: ignore[return-value]  # mypy can't know by the dtype
    rows = np.empty(values.shape, np.float32)
    widen_into(batch, rows)
    return rows


def _to_f16(rows: NDArray[np.float32]) -> NDArray[np.float16]:
    bits = np.multiply(rows, _DOWN).view(np.int32)
    np.add(bits, _HALF_STEP, bits)
    np.right_shift(bits, _DROPPED_BITS, bits)  # the sign fills all bits from 18 up
    sign = np.right_shift(bits, _SIGN_SHIFT)
    np.bitwise_and(sign, _F16_SIGN, sign)
    np.bitwise_or(bits, sign, bits)
    return bits.astype(np.uint16).view(np.float16)

"""What is sent in int8 or f16 arrives within the bounds that are promised, whatever the values."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from engine.domain import MicroBatch
from engine.messages.hidden_states import MAX_F16, narrowed, widened_rows

MAX_INT8_ROW = 127 * 2.0**120
FINITE = st.floats(-MAX_INT8_ROW, MAX_INT8_ROW, width=32)
SHAPES = arrays.array_shapes(min_dims=2, max_dims=2, max_side=9)


def arrived(sent):
    return widened_rows(MicroBatch(1, 1, (), np.zeros(len(sent.values), np.int32), *sent))


@given(arrays.arrays(np.float32, SHAPES, elements=FINITE))
def test_int8_is_off_by_half_a_step_of_its_row_at_most(rows):
    """But for the rounding of f32 itself, in one division and one product."""
    sent = narrowed(rows, "int8")
    scales = sent.row_scales.astype(np.float64)[:, None]
    assert (scales > 0).all()
    off = np.abs(arrived(sent).astype(np.float64) - rows)
    assert (off <= scales * (0.5 + 127 * 2.0**-22)).all()
    assert np.abs(sent.values.astype(int)).max() <= 127


@given(
    arrays.arrays(
        np.float32,
        SHAPES,
        elements=st.floats(-MAX_F16, MAX_F16, width=32)
        | st.floats(-(2.0**-13), 2.0**-13, width=32),
    )
)
def test_f16_is_as_near_as_numpys(rows):
    """But in what is too small for a normal f16, which is rounded twice: within a thousandth."""
    sent = narrowed(rows, "f16")
    assert sent.values.dtype == np.float16
    ours = np.abs(arrived(sent).astype(np.float64) - rows)
    numpys = np.abs(rows.astype(np.float16).astype(np.float64) - rows)
    assert (ours <= numpys + 2.0**-34).all()


@given(arrays.arrays(np.float32, SHAPES, elements=st.floats(width=32)))
def test_what_does_not_fit_arrives_bit_for_bit(rows):
    """Beside it the others arrive as they do alone."""
    for precision in ("f16", "int8"):
        sent = narrowed(rows, precision)
        if sent.values.dtype != np.float32:
            continue
        for row, seen in zip(rows, arrived(sent), strict=True):
            alone = narrowed(row[None], precision)
            expected = row if alone.values.dtype == np.float32 else arrived(alone)[0]
            assert seen.tobytes() == expected.tobytes()
    is_within = np.abs(rows).max() <= MAX_F16
    assert (narrowed(rows, "f16").values.dtype == np.float16) == is_within

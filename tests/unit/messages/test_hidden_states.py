"""Hidden states arrive as they were sent, as closely as their form allows."""

from __future__ import annotations

import numpy as np
import pytest

from engine.domain import MicroBatch, SequenceId, SequenceStep
from engine.errors import UsageError
from engine.messages.hidden_states import (
    MAX_F16,
    hidden_precision,
    narrowed,
    widen_into,
    widened_rows,
)

RANDOM = np.random.default_rng(7)
ROWS = (RANDOM.standard_normal((5, 96)) * np.exp(RANDOM.uniform(-9, 9, (5, 96)))).astype(np.float32)


def batch_of(sent) -> MicroBatch:
    count = len(sent.values)
    steps = (SequenceStep(SequenceId(1), 0, count, 0),)
    return MicroBatch(1, 1, steps, np.zeros(count, np.int32), *sent)


def arrived(rows, precision):
    return widened_rows(batch_of(narrowed(rows, precision)))


def with_value(value) -> np.ndarray:
    rows = ROWS.copy()
    rows[2, 5] = value
    return rows


@pytest.mark.parametrize(
    ("mode", "asked", "precision"),
    [
        ("exact", "auto", "f32"),
        ("exact", "f32", "f32"),
        ("fast", "auto", "f16"),
        ("fast", "f32", "f32"),
        ("fast", "f16", "f16"),
        ("fast", "int8", "int8"),
    ],
)
def test_what_is_sent_follows_from_the_mode_and_what_was_asked(mode, asked, precision):
    assert hidden_precision(mode, asked) == precision


@pytest.mark.parametrize("asked", ["f16", "int8"])
def test_exact_mode_sends_nothing_but_f32(asked):
    with pytest.raises(UsageError, match=f"{asked} was asked for") as caught:
        hidden_precision("exact", asked)
    assert "--link-precision" in caught.value.advice


def test_f32_is_sent_as_it_is_and_taken_as_it_is():
    sent = narrowed(ROWS, "f32")
    assert sent.values is ROWS
    assert widened_rows(batch_of(sent)) is ROWS


def test_every_finite_f16_is_read_as_numpy_reads_it_and_written_as_it_was():
    """All 63,488 of them, subnormals and both zeros included."""
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    every = every[np.isfinite(every)].reshape(1, -1)
    batch = MicroBatch(1, 1, (), np.zeros(1, np.int32), every)
    rows = widened_rows(batch)
    expected = every.astype(np.float32)
    assert rows.tobytes() == expected.tobytes()
    assert narrowed(expected, "f16").values.tobytes() == every.tobytes()


def test_f16_is_rounded_to_the_nearest():
    sent = narrowed(ROWS, "f16")
    assert sent.values.dtype == np.float16
    assert sent.row_scales is None
    ours = np.abs(sent.values.astype(np.float64) - ROWS)
    numpys = np.abs(ROWS.astype(np.float16).astype(np.float64) - ROWS)
    np.testing.assert_array_equal(ours, numpys)


@pytest.mark.parametrize("value", [MAX_F16, -MAX_F16, 0.0, 1e-9])
def test_what_f16_holds_goes_as_f16(value):
    assert narrowed(with_value(value), "f16").values.dtype == np.float16


@pytest.mark.parametrize("value", [65505.0, -70000.0, 3e38, np.inf, -np.inf, np.nan])
def test_a_frame_with_a_value_beyond_f16_goes_as_f32_and_its_row_loses_nothing(value):
    rows = with_value(value)
    sent = narrowed(rows, "f16")
    assert sent.values.dtype == np.float32
    np.testing.assert_array_equal(arrived(rows, "f16")[2], rows[2])


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, -3.4e38])
def test_a_frame_with_what_int8_can_not_say_goes_as_f32(value):
    rows = with_value(value)
    sent = narrowed(rows, "int8")
    assert sent.values.dtype == np.float32
    assert sent.row_scales is None
    np.testing.assert_array_equal(sent.values[2], rows[2])


def test_int8_is_off_by_half_a_step_of_its_row_at_most():
    sent = narrowed(ROWS, "int8")
    assert sent.values.dtype == np.int8
    np.testing.assert_array_equal(np.abs(sent.values).max(axis=1), 127)
    steps = np.abs(ROWS).max(axis=1) / 127
    np.testing.assert_allclose(sent.row_scales, steps, rtol=1e-6)
    assert (np.abs(arrived(ROWS, "int8") - ROWS) <= steps[:, None] * 0.5001).all()


def test_a_row_of_zeros_arrives_as_zeros():
    assert not arrived(np.zeros((2, 8), np.float32), "int8").any()


@pytest.mark.parametrize("precision", ["f16", "int8"])
def test_no_row_depends_on_another(precision):
    alone = np.concatenate([arrived(row[None], precision) for row in ROWS])
    np.testing.assert_array_equal(alone, arrived(ROWS, precision))


@pytest.mark.parametrize("value", [3.4e38, np.inf, np.nan])
@pytest.mark.parametrize("precision", ["f16", "int8"])
def test_no_row_depends_on_one_that_does_not_fit(precision, value):
    """Beside it the others arrive as they do without it."""
    beside = arrived(with_value(value), precision)
    others = [0, 1, 3, 4]
    np.testing.assert_array_equal(beside[others], arrived(ROWS, precision)[others])
    only = np.full((1, 4), value, np.float32)
    np.testing.assert_array_equal(arrived(only, precision), only)


@pytest.mark.parametrize("precision", ["f32", "f16", "int8"])
def test_rows_are_written_where_a_stage_takes_them_from(precision):
    batch = batch_of(narrowed(ROWS, precision))
    out = np.full_like(ROWS, np.nan)
    widen_into(batch, out)
    np.testing.assert_array_equal(out, widened_rows(batch))


def test_a_batch_without_hidden_states_has_none():
    batch = MicroBatch(1, 1, (), np.zeros(1, np.int32))
    assert widened_rows(batch) is None
    with pytest.raises(ValueError, match="no hidden states"):
        widen_into(batch, np.zeros((1, 1), np.float32))


@pytest.mark.parametrize("precision", ["f32", "f16", "int8"])
def test_some_of_the_rows_keep_their_scales(precision):
    batch = batch_of(narrowed(ROWS, precision))
    kept = np.array([True, False, True, True, False])
    some = batch.taking((SequenceStep(SequenceId(1), 0, 3, 0),), kept)
    np.testing.assert_array_equal(widened_rows(some), widened_rows(batch)[kept])

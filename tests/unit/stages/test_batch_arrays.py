"""Positions and rows, against the obvious loops."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.domain import SequenceId, SequenceStep
from engine.errors import InferenceError
from engine.stages.batch_arrays import check_finite, logits_rows, positions


@st.composite
def steps(draw):
    made = []
    for sequence in range(draw(st.integers(1, 6))):
        num_tokens = draw(st.integers(1, 9))
        num_logits = draw(st.integers(0, num_tokens))
        past_len = draw(st.integers(0, 50))
        made.append(SequenceStep(SequenceId(sequence), past_len, num_tokens, num_logits))
    return tuple(made)


@given(steps())
def test_positions_count_on_from_each_sequences_past(batch):
    expected = [s.past_len + i for s in batch for i in range(s.num_tokens)]
    assert positions(batch).tolist() == expected


@given(steps())
def test_rows_are_the_last_ones_of_each_step(batch):
    expected, first = [], 0
    for step in batch:
        first += step.num_tokens
        expected += range(first - step.num_logits, first)
    assert logits_rows(batch).tolist() == expected


def test_large_finite_values_are_no_fault():
    """Their sum overflows f32; the values are right."""
    check_finite(np.full((4, 4), 3e38, np.float32), "hidden states")


def test_a_banned_token_is_no_fault_among_logits_only():
    """A model may exclude tokens by -inf; between layers it is an overflow."""
    rows = np.zeros((1, 4), np.float32)
    rows[0, 1] = -np.inf
    check_finite(rows, "logits", may_ban=True)
    with pytest.raises(InferenceError, match="1 values of 4"):
        check_finite(rows, "hidden states")
    rows[0, 2] = np.nan
    with pytest.raises(InferenceError):
        check_finite(rows, "logits", may_ban=True)

"""A step is let in where it goes on from what was drawn, and where its caches are."""

import numpy as np
import pytest

from engine.domain import MicroBatch, SampledRow, SequenceId
from engine.stages.step_door import StepDoor, empty_row, without
from tests.unit.stages.running import batch

A, B = SequenceId(1), SequenceId(2)


def drawn(first_position, *token_ids, sequence=A):
    return SampledRow(sequence, first_position, token_ids)


def at_front(*token_ids, first_position=5):
    """Return the last stage's door behind a prompt of five and so many tokens drawn."""
    door = StepDoor(knows_draws=True)
    door.advance(batch((1, 0, [0] * 5, 1)).steps, [drawn(first_position, *token_ids)])
    return door


@pytest.mark.parametrize(
    ("past_len", "first_id", "is_dropped"),
    [
        (5, 7, False),  # what was drawn
        (5, 8, True),  # another token in its place
        (6, 7, True),  # behind it
        (9, 7, True),
        (4, 3, False),  # a rewind, whatever it begins with
        (0, 3, False),
    ],
)
def test_a_step_goes_on_from_the_front_or_begins_before_it(past_len, first_id, is_dropped):
    """Token 7 was drawn for position 5."""
    dropped = at_front(7).dropped(batch((1, past_len, [first_id, 1], 2)))
    assert dropped == ({A} if is_dropped else set())


def test_the_front_lies_behind_all_that_was_kept():
    """Three tokens of one step: two drafts held."""
    door = at_front(7, 8, 9)
    assert door.dropped(batch((1, 7, [9], 1))) == set()
    assert door.dropped(batch((1, 7, [8], 1))) == {A}
    assert door.dropped(batch((1, 8, [9], 1))) == {A}


def test_behind_a_chunk_of_a_prompt_any_token_may_come_but_not_further_on():
    """Nothing was drawn there."""
    door = StepDoor(knows_draws=True)
    door.advance(batch((1, 0, [0] * 5, 0)).steps, ())
    assert door.dropped(batch((1, 5, [3], 1))) == set()
    assert door.dropped(batch((1, 6, [3], 1))) == {A}


def test_each_step_of_a_batch_is_judged_by_its_own_first_token():
    """The second one's is the third of the batch."""
    door = at_front(7)
    door.advance(batch((2, 0, [0] * 5, 1)).steps, [drawn(5, 4, sequence=B)])
    assert door.dropped(batch((1, 5, [7, 4], 2), (2, 5, [4], 1))) == set()
    assert door.dropped(batch((1, 5, [4, 7], 2), (2, 5, [4], 1))) == {A}
    assert door.dropped(batch((1, 5, [7, 4], 2), (2, 5, [7], 1))) == {B}


def test_a_sequence_that_is_not_known_begins_anywhere():
    """With what is kept of another; and so does one that was forgotten."""
    door = at_front(7)
    assert door.dropped(batch((2, 40, [1], 1))) == set()
    door.forget(A)
    door.forget(A)
    assert door.dropped(batch((1, 40, [1], 1))) == set()


@pytest.mark.parametrize("knows_draws", [True, False])
def test_a_sequence_that_failed_is_dropped_until_it_begins_anew(knows_draws):
    """On every stage: its caches are gone."""
    door = StepDoor(knows_draws=knows_draws)
    door.lose(batch((1, 0, [0] * 5, 1)).steps)
    assert door.dropped(batch((1, 5, [3], 1))) == {A}
    anew = batch((1, 0, [0] * 5, 0))
    assert door.dropped(anew) == set()
    door.advance(anew.steps, ())
    assert door.dropped(batch((1, 5, [3], 1))) == set()


def test_a_stage_that_draws_nothing_lets_guesses_through():
    """It can't know."""
    door = StepDoor(knows_draws=False)
    door.advance(batch((1, 0, [0] * 5, 1)).steps, ())
    assert door.dropped(batch((1, 9, [3], 1))) == set()


def test_a_batch_is_made_smaller_by_what_is_dropped():
    """Rows of ids and hidden states go with their steps."""
    whole = batch((1, 5, [7, 8], 1), (2, 5, [4], 1))
    hidden = np.arange(6, dtype=np.float32).reshape(3, 2)
    rows = MicroBatch(whole.batch_id, whole.epoch, whole.steps, whole.token_ids, hidden)
    assert without(rows, {SequenceId(9)}) is rows
    assert without(rows, {A, B}) is None
    left = without(rows, {A})
    assert left.steps == whole.steps[1:]
    assert left.token_ids.tolist() == [4]
    assert left.hidden_states.tolist() == [[4.0, 5.0]]
    assert without(whole, {B}).hidden_states is None


def test_an_empty_row_stands_where_the_tokens_would():
    """Two drafts behind the token of position 5."""
    assert empty_row(batch((1, 5, [7, 8, 9], 3)).steps[0]) == SampledRow(A, 6, ())

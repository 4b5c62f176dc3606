"""One sequence's life: the table, the counters, and how long an answer may be."""

import itertools
import json
from pathlib import Path

import msgspec
import pytest

from engine.domain import SequenceId, SequenceStep
from engine.errors import ContextTooLongError, LocalProtocolError, UsageError
from engine.messages.control import Generate
from engine.scheduler.request import (
    TRANSITIONS,
    Sequence,
    SequenceInput,
    SequenceState,
    check_max_tokens,
)

K22 = json.loads(
    (Path(__file__).parents[2] / "vectors" / "cases" / "K22.json").read_text(encoding="utf-8")
)
MAX_TOKENS_ROWS = [
    (row["max_tokens"], row["right"]) for row in K22["rows"] if set(row) == {"max_tokens", "right"}
]


def sequence(num_prompt_tokens=5, max_output_tokens=4, output_ids=()):
    return Sequence(
        SequenceId(7), list(range(10, 10 + num_prompt_tokens)), max_output_tokens, output_ids
    )


def running(**about):
    begun = sequence(**about)
    begun.advance(SequenceInput.ADMIT)
    return begun


def answer_limit(value):
    """Return the limit for a 37-token prompt in a context of 8192, or the refusal's sentence."""
    body = json.dumps({"request_id": "r", "prompt": "p", "max_tokens": value})
    try:
        request = msgspec.json.decode(body, type=Generate)
        return check_max_tokens(request.max_tokens, 37, 8192)
    except (UsageError, msgspec.ValidationError) as error:
        return str(error)


@pytest.mark.parametrize(("value", "right"), MAX_TOKENS_ROWS, ids=str)
def test_every_row_of_the_table_of_max_tokens_is_settled(value, right):
    """0 is not "not given"; a huge number is what the context leaves; a bad one is named."""
    limit = answer_limit(value)
    if right.startswith("400"):
        assert "max_tokens" in limit
    elif value is None or value > 8192:
        assert limit == 8192 - 37
    else:
        assert limit == value


@pytest.mark.parametrize("value", [0, -1, -(10**12)])
def test_max_tokens_below_one_is_refused_by_name_and_value(value):
    """It never means "no limit"."""
    with pytest.raises(UsageError, match=f"max_tokens is {value};"):
        check_max_tokens(value, 10, 100)


@pytest.mark.parametrize("prompt_tokens", [9035, 8192])
def test_a_prompt_that_fills_the_context_is_refused_with_both_numbers(prompt_tokens):
    """Before anything is computed."""
    with pytest.raises(ContextTooLongError) as caught:
        check_max_tokens(None, prompt_tokens, 8192)
    assert str(prompt_tokens) in caught.value.what
    assert "8192" in caught.value.what
    assert f"{prompt_tokens - 8191} too many" in caught.value.what


@pytest.mark.parametrize("max_tokens", [None, 1, 5, 10**12])
def test_a_prompt_one_short_of_the_context_gets_one_token(max_tokens):
    """8191 of 8192."""
    assert check_max_tokens(max_tokens, 8191, 8192) == 1


def test_every_pair_outside_the_table_is_a_fault_of_ours():
    """And each pair in it leads where the table says."""
    for state, event in itertools.product(SequenceState, SequenceInput):
        tried = sequence()
        tried.state = state
        if (state, event) in TRANSITIONS:
            tried.advance(event)
            assert tried.state is TRANSITIONS[state, event]
        else:
            with pytest.raises(LocalProtocolError, match=f"7 is {state.name} and got {event.name}"):
                tried.advance(event)


def test_nothing_leads_out_of_an_end():
    """Finished, cancelled and failed are final, and every other state can reach each of them."""
    ends = {SequenceState.FINISHED, SequenceState.CANCELLED, SequenceState.FAILED}
    assert not [state for state, _ in TRANSITIONS if state in ends]
    for begin in set(SequenceState) - ends:
        reached = {begin}
        for _ in SequenceState:
            reached |= {after for (state, _), after in TRANSITIONS.items() if state in reached}
        assert reached >= ends


def test_a_new_sequence_waits_with_nothing_computed():
    """Its prompt is its only tokens."""
    new = sequence()
    assert new.state is SequenceState.WAITING
    assert (new.num_tokens, new.num_prompt_tokens, new.num_output_tokens) == (5, 5, 0)
    assert (new.num_computed_tokens, new.num_scheduled_tokens) == (0, 0)
    assert new.max_length == 9
    assert new.output_ids == ()
    assert new.token_ids(1, 3).tolist() == [11, 12]
    assert new.token_ids(1, 3).dtype == "int32"


def test_an_answer_that_goes_on_keeps_what_is_committed():
    """Prompt and committed ids are one list to the caches."""
    resumed = sequence(output_ids=(1, 2))
    assert (resumed.num_tokens, resumed.num_prompt_tokens, resumed.num_output_tokens) == (7, 5, 2)
    assert resumed.output_ids == (1, 2)
    assert resumed.max_length == 9


def test_an_empty_prompt_and_a_finished_answer_are_refused():
    """There is nothing to compute."""
    with pytest.raises(UsageError, match="empty"):
        sequence(num_prompt_tokens=0)
    with pytest.raises(LocalProtocolError, match="4 tokens of answer and already has 4"):
        sequence(output_ids=(1, 2, 3, 4))


def test_a_commit_stops_at_the_limit():
    """More tokens than may be (drafts that held) are cut."""
    begun = running()
    assert begun.commit((1,)) == (1,)
    assert begun.state is SequenceState.DECODE
    assert not begun.is_at_limit
    assert begun.commit((2, 3, 4, 5, 6)) == (2, 3, 4)
    assert begun.is_at_limit
    assert begun.output_ids == (1, 2, 3, 4)


def test_counters_follow_schedule_confirm_and_rewind():
    """Computed never passes scheduled."""
    begun = running()
    begun.schedule(3)
    begun.schedule(2)
    assert (begun.num_computed_tokens, begun.num_scheduled_tokens) == (0, 5)
    begun.confirm(3)
    assert (begun.num_computed_tokens, begun.num_scheduled_tokens) == (3, 5)
    begun.rewind(1)
    assert (begun.num_computed_tokens, begun.num_scheduled_tokens) == (1, 1)
    assert begun.num_tokens == 5


def test_it_is_known_where_computing_began():
    """What others computed is not to be read; after a rewind it begins again."""
    begun = running()
    assert begun.prefill_start == 0
    begun.begin_at(2)
    begun.schedule(2)
    begun.confirm(2)
    assert begun.prefill_start == 2
    begun.rewind(1)
    assert begun.prefill_start == 1


@pytest.mark.parametrize("length", [-1, 4])
def test_a_rewind_beyond_what_is_computed_is_a_fault_of_ours(length):
    """By both numbers."""
    begun = running()
    begun.schedule(3)
    begun.confirm(3)
    with pytest.raises(LocalProtocolError, match=f"to {length}: 3 of its"):
        begun.rewind(length)


def test_steps_in_flight_must_lead_from_counter_to_counter():
    """A gap, a missing step, and a step beyond the tokens are seen."""
    begun = running()
    begun.schedule(5)
    chunks = SequenceStep(SequenceId(7), 0, 3, 0), SequenceStep(SequenceId(7), 3, 2, 1)
    assert begun.is_consistent_with(chunks)
    assert not begun.is_consistent_with(chunks[:1])
    assert not begun.is_consistent_with(chunks[1:])
    begun.schedule(1)
    beyond = SequenceStep(SequenceId(7), 5, 1, 1)
    assert not begun.is_consistent_with((*chunks, beyond))

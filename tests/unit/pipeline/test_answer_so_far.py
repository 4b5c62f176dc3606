"""What an asker has of an answer; the time is made up."""

import pytest

from engine.errors import RemoteProtocolError
from engine.messages.control import (
    Accepted,
    AnswerInterrupted,
    AnswerProgress,
    AnswerResumed,
    Finished,
    Ping,
    TextDelta,
)
from engine.pipeline.answer_so_far import AnswerSoFar
from engine.sampling.parameters import SamplingParameters
from tests.unit.pipeline.scripted import question

ACCEPTED = Accepted(request_id="r1", prompt_tokens=37, seed=2**64 - 1)


def piece(number, *ids):
    return TextDelta(request_id="r1", number=number, text="x", token_ids=ids)


def end(**changes):
    fields = {
        "request_id": "r1",
        "finish_reason": "stop",
        "prompt_tokens": 37,
        "completion_tokens": 5,
        "ttft_s": 0.5,
        "decode_s": 0.25,
        "chain_compute_ms": 3.0,
    }
    return Finished(**(fields | changes))


def test_a_pause_is_what_the_asker_saw_of_it():
    """From the last piece to the next, not from when the loss was noticed."""
    answer = AnswerSoFar(question(), 100.0)
    answer.take(ACCEPTED, 101.0)
    answer.take(piece(0, 5), 103.0)
    answer.take(piece(1, 6), 104.0)
    told = answer.interrupted("A PC was lost.", 107.0)
    assert told == (AnswerInterrupted(request_id="r1", what="A PC was lost."),)
    assert answer.interrupted("Another one.", 108.0) == ()
    assert answer.take(ACCEPTED, 109.0) == ()
    resumed = AnswerResumed(request_id="r1", pause_s=6.5)
    assert answer.take(piece(2, 7), 110.5) == (resumed, piece(2, 7))
    assert answer.take(end(), 111.0) == (end(ttft_s=3.0, decode_s=7.5),)


def test_progress_is_passed_on_until_the_first_piece():
    """What another head reads again of an answer that goes on is no news."""
    answer = AnswerSoFar(question(), 100.0)
    answer.take(ACCEPTED, 101.0)
    reading = AnswerProgress(request_id="r1", queue_place=0, wait_s=None, num_read=256)
    assert answer.take(reading, 102.0) == (reading,)
    answer.take(piece(0, 5), 103.0)
    assert answer.take(reading, 104.0) == ()


def test_a_pause_before_the_first_piece_begins_with_the_loss():
    answer = AnswerSoFar(question(), 100.0)
    answer.take(ACCEPTED, 101.0)
    answer.interrupted("A PC was lost.", 107.0)
    resumed, _ = answer.take(piece(0, 7), 110.5)
    assert resumed.pause_s == 3.5


def test_a_pause_may_end_with_the_answer():
    answer = AnswerSoFar(question(), 100.0)
    answer.take(ACCEPTED, 101.0)
    answer.take(piece(0, 5), 103.0)
    answer.interrupted("A PC was lost.", 107.0)
    resumed = AnswerResumed(request_id="r1", pause_s=6.0)
    assert answer.take(end(), 109.0) == (resumed, end(ttft_s=3.0, decode_s=0.0))
    assert answer.is_finished


def test_nobody_is_told_of_an_interruption_before_the_answer_began():
    answer = AnswerSoFar(question(), 100.0)
    assert answer.interrupted("A PC was lost.", 107.0) == ()
    answer.take(ACCEPTED, 110.0)
    assert answer.take(piece(0, 5), 111.0) == (piece(0, 5),)


def test_the_next_head_gets_all_that_came_and_the_seed():
    asked = question(max_tokens=9, sampling=SamplingParameters(temperature=0.5))
    answer = AnswerSoFar(asked, 0.0)
    first = answer.request_for(7)
    assert (first.committed_ids, first.next_number, first.epoch) == ((), 0, 7)
    assert not first.seed_given
    answer.take(ACCEPTED, 1.0)
    answer.take(piece(0, 5, 6), 2.0)
    answer.take(piece(1, 7), 2.0)
    answer.take(piece(0, 5, 6), 2.0)
    second = answer.request_for(8)
    assert (second.committed_ids, second.next_number, second.epoch) == ((5, 6, 7), 2, 8)
    assert (second.sampling.seed, second.seed_given) == (2**64 - 1, True)
    assert (second.sampling.temperature, second.max_tokens) == (0.5, 9)
    assert second.messages == asked.messages


def test_what_the_asker_had_before_counts():
    answer = AnswerSoFar(question(committed_ids=(1, 2), next_number=2), 0.0)
    assert answer.has_begun
    assert not answer.is_accepted
    assert answer.take(piece(1, 2), 0.0) == ()
    answer.take(piece(2, 3), 0.0)
    assert answer.request_for(1).committed_ids == (1, 2, 3)
    assert not AnswerSoFar(question(), 0.0).has_begun


def test_a_cancelled_answer_says_how_far_it_came():
    answer = AnswerSoFar(question(), 100.0)
    empty = answer.cancelled()
    assert (empty.prompt_tokens, empty.completion_tokens, empty.ttft_s) == (0, 0, None)
    answer = AnswerSoFar(question(), 100.0)
    answer.take(ACCEPTED, 101.0)
    answer.take(piece(0, 5, 6), 103.0)
    answer.take(piece(1, 7), 104.0)
    said = answer.cancelled()
    assert (said.finish_reason, said.prompt_tokens, said.completion_tokens) == ("cancelled", 37, 3)
    assert (said.ttft_s, said.decode_s) == (3.0, 1.0)
    assert answer.is_finished


@pytest.mark.parametrize(
    "message", [piece(1, 5), Ping(number=1), Accepted(request_id="r1", prompt_tokens=38, seed=1)]
)
def test_what_no_head_says_is_refused(message):
    answer = AnswerSoFar(question(), 0.0)
    answer.take(ACCEPTED, 0.0)
    with pytest.raises(RemoteProtocolError):
        answer.take(message, 0.0)


def test_what_another_relay_tells_of_its_own_pauses_is_not_told_again():
    answer = AnswerSoFar(question(), 100.0)
    answer.take(ACCEPTED, 101.0)
    assert answer.take(AnswerInterrupted(request_id="r1", what="A PC was lost."), 102.0) == ()
    assert answer.take(AnswerResumed(request_id="r1", pause_s=1.0), 103.0) == ()
    assert answer.take(piece(0, 5), 104.0) == (piece(0, 5),)

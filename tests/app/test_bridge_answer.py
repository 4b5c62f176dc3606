import pytest

from app.bridge.answer import Answer
from engine.errors import RemoteProtocolError
from engine.messages.control import Accepted, Generate, TextDelta


def delta(number, text="x", ids=(1,)):
    return TextDelta(request_id="r", number=number, text=text, token_ids=ids)


def answer(**fields):
    return Answer(Generate(request_id="r", prompt="p", **fields))


def test_it_goes_on_with_the_seed_the_tokens_and_the_number_of_what_came():
    one = answer()
    one.accept(Accepted(request_id="r", prompt_tokens=5, seed=99))
    one.take(delta(0, "He", (10, 11)))
    one.take(delta(1, "llo", (12,)))

    again = one.request

    assert again.committed_ids == (10, 11, 12)
    assert again.next_number == 2
    assert again.seed_given
    assert again.sampling.seed == 99


def test_a_piece_that_came_already_says_nothing_new():
    one = answer()
    assert one.take(delta(0, "a")) == "a"
    assert one.take(delta(0, "a")) == ""
    assert one.token_ids == [1]


def test_a_missing_piece_is_an_error_that_names_both_numbers():
    one = answer()
    one.take(delta(0))
    with pytest.raises(RemoteProtocolError, match=r"Piece 3 .* where 1 was due"):
        one.take(delta(3))


def test_an_answer_that_goes_on_begins_with_its_tokens():
    one = answer(committed_ids=(4, 5))
    one.take(delta(0, ids=(6,)))
    assert one.request.committed_ids == (4, 5, 6)


def test_another_model_does_not_go_on_with_an_answer():
    one = answer()
    one.accept(Accepted(request_id="r", prompt_tokens=5, seed=99))
    one.accept(Accepted(request_id="r", prompt_tokens=5, seed=99))
    with pytest.raises(RemoteProtocolError, match=r"was 5 tokens long, .* makes 6"):
        one.accept(Accepted(request_id="r", prompt_tokens=6, seed=99))

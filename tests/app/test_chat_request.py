import pytest

from app.chat.records import Chat, Figures, Message, Sampling
from app.chat.request import (
    Measure,
    TooLong,
    build_request,
    estimated_tokens,
    num_to_leave_out,
    read_too_long,
)
from engine.errors import ContextTooLongError
from engine.messages.codec import decode, encode_control


def turn(role, text, **fields):
    return Message(message_id=text, chat_id="c", parent_id=None, role=role, text=text, **fields)


def exchange(number, words=20):
    return [
        turn("user", f"q{number} " + "word " * words),
        turn("assistant", f"a{number} " + "word " * words),
    ]


def test_the_numbers_of_the_engines_own_sentence_are_read():
    error = ContextTooLongError(9035, 8192)
    told = read_too_long(error.what)
    assert told == TooLong(9035, 8192)
    assert told.excess == 844


@pytest.mark.parametrize("sentence", ["", "Too long.", "7 words", "1 of 8192 tokens"])
def test_a_sentence_without_both_numbers_says_nothing(sentence):
    assert read_too_long(sentence) is None


def test_whole_exchanges_are_left_out_from_the_beginning_until_it_fits():
    path = [m for n in range(10) for m in exchange(n)] + [turn("user", "last")]
    measure = Measure([], "")
    num = num_to_leave_out(path, "system", 200, measure)
    assert num % 2 == 0
    assert 0 < num < len(path)
    assert path[num].role == "user"
    assert measure.tokens(path[num:], "system") <= 200 - 200 // 8
    assert measure.tokens(path[num - 2 :], "system") > 200 - 200 // 8


def test_the_last_message_always_stays():
    path = [*exchange(1), turn("user", "word " * 5000)]
    assert num_to_leave_out(path, "", 256, Measure([], "")) == 2


def test_nothing_is_left_out_where_the_context_is_not_known():
    assert num_to_leave_out(exchange(1), "", 0, Measure([], "")) == 0


def test_the_measure_learns_from_what_the_model_counted():
    path = [turn("user", "hello " * 100)]
    plain = Measure([], "").tokens(path, "")
    answered = turn("assistant", "x", figures=Figures(prompt_tokens=3 * plain))
    measure = Measure([*path, answered], "")
    assert measure.factor == pytest.approx(3.0, rel=0.02)
    assert measure.tokens(path, "") == 3 * plain


def test_what_was_counted_of_a_part_only_teaches_nothing():
    path = [turn("user", "hello " * 100)]
    figures = Figures(prompt_tokens=5, num_left_out=2)
    assert Measure([*path, turn("assistant", "x", figures=figures)], "").factor == 1.0


def test_a_guess_is_of_the_right_size_for_both_scripts():
    assert 200 < estimated_tokens("word " * 200) < 400
    assert 100 < estimated_tokens("你好世界" * 50) < 250


def test_a_request_carries_the_chats_settings_and_can_be_sent():
    chat = Chat(
        chat_id="c", system_prompt="S", sampling=Sampling(temperature=0.5, top_p=0.9, max_tokens=9)
    )
    request = build_request("r", chat, [turn("user", "hi")])
    assert decode(encode_control(request)) == request
    assert request.messages[0] == {"role": "system", "content": "S"}
    assert not request.seed_given
    assert request.max_tokens == 9


def test_the_time_a_template_is_given_is_the_same_each_time():
    answer = turn("assistant", "", created_s=1_700_000_000.0)
    first, again = (build_request("r", Chat(chat_id="c"), [], answer) for _ in range(2))
    assert first.asked_at == again.asked_at
    assert first.asked_at.startswith("2023-11-1")
    assert decode(encode_control(first)) == first


def test_an_answer_that_goes_on_keeps_its_own_seed():
    chat = Chat(chat_id="c", sampling=Sampling(seed=1))
    answer = turn("assistant", "half", figures=Figures(seed=77), token_ids=(4, 5))
    request = build_request("r", chat, [turn("user", "hi")], answer)
    assert request.sampling.seed == 77
    assert request.committed_ids == (4, 5)

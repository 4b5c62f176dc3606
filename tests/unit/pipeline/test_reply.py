"""One answer's text: what is shown, what is counted, and where it ends."""

from pathlib import Path

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from engine.models.detokenizer import REPLACEMENT, IncrementalDetokenizer
from engine.models.stopping import StopStrings
from engine.models.tokenizer import JsonTokenizer
from engine.pipeline.reply import Reply

CASES = Path(__file__).parents[2] / "vectors" / "cases"
# 256 byte tokens, six words and two control tokens: a character may be four tokens.
TOKENIZER = JsonTokenizer(
    tokenizers.Tokenizer.from_str((CASES / "K09.tokenizer.json").read_text("utf-8")), {}
)
STOP = 0  # "<s>", a control token


def ids_of(text):
    return TOKENIZER.encode(text, add_special_tokens=False)


def new(stop=(), stop_ids=frozenset({STOP}), max_tokens=1000):
    detokenizer = IncrementalDetokenizer(TOKENIZER.decode, (), TOKENIZER.byte_ids)
    return Reply(detokenizer, StopStrings(stop), stop_ids, max_tokens)


def shown(reply, ids, at_once=False):
    """Push ids, one at a time or together; return the text that came out."""
    if at_once:
        reply.push(ids)
        return reply.take()[0]
    text = ""
    for token_id in ids:
        reply.push([token_id])
        text += reply.take()[0]
    return text


@pytest.mark.parametrize("at_once", [False, True])
def test_a_stop_id_ends_the_answer_counted_and_not_shown(at_once):
    reply = new()
    ids = [*ids_of("hello"), STOP]
    assert shown(reply, ids, at_once) == "hello"
    assert reply.finish_reason == "stop"
    assert reply.num_tokens == len(ids)


def test_ids_behind_the_end_are_neither_shown_nor_counted():
    """As drafts bring them."""
    reply = new()
    ids = ids_of("hello")
    reply.push([*ids, STOP, *ids])
    text, told = reply.take()
    assert (text, told) == ("hello", (*ids, STOP))
    reply.push(ids)
    assert reply.take() == ("", ())
    assert reply.num_tokens == len(ids) + 1


@pytest.mark.parametrize("token_id", [0, 1])
def test_id_0_is_an_id_like_any_other(token_id):
    reply = new(stop_ids=frozenset({token_id}))
    reply.push([token_id])
    assert (reply.finish_reason, reply.num_tokens) == ("stop", 1)


def test_without_stop_ids_only_the_limit_ends():
    reply = new(stop_ids=frozenset(), max_tokens=4)
    reply.push([STOP, STOP, STOP])
    assert reply.finish_reason is None
    reply.push([STOP])
    assert (reply.finish_reason, reply.num_tokens) == ("length", 4)


@pytest.mark.parametrize("text", ["hello world", "日本語", "🦙🦙", "a\nb"])
def test_text_comes_out_whole_however_it_was_cut(text):
    reply = new()
    assert shown(reply, [*ids_of(text), STOP]) == text


@pytest.mark.parametrize(
    ("text", "stop", "before"),
    [
        ("one two END three", ["END"], "one two "),
        ("one two END three", ["ND t", "xx"], "one two E"),
        ("a\n\nb", ["\n\n"], "a"),
        ("日本語です", ["語"], "日本"),
        ("🦙🦙x", ["🦙x"], "🦙"),
        ("stop", ["stop"], ""),
        ("aab", ["ab"], "a"),
    ],
)
@pytest.mark.parametrize("at_once", [False, True])
def test_a_stop_string_is_found_across_tokens_and_never_shown(text, stop, before, at_once):
    reply = new(stop)
    assert shown(reply, ids_of(text), at_once) == before
    assert reply.finish_reason == "stop"


def test_what_may_become_a_stop_string_is_held_back_and_comes_when_it_does_not():
    reply = new(["END"])
    assert shown(reply, ids_of("x EN")) == "x "
    assert shown(reply, ids_of("!")) == "EN!"


def test_what_was_held_back_for_a_stop_string_is_text_when_the_answer_ends():
    reply = new(["END"], max_tokens=4)
    assert shown(reply, ids_of("x EN")) == "x EN"
    assert reply.finish_reason == "length"
    reply = new(["END"])
    assert shown(reply, [*ids_of("x EN"), STOP]) == "x EN"


@pytest.mark.parametrize(("max_tokens", "reason"), [(7, "length"), (8, "stop"), (9, "stop")])
def test_the_token_that_ends_an_answer_counts_towards_its_limit(max_tokens, reason):
    """K22: seven tokens of text and the end. With room for seven the text is the same."""
    text = ids_of("abcdefg")
    assert len(text) == 7
    reply = new(max_tokens=max_tokens)
    assert shown(reply, [*text, STOP]) == "abcdefg"
    assert reply.finish_reason == reason
    assert reply.num_tokens == min(max_tokens, 8)


@pytest.mark.parametrize("max_tokens", [1, 2, 3])
def test_an_answer_cut_in_half_a_character_shows_that_it_is(max_tokens):
    """Three of the four bytes of an emoji never become a character."""
    reply = new(max_tokens=max_tokens)
    text = shown(reply, ids_of("🦙")[:max_tokens])
    assert text
    assert set(text) == {REPLACEMENT}
    assert reply.finish_reason == "length"


def test_half_a_character_is_not_shown_while_more_may_come():
    reply = new()
    assert shown(reply, ids_of("🦙")[:3]) == ""
    assert shown(reply, ids_of("🦙")[3:]) == "🦙"


def test_a_stop_string_may_be_complete_only_by_the_last_half_character():
    """A flushed replacement character can itself be what was asked to stop at."""
    reply = new([REPLACEMENT], max_tokens=3)
    assert shown(reply, [*ids_of("a"), *ids_of("🦙")[:2]]) == "a"
    assert reply.finish_reason == "stop"


def test_a_limit_and_a_stop_string_at_the_same_token_is_a_stop():
    reply = new(["c"], max_tokens=3)
    assert shown(reply, ids_of("abc")) == "ab"
    assert reply.finish_reason == "stop"


def test_a_cancelled_answer_keeps_what_was_final_and_takes_no_more():
    reply = new(["END"])
    reply.push(ids_of("x EN"))
    reply.cancel()
    assert reply.take()[0] == "x "
    assert reply.finish_reason == "cancelled"
    reply.push(ids_of("D"))
    assert (reply.take(), reply.num_tokens) == (("", ()), 4)


def test_an_answer_that_has_ended_is_not_cancelled_any_more():
    reply = new()
    reply.push([STOP])
    reply.cancel()
    assert reply.finish_reason == "stop"


def test_an_empty_stop_string_stops_nothing():
    reply = new([""])
    assert shown(reply, [*ids_of("hello"), STOP]) == "hello"


def test_taking_twice_gives_nothing_twice():
    reply = new()
    reply.push(ids_of("ab"))
    assert reply.take() == ("ab", tuple(ids_of("ab")))
    assert reply.take() == ("", ())


@given(
    text=st.text(max_size=30),
    stop=st.lists(st.text(min_size=1, max_size=3), max_size=3),
    max_tokens=st.integers(1, 200),
    sizes=st.lists(st.integers(1, 5), max_size=40),
)
def test_pieces_do_not_show(text, stop, max_tokens, sizes):
    """However ids come in pieces, the same text, count and reason come out."""
    ids = [*ids_of(text), STOP]
    together = new(stop, max_tokens=max_tokens)
    expected = shown(together, ids, at_once=True)
    piecewise, out, at = new(stop, max_tokens=max_tokens), "", 0
    for size in [*sizes, len(ids)]:
        piecewise.push(ids[at : at + size])
        out += piecewise.take()[0]
        at += size
    assert out == expected
    assert piecewise.num_tokens == together.num_tokens <= max_tokens
    assert piecewise.finish_reason == together.finish_reason
    assert not any(s in out for s in stop)


def test_ids_say_by_themselves_whether_they_end_the_answer():
    """The next step is decided before any text is made."""
    reply = new()
    assert reply.ends_at((STOP,))
    assert reply.ends_at((*ids_of("a"), STOP))
    assert not reply.ends_at(tuple(ids_of("abc")))
    assert not new(stop_ids=frozenset()).ends_at((STOP,))
    assert reply.num_tokens == 0  # asking takes nothing


def test_committed_ids_beyond_the_limit_end_the_answer_where_they_end_themselves():
    """Where it goes on there is less room than there was before."""
    text = ids_of("abcdefg")
    reply = new(max_tokens=3)
    reply.resume([*text, STOP, *text])
    assert (reply.finish_reason, reply.num_tokens) == ("stop", len(text) + 1)
    reply = new(max_tokens=3)
    reply.resume(text)
    assert (reply.finish_reason, reply.num_tokens) == ("length", len(text))

"""Text appears as soon as it is final, and never sooner."""

import json
import time
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.models.detokenizer import MAX_OPEN_BYTES, IncrementalDetokenizer
from engine.models.tokenizer import JsonTokenizer

CASES = Path(__file__).parents[2] / "vectors" / "cases"


def _tokenizer(name):
    text = (CASES / name).read_text(encoding="utf-8")
    return JsonTokenizer(tokenizers.Tokenizer.from_str(text), {})


BYTE_LEVEL = _tokenizer("K09.tokenizer.json")  # 256 byte tokens, six words, two control tokens
SENTENCEPIECE = _tokenizer("K13.tokenizer.json")  # space mark, byte fallback
EXPECTED = json.loads((CASES / "K13.expected.json").read_text(encoding="utf-8"))


def _pieces(tokenizer, ids, context=()):
    detokenizer = IncrementalDetokenizer(tokenizer.decode, context, tokenizer.byte_ids)
    return [*(detokenizer.push(token_id) for token_id in ids), detokenizer.flush()]


def _longest_byte_run(tokenizer, ids):
    longest = run = 0
    for token_id in ids:
        if token_id in tokenizer.byte_ids:
            run += 1
        elif not tokenizer.is_special(token_id):
            run = 0
        longest = max(longest, run)
    return longest


def _utf8_ids(tokenizer, text):
    """The ids of a text, one token for each byte."""
    first = min(tokenizer.byte_ids)
    return [first + byte for byte in text.encode()]


@pytest.mark.parametrize("row", EXPECTED["chat_reply"], ids=lambda row: row["text"])
def test_sentencepiece_replies_stream_to_the_text_that_was_meant(row):
    pieces = _pieces(SENTENCEPIECE, row["ids"])
    assert "".join(pieces) == row["decode"] == row["text"]
    assert not any("\ufffd" in piece or "<0x" in piece for piece in pieces)


def test_a_raw_completion_keeps_the_space_of_its_first_word():
    row = EXPECTED["raw_completion"]
    pieces = _pieces(SENTENCEPIECE, row["generated_ids"], context=row["prompt_ids"])
    assert "".join(pieces) == row["text"] == " world"


def test_a_raw_completion_after_bytes_keeps_the_space_too():
    prompt = [333, *_utf8_ids(SENTENCEPIECE, "日")]
    assert "".join(_pieces(SENTENCEPIECE, [338, 340], context=prompt)) == " world a"
    assert "".join(_pieces(SENTENCEPIECE, _utf8_ids(SENTENCEPIECE, "本"), context=prompt)) == "本"


def test_wrong_bytes_after_a_prompt_of_bytes_do_not_spoil_the_prompt():
    prompt = [333, *_utf8_ids(SENTENCEPIECE, "日")]
    wrong = min(SENTENCEPIECE.byte_ids) + 0xFF
    assert "".join(_pieces(SENTENCEPIECE, [wrong, 338], context=prompt)) == "\ufffd world"


def test_a_chat_reply_begins_without_a_space():
    assert "".join(_pieces(SENTENCEPIECE, [338])) == "world"


def test_each_word_is_shown_as_soon_as_it_is_there():
    assert _pieces(SENTENCEPIECE, [333, 338, 340]) == ["Hello", " world", " a", ""]


def test_an_emoji_over_four_tokens_is_shown_whole_when_its_last_byte_arrives():
    ids = BYTE_LEVEL.encode("a🦙b", add_special_tokens=False)
    assert len(ids) == 6
    assert _pieces(BYTE_LEVEL, ids) == ["a", "", "", "", "🦙", "b", ""]


def test_half_an_emoji_at_the_end_is_one_replacement_character():
    ids = BYTE_LEVEL.encode("a🦙", add_special_tokens=False)[:-1]
    assert _pieces(BYTE_LEVEL, ids) == ["a", "", "", "", "\ufffd"]


def test_bytes_that_never_become_a_character_do_not_hold_text_back():
    invalid = BYTE_LEVEL.encode("é", add_special_tokens=False)[0]  # a first byte, over and over
    pieces = _pieces(BYTE_LEVEL, [invalid] * 1000)
    shown = 0
    for num_pushed, piece in enumerate(pieces[:-1], start=1):
        shown += len(piece)
        assert shown == num_pushed - 1  # only the last may still become something
    assert "".join(pieces) == "\ufffd" * 1000


def test_an_endless_run_of_byte_tokens_is_not_held_for_ever():
    text = "日本語" * 40  # 360 bytes, every letter in three tokens
    ids = [333, *_utf8_ids(SENTENCEPIECE, text), 338]
    detokenizer = IncrementalDetokenizer(SENTENCEPIECE.decode, (), SENTENCEPIECE.byte_ids)
    shown = ""
    for num_pushed, token_id in enumerate(ids):
        shown += detokenizer.push(token_id)
        assert len(("Hello" + text).encode()[: num_pushed + 5]) - len(shown.encode()) <= (
            MAX_OPEN_BYTES + 6
        )
    assert shown + detokenizer.flush() == "Hello" + text + " world"


@pytest.mark.parametrize("text", ["🦙日", "é日", "aé日🦙", "é" * 7 + "日"])
def test_a_long_run_is_broken_between_characters(text):
    ids = [333, *_utf8_ids(SENTENCEPIECE, text * 30), 338]
    assert "".join(_pieces(SENTENCEPIECE, ids)) == "Hello" + text * 30 + " world"


def test_invalid_byte_tokens_are_not_held_for_ever():
    ids = [333, *[min(SENTENCEPIECE.byte_ids) + 0xFF] * 200, 338]
    pieces = _pieces(SENTENCEPIECE, ids)
    assert "".join(pieces) == "Hello" + "\ufffd" * 200 + " world"
    assert "".join(pieces[:150]).count("\ufffd") >= 150 - MAX_OPEN_BYTES - 2


def test_control_tokens_give_no_text_and_end_no_run_of_bytes():
    first, *rest = _utf8_ids(SENTENCEPIECE, "日")
    assert "".join(_pieces(SENTENCEPIECE, [333, first, 2, *rest, 338])) == "Hello日 world"
    assert _pieces(BYTE_LEVEL, [1, 1, 261, 1, 262]) == ["", "", "hello", "", " w", ""]


def test_hundreds_of_control_tokens_do_not_make_a_word_lose_its_space():
    ids = [333, *[2] * 2000, 338]
    assert "".join(_pieces(SENTENCEPIECE, ids)) == "Hello world"
    assert "".join(_pieces(SENTENCEPIECE, [*[2] * 2000, 333, 338])) == "Hello world"


def test_control_tokens_inside_a_character_or_after_a_first_space_change_nothing():
    first, *rest = BYTE_LEVEL.encode("日", add_special_tokens=False)
    ids = [261, first, *[1] * 500, *rest]
    assert "".join(_pieces(BYTE_LEVEL, ids)) == BYTE_LEVEL.decode(ids) == "hello日"
    ids = [259, *[2] * 500, 333]
    assert "".join(_pieces(SENTENCEPIECE, ids)) == SENTENCEPIECE.decode(ids) == " Hello"


def test_the_work_for_a_token_does_not_grow_with_the_answer():
    num_ids = 0

    def decode(ids):
        nonlocal num_ids
        num_ids += len(ids)
        return SENTENCEPIECE.decode(ids)

    detokenizer = IncrementalDetokenizer(decode, (), SENTENCEPIECE.byte_ids)
    ids = [333, 338, 259, *_utf8_ids(SENTENCEPIECE, "日"), 340, 2, 13] * 500
    for token_id in ids:
        detokenizer.push(token_id)
    assert num_ids / len(ids) < 40


ANY_SENTENCEPIECE = st.lists(
    st.one_of(
        st.integers(0, 340),
        st.sampled_from([333, 338, 259, 339, 2]),
        st.integers(min(SENTENCEPIECE.byte_ids), max(SENTENCEPIECE.byte_ids)),
    ),
    max_size=200,
).filter(lambda ids: _longest_byte_run(SENTENCEPIECE, ids) <= MAX_OPEN_BYTES)
ANY_BYTE_LEVEL = st.lists(
    st.one_of(st.integers(0, 263), st.sampled_from([1, 261, 262, 34])), max_size=200
)
MIXED_TEXT = st.lists(
    st.sampled_from(["Hello", " world", "日本", "🦙", "  ", "\n", "a", " hello", "ü", "\ufffd"]),
    max_size=60,
).map("".join)


@settings(max_examples=300, deadline=None)
@given(ANY_SENTENCEPIECE)
def test_any_sentencepiece_ids_stream_to_what_they_decode_to(ids):
    assert "".join(_pieces(SENTENCEPIECE, ids)) == SENTENCEPIECE.decode(ids)


@settings(max_examples=300, deadline=None)
@given(ANY_BYTE_LEVEL)
def test_any_byte_level_ids_stream_to_what_they_decode_to(ids):
    assert "".join(_pieces(BYTE_LEVEL, ids)) == BYTE_LEVEL.decode(ids)


@settings(max_examples=150, deadline=None)
@given(ANY_BYTE_LEVEL, ANY_BYTE_LEVEL)
def test_with_a_context_only_what_follows_it_is_returned(context, ids):
    context = [*context, 261]  # a prompt ends with a whole character
    whole = BYTE_LEVEL.decode([*context, *ids])
    assert BYTE_LEVEL.decode(context) + "".join(_pieces(BYTE_LEVEL, ids, context)) == whole


@settings(max_examples=150, deadline=None)
@given(MIXED_TEXT)
def test_whole_text_is_shown_without_ever_half_a_character(text):
    for tokenizer in (BYTE_LEVEL, SENTENCEPIECE):
        ids = tokenizer.encode(text, add_special_tokens=False)
        pieces = _pieces(tokenizer, ids)
        if _longest_byte_run(tokenizer, ids) <= MAX_OPEN_BYTES:
            assert "".join(pieces) == tokenizer.decode(ids)
        assert "".join(pieces).count("\ufffd") == text.count("\ufffd")


def test_flush_with_nothing_left_is_empty():
    detokenizer = IncrementalDetokenizer(BYTE_LEVEL.decode)
    assert detokenizer.push(261) == "hello"
    assert detokenizer.flush() == ""
    assert detokenizer.flush() == ""


def test_a_token_takes_microseconds():
    ids = BYTE_LEVEL.encode("hello w hello " * 500, add_special_tokens=False)
    detokenizer = IncrementalDetokenizer(BYTE_LEVEL.decode)
    start = time.process_time()
    for token_id in ids:
        detokenizer.push(token_id)
    assert (time.process_time() - start) / len(ids) < 0.0005

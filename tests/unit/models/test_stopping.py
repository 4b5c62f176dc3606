"""Stop strings end an answer wherever tokens are cut, and are never shown."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.models.stopping import StopStrings


def _reference(text, strings):
    """What is right, seen from the whole text: the match that ends first; of those, the longest."""
    ends = [
        (text.index(stop) + len(stop), -len(stop), stop)
        for stop in strings
        if stop and stop in text
    ]
    if not ends:
        return text, None
    end, _, stop = min(ends)
    return text[: end - len(stop)], stop


def _run(pieces, strings):
    watcher = StopStrings(strings)
    shown = ""
    for piece in pieces:
        result = watcher.push(piece)
        shown += result.text
        if result.matched is not None:
            assert watcher.matched == result.matched
            return shown, result.matched
    return shown + watcher.flush(), watcher.matched


def test_what_may_be_the_beginning_of_a_stop_string_is_held_back():
    watcher = StopStrings(["END"])
    assert watcher.push("the EN").text == "the "
    assert watcher.push("EMY is").text == "ENEMY is"
    assert watcher.push(" E").text == " "
    assert watcher.flush() == "E"
    assert watcher.flush() == ""


def test_a_stop_string_over_three_tokens_ends_the_answer_and_is_not_shown():
    watcher = StopStrings(["\nUser:"])
    assert watcher.push("Paris.\nUs").text == "Paris."
    assert watcher.push("e").text == ""
    result = watcher.push("r: and more")
    assert (result.text, result.matched) == ("", "\nUser:")


def test_nothing_is_shown_after_the_end():
    watcher = StopStrings(["x"])
    assert watcher.push("axb").text == "a"
    result = watcher.push("cde")
    assert (result.text, result.matched, watcher.flush()) == ("", "x", "")


@pytest.mark.parametrize(
    ("strings", "text", "shown", "matched"),
    [
        (["bc", "abcd"], "xabcd", "xa", "bc"),  # complete first
        (["bcd", "abcd"], "xabcd", "x", "abcd"),  # complete at the same letter: the longest
        (["b", "a"], "xxab", "xx", "a"),
        (["aab"], "aaab", "a", "aab"),  # overlaps itself
        (["aabaaac"], "aabaaabaaac", "aaba", "aabaaac"),
        (["ababc"], "abababc", "ab", "ababc"),
        (["", "b"], "abc", "a", "b"),
        ([""], "abc", "abc", None),
        ([], "abc", "abc", None),
        (["b", "b"], "abc", "a", "b"),
        (["🦙"], "a🦙b", "a", "🦙"),
    ],
)
def test_the_earliest_match_wins_however_the_text_is_cut(strings, text, shown, matched):
    assert _run([text], strings) == (shown, matched)
    assert _run(list(text), strings) == (shown, matched)
    assert _run(["", text[:2], "", text[2:], ""], strings) == (shown, matched)


LETTERS = st.text(alphabet="ab\n🦙", max_size=40)


@settings(max_examples=500, deadline=None)
@given(st.lists(LETTERS, max_size=12), st.lists(st.text(alphabet="ab\n🦙", max_size=5), max_size=4))
def test_any_cutting_gives_what_the_whole_text_gives(pieces, strings):
    assert _run(pieces, strings) == _reference("".join(pieces), strings)


@settings(max_examples=200, deadline=None)
@given(st.lists(LETTERS, max_size=12), st.lists(st.text("ab", min_size=1, max_size=5), max_size=4))
def test_no_more_is_held_back_than_may_become_a_stop_string(pieces, strings):
    watcher = StopStrings(strings)
    text = shown = ""
    for piece in pieces:
        text += piece
        result = watcher.push(piece)
        if result.matched is not None:
            return
        shown += result.text
        held = text[len(shown) :]
        assert shown + held == text
        assert held == "" or any(stop.startswith(held) for stop in strings)

"""A chat that has become too long loses its oldest turns, and never its system prompt."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cli.chat_command import without_oldest_turn


def chat(roles):
    names = {"s": "system", "u": "user", "a": "assistant"}
    return [{"role": names[role], "content": str(i)} for i, role in enumerate(roles)]


def left(roles):
    kept = without_oldest_turn(chat(roles))
    return None if kept is None else [m["content"] for m in kept]


@pytest.mark.parametrize(
    ("roles", "expected"),
    [
        ("suau", ["0", "3"]),
        ("uau", ["2"]),
        ("suauau", ["0", "3", "4", "5"]),
        ("uauau", ["2", "3", "4"]),
        ("su", None),
        ("u", None),
        ("s", None),
        ("", None),
        ("uu", ["1"]),
        ("suu", ["0", "2"]),
    ],
)
def test_the_oldest_question_and_its_answer_go_together(roles, expected):
    assert left(roles) == expected


@given(has_system=st.booleans(), num_turns=st.integers(0, 12))
def test_every_chat_shrinks_to_its_last_question(has_system, num_turns):
    """One turn at a time, and in the end nothing more can be left out."""
    messages = chat("s" * has_system + "ua" * num_turns + "u")
    last, seen = messages[-1], 0
    while (shorter := without_oldest_turn(messages)) is not None:
        assert len(shorter) == len(messages) - 2
        assert shorter[-1] == last
        assert (shorter[0]["role"] == "system") == has_system
        messages, seen = shorter, seen + 1
    assert seen == num_turns
    assert len(messages) == has_system + 1


def test_the_chat_itself_is_not_changed():
    messages = chat("suau")
    before = [dict(m) for m in messages]
    without_oldest_turn(messages)
    assert messages == before

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.safe_text import one_line, shown, without_unseen


@pytest.mark.parametrize(
    "hiding",
    [
        "\u202e", "\u202a", "\u2066", "\u2069", "\u200e", "\u200f", "\u061c",  # turn text round
        "\u200b", "\u2060", "\ufeff", "\u00ad", "\u3164", "\U000e0041",  # take no room
        "\x1b", "\x07", "\x08", "\x7f", "\x9b",  # are obeyed by terminals
        "\u2028", "\u2029", "\x0b", "\x0c", "\x85", "\r",  # end lines unseen
    ],
)  # fmt: skip
def test_what_hides_is_shown_and_is_not_copied(hiding):
    text = f"a{hiding}b"
    assert hiding not in shown(text)
    assert len(shown(text)) > 2
    assert without_unseen(text) == "ab"


@pytest.mark.parametrize(
    "text", ["a\nb\tc", "نص شالوم שלום", "👨‍👩‍👧 ❤️", "क्‍ष می‌خواهم", "你好，世界！", "é à ñ"]
)
def test_what_people_write_stays_as_it_is(text):
    assert shown(text) == text
    assert without_unseen(text) == text


def test_data_piled_behind_a_letter_is_shown():
    smuggled = "😀" + "\ufe00\ufe01\ufe02" + "x" + "\u200d\u200c\u200d"
    assert shown(smuggled).count("⟦") == 4
    assert shown("a" + "\U000e0101" * 5).count("⟦") == 5


@given(st.text())
def test_nothing_unseen_is_left_of_any_text(text):
    for char in shown(text) + without_unseen(text):
        assert (
            char in "\n\t\u200c\u200d"
            or unicodedata.category(char) not in {"Cc", "Cf", "Cs"}
            or (char in _ARABIC_SIGNS)
        )


_ARABIC_SIGNS = {  # signs of writing that stand before numbers, visible in their scripts
    chr(code)
    for code in (*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD)
} | {chr(code) for code in (*range(0x13430, 0x13440), *range(0x1BCA0, 0x1BCA4))}


@given(st.text(max_size=2000))
def test_a_line_is_one_line_and_not_long(text):
    line = one_line(text, 40)
    assert len(line) <= 40
    assert len(line.splitlines()) <= 1

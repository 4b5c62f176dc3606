"""Text from elsewhere does nothing to a terminal, and columns line up whatever is in them."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cli.shown_text import clipped, padded, printable, table, width, without_controls

WIDE = "厨房のPC"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Kitchen", "Kitchen"),
        ("\x1b[2Jgone", " [2Jgone"),
        ("two\nlines\r\tand", "two lines  and"),
        ("\u202eright to left", " right to left"),
        ("\x9b31m", " 31m"),
        ("a\u200db", "a\u200db"),
        ("\ud83d", " "),
        ("日本 🙂", "日本 🙂"),
    ],
)
def test_what_a_terminal_would_obey_becomes_a_space(text, shown):
    assert printable(text) == shown


@given(st.text())
def test_no_text_at_all_gets_a_control_through(text):
    assert all(unicodedata.category(c) not in {"Cc", "Cs", "Zl", "Zp"} for c in printable(text))
    kept = without_controls(text)
    assert all(c in "\n\t" or unicodedata.category(c) != "Cc" for c in kept)


def test_an_answer_keeps_its_lines_and_tabs():
    assert without_controls("a\n\tb\x1b]0;title\x07c") == "a\n\tb]0;titlec"


@pytest.mark.parametrize(
    ("text", "columns"), [("abc", 3), (WIDE, 8), ("é", 1), ("e\u0301", 1), ("", 0), ("🙂", 2)]
)
def test_the_width_is_the_terminals(text, columns):
    assert width(text) == columns


@pytest.mark.parametrize(
    ("text", "columns", "shown"),
    [("abcdef", 6, "abcdef"), ("abcdef", 5, "abcd~"), (WIDE, 8, WIDE), (WIDE, 6, "厨房~")],
)
def test_what_is_too_wide_is_cut_and_marked(text, columns, shown):
    assert clipped(text, columns) == shown


@given(st.text(), st.integers(1, 40))
def test_nothing_is_wider_than_was_asked(text, columns):
    assert width(clipped(printable(text), columns)) <= columns


def test_columns_line_up_with_wide_letters():
    rows = [("PC", "free", "state"), (WIDE, "9.0", "online"), ("Büro", "10.5", "gone")]
    lines = table(rows, right=(1,))
    assert lines == [
        "PC        free  state",
        "厨房のPC   9.0  online",
        "Büro      10.5  gone",
    ]
    lasts = [row[-1] for row in rows]
    begins = {width(line[: line.index(last)]) for line, last in zip(lines, lasts, strict=True)}
    assert begins == {16}


def test_no_row_gives_no_line():
    assert table([]) == []


def test_padding_never_cuts():
    assert padded("abc", 2) == "abc"
    assert padded("abc", 5, to_right=True) == "  abc"

"""Text from elsewhere as a terminal may show it, and columns that line up; pure."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_JOINERS = "\u200c\u200d"  # between letters of some scripts; they take no place
_ZERO_WIDTH = {"Mn", "Me", "Cf"}  # categories: marks that stand on the letter before
_GAP = "  "


def printable(text: str) -> str:
    """Return text on one line, with nothing in it that a terminal would obey.

    Control characters, line ends and marks that turn the writing round become spaces.

    Args:
        text: As a peer, a file or a model wrote it.
    """
    return "".join(c if c.isprintable() or c in _JOINERS else " " for c in text)


def without_controls(text: str) -> str:
    """Return an answer's text without what a terminal would obey; line ends and tabs stay.

    Args:
        text: As a model wrote it.
    """
    return "".join(c for c in text if c in "\n\t" or unicodedata.category(c) != "Cc")


def width(text: str) -> int:
    """Return how many columns text takes on a terminal.

    Args:
        text: Printable.
    """
    return sum(map(_columns, text))


def _columns(char: str) -> int:
    if unicodedata.category(char) in _ZERO_WIDTH:
        return 0
    return 2 if unicodedata.east_asian_width(char) in {"W", "F"} else 1


def clipped(text: str, columns: int) -> str:
    """Return text that takes so many columns at most; what is cut off is shown by ``~``.

    Args:
        text: Printable.
        columns: 1 or more.
    """
    if width(text) <= columns:
        return text
    kept, taken = [], 1  # of the mark
    for char in text:
        taken += _columns(char)
        if taken > columns:
            break
        kept.append(char)
    return "".join(kept) + "~"


def padded(text: str, columns: int, *, to_right: bool = False) -> str:
    """Return text with spaces up to so many columns.

    Args:
        text: Printable.
        columns: The least it takes then.
        to_right: Put the spaces before it.
    """
    spaces = " " * max(0, columns - width(text))
    return spaces + text if to_right else text + spaces


def table(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> list[str]:
    """Return rows whose columns line up; the last column is as long as it is.

    Args:
        rows: Printable cells; the header is a row like the others. All of one length.
        right: Columns whose cells stand to the right.
    """
    if not rows:
        return []
    widths = [max(map(width, column)) for column in zip(*rows, strict=True)]
    last = len(widths) - 1
    return [
        _GAP.join(
            cell
            if number == last and number not in right
            else padded(cell, widths[number], to_right=number in right)
            for number, cell in enumerate(row)
        ).rstrip()
        for row in rows
    ]

"""Which way a line is written: as its first letter is. Code says nothing of it. Pure."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from app.chat.markdown.items import Run

Direction = Literal["left-to-right", "right-to-left"]

LOOKED_AT = 2000  # characters: who has said nothing by then is written as we write
_CODE_SPAN = re.compile(r"`[^`]*`")
_RIGHT = {"R", "AL"}
_MAYBE_RIGHT = re.compile(
    "[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff]"
)


def has_right_to_left(text: str) -> bool:
    """Return whether any letter may be written from right to left.

    Args:
        text: Any.
    """
    return _MAYBE_RIGHT.search(text) is not None


def direction_of(text: str) -> Direction:
    """Return the direction of the first letter that has one; ours where none has.

    Args:
        text: A line.
    """
    if not has_right_to_left(text):
        return "left-to-right"
    for char in text[:LOOKED_AT]:
        kind = unicodedata.bidirectional(char)
        if kind == "L":
            return "left-to-right"
        if kind in _RIGHT:
            return "right-to-left"
    return "left-to-right"


def direction_of_runs(runs: Iterable[Run]) -> Direction:
    """Return the direction of a line whose code is known.

    Args:
        runs: Of the line.
    """
    return direction_of_plain("".join(run.text for run in runs if not run.code))


def direction_of_plain(line: str) -> Direction:
    """Return the direction of a line as a person typed it: what stands in backticks is code.

    Args:
        line: Without its end.
    """
    return direction_of(_CODE_SPAN.sub("", line[:LOOKED_AT]))

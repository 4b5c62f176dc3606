"""What a text is made of, once its Markdown is read. Plain data.

A text is a flat row of items, each drawn by itself, so that a growing text only ever changes at
its end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Run:
    """Letters that look alike.

    Attributes:
        text: As the model wrote it: whoever draws it makes it safe.
        bold: Strong.
        italic: Emphasized.
        struck: Crossed out.
        code: Of a program: always written from left to right.
        link: Where it leads; empty for nowhere.
    """

    text: str
    bold: bool = False
    italic: bool = False
    struck: bool = False
    code: bool = False
    link: str = ""


@dataclass(frozen=True, slots=True)
class Marker:
    """What stands before an item of a list: its number, or a dot for None."""

    number: int | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a paragraph, a heading or a list.

    Attributes:
        runs: Its letters.
        heading: 1 to 6; 0 for none.
        depth: Of the list it stands in; 0 for none.
        marker: Only on an item's first line.
        quoted: How many quotations it stands in.
        ends: The paragraph ends with it: there is room below.
    """

    runs: tuple[Run, ...]
    heading: int = 0
    depth: int = 0
    marker: Marker | None = None
    quoted: int = 0
    ends: bool = True


@dataclass(frozen=True, slots=True)
class Code:
    """A block of code.

    Attributes:
        text: Without a last line end.
        language: As the model named it; may be empty, or anything.
        depth: Of the list it stands in.
        is_whole: Nothing more comes.
    """

    text: str
    language: str = ""
    depth: int = 0
    is_whole: bool = True


@dataclass(frozen=True, slots=True)
class Table:
    """A table: the first row is its head; every row has as many cells."""

    rows: tuple[tuple[tuple[Run, ...], ...], ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """A line across."""


Item: TypeAlias = Line | Code | Table | Rule

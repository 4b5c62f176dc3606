"""Long texts in a message that is being written: each stands as one sign, and is sent whole. Pure.

A text editor of Qt's takes a quarter of a second to lay out a line of 100,000 letters, and as long
again for every key after it. What is that long is kept beside the editor.
"""

from __future__ import annotations

import re
from typing import NamedTuple

MAX_TYPED = 8000  # characters in the editor; a longer paste becomes a sign
MAX_LINES = 300
MAX_LINE = 2000  # characters of one line
SIGN = "\ufffc"  # what an object has as its letter in a document of Qt's
_NAME = "pasted:"


class Pasted(NamedTuple):
    """A long text.

    Attributes:
        number: Names it in its message.
        text: All of it.
    """

    number: int
    text: str

    @property
    def num_lines(self) -> int:
        """Lines it has."""
        return self.text.count("\n") + 1

    @property
    def name(self) -> str:
        """Of its sign in the document."""
        return f"{_NAME}{self.number}"


class PastedTexts:
    """Those of one message."""

    def __init__(self) -> None:
        """Begin with none."""
        self._texts: dict[int, Pasted] = {}
        self._next = 1

    def add(self, text: str) -> Pasted:
        """Keep a text.

        Args:
            text: As it was pasted.
        """
        pasted = Pasted(self._next, text)
        self._texts[self._next] = pasted
        self._next += 1
        return pasted

    def named(self, name: str) -> Pasted | None:
        """Return a text by its sign's name; None for a sign of something else.

        Args:
            name: As it stands in the document.
        """
        number = name.removeprefix(_NAME)
        return self._texts.get(int(number)) if number.isdecimal() else None

    def clear(self) -> None:
        """Forget all."""
        self._texts.clear()


def is_long(text: str) -> bool:
    """Return whether a text must not go into the editor.

    Args:
        text: To be pasted.
    """
    if len(text) > MAX_TYPED or text.count("\n") > MAX_LINES:
        return True
    return len(text) > MAX_LINE and any(len(line) > MAX_LINE for line in text.split("\n"))


_LINE_ENDS = re.compile("\r\n?|\u2028|\u2029|\x85|\x0b|\x0c")


def plain(text: str) -> str:
    """Return a text with line ends as everybody here has them, and without signs of ours.

    Args:
        text: As another program gave it.
    """
    return _LINE_ENDS.sub("\n", text).replace(SIGN, "").replace("\x00", "")

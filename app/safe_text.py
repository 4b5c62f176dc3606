"""Text from elsewhere as a window may show it: nothing hides, nothing turns the writing round.

A model, a peer or a file may write characters that are obeyed instead of shown: direction
overrides, invisible tags, terminal controls. They are shown as what they are. Pure.
"""

from __future__ import annotations

import re

# Shown as a name: controls that turn text round, have no width, or end a line unseen.
_DIRECTION = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_INVISIBLE = (
    "\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u2028\u2029\u2060-\u2065\u206a-\u206f"
    "\u3164\ufeff\ufff0-\ufffc\uffa0\U000e0000-\U000e0fff\U0001d173-\U0001d17a\u2800"
)
_CONTROL = "\x00-\x08\x0b-\x1f\x7f-\x9f"
# A joiner or a choice of form stands behind a letter; a second one behind it only carries data.
_PILED = "(?<=[\u200c\u200d])[\u200c\u200d]|(?<=[\ufe00-\ufe0f])[\ufe00-\ufe0f]"
_NAMED = re.compile(f"[{_DIRECTION}{_INVISIBLE}\ud800-\udfff]|{_PILED}")
_UNSEEN = re.compile(f"[{_CONTROL}{_DIRECTION}{_INVISIBLE}\ud800-\udfff]|{_PILED}")
_ALL_CONTROL = re.compile(f"[{_CONTROL}]")
_PICTURES = 0x2400  # control pictures: U+2400 is the picture of U+0000
_DELETE, _PICTURE_OF_DELETE = 0x7F, "\u2421"
_LONGEST_LINE = 240


def shown(text: str) -> str:
    """Return text with everything that hides or turns round replaced by a visible name.

    Line ends and tabs stay; so do the joiners that some scripts and emoji need.

    Args:
        text: As a model, a peer or a file wrote it.
    """
    if _UNSEEN.search(text) is None:
        return text
    return _NAMED.sub(_name, _ALL_CONTROL.sub(_picture, text.replace("\r\n", "\n")))


def one_line(text: str, longest: int = _LONGEST_LINE) -> str:
    """Return text as a title or a label shows it: on one line, not longer than a line.

    Args:
        text: As a person, a model or a peer wrote it.
        longest: Characters; what is longer ends in an ellipsis.
    """
    line = " ".join(shown(text[: longest * 4]).split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


def without_unseen(text: str) -> str:
    """Return text as it may be copied: what is seen, and nothing else.

    Args:
        text: As a model wrote it.
    """
    return _UNSEEN.sub("", text.replace("\r\n", "\n"))


def _name(match: re.Match[str]) -> str:
    return f"⟦U+{ord(match[0]):04X}⟧"


def _picture(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(_PICTURES + code)
    return _PICTURE_OF_DELETE if code == _DELETE else f"⟦U+{code:04X}⟧"

"""Pairing codes as people read and type them, and how long one is valid; pure."""

from __future__ import annotations

import unicodedata

DIGITS = 6
_GROUP = 3


def shown_code(code: str) -> str:
    """Return a code as it is read: ``482 915``.

    Args:
        code: Its digits.
    """
    return " ".join(code[at : at + _GROUP] for at in range(0, len(code), _GROUP))


def typed_code(text: str) -> str | None:
    """Return the code somebody typed; None if it is none.

    Blanks and hyphens do not matter, nor which script's digits they are.

    Args:
        text: As typed.
    """
    digits = []
    for char in text:
        if char.isspace() or char in "-\u2010\u2011\u2013.":
            continue
        value = unicodedata.decimal(char, None)
        if value is None:
            return None
        digits.append(str(value))
    return "".join(digits) if len(digits) == DIGITS else None


def time_left(until_s: float, now_s: float) -> str | None:
    """Return how long a code is valid: ``1:42``; None once it no longer is.

    Args:
        until_s: When it ends.
        now_s: On the same clock.
    """
    seconds = int(until_s - now_s + 0.999)
    return f"{seconds // 60}:{seconds % 60:02d}" if seconds > 0 else None

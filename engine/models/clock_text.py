"""Dates as a chat template asks for them: English whatever the locale, the same on every system."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

_DIRECTIVE = re.compile(r"%(-?)([A-Za-z%])")
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
_COMPOSED = {  # what these mean in the C locale
    "c": "%a %b %e %H:%M:%S %Y",
    "x": "%m/%d/%y",
    "X": "%H:%M:%S",
    "r": "%I:%M:%S %p",
    "D": "%m/%d/%y",
    "F": "%Y-%m-%d",
    "R": "%H:%M",
    "T": "%H:%M:%S",
}


def strftime_english(now: datetime, layout: str) -> str:
    """Format a time by a strftime layout, with English names.

    Only single directives go through the C library: it would translate the names, and under the
    C locale lose every letter of the layout that isn't ASCII.

    Args:
        now: The time.
        layout: As for ``datetime.strftime``; ``%-d`` works on every system.

    Returns:
        The text.
    """
    return _DIRECTIVE.sub(lambda match: _directive(now, match[1], match[2]), layout)


def _directive(now: datetime, flag: str, letter: str) -> str:
    if letter in _COMPOSED:
        return strftime_english(now, _COMPOSED[letter])
    day, month = _DAYS[now.weekday()], _MONTHS[now.month - 1]
    names = {
        "a": day[:3],
        "A": day,
        "b": month[:3],
        "h": month[:3],
        "B": month,
        "p": "AM" if now.hour < 12 else "PM",
        "e": f"{now.day:2d}",
        "%": "%",
    }
    if letter in names:
        return names[letter].lstrip(" ") if flag else names[letter]
    text = now.strftime(f"%{letter}")
    return (text.lstrip("0") or "0") if flag else text

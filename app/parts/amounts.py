"""Bytes and times as people read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.wording.wording import Wording

_UNITS = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))
_MINUTE_S = 60
_HOUR_S = 3600


def file_size(num_bytes: float) -> str:
    """Return a size of files: ``8.4 GB``, ``60 MB``.

    Args:
        num_bytes: 0 or more.
    """
    for unit, size in _UNITS:
        if num_bytes >= size:
            amount = num_bytes / size
            return f"{amount:.1f} {unit}" if amount < 100 else f"{amount:.0f} {unit}"
    return f"{num_bytes:.0f} B"


def time_text(wording: Wording, seconds: float) -> str:
    """Return a time as roughly as it is known: ``4 s``, ``2 min 5 s``, ``1 h 20 min``.

    Args:
        wording: In the language that is chosen.
        seconds: 0 or more.
    """
    whole = max(0, round(seconds))
    if whole < _MINUTE_S:
        return wording.text("models.time_seconds", s=whole)
    if whole < _HOUR_S:
        return wording.text("models.time_minutes", m=whole // _MINUTE_S, s=whole % _MINUTE_S)
    minutes = whole % _HOUR_S // _MINUTE_S
    return wording.text("models.time_hours", h=whole // _HOUR_S, m=minutes)

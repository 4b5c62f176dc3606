"""Bytes and times as people read them; pure."""

from __future__ import annotations

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


def time_text(seconds: float) -> str:
    """Return a time as roughly as it is known: ``4 s``, ``2 min 5 s``, ``1 h 20 min``.

    Args:
        seconds: 0 or more.
    """
    whole = max(0, round(seconds))
    if whole < _MINUTE_S:
        return f"{whole} s"
    if whole < _HOUR_S:
        return f"{whole // _MINUTE_S} min {whole % _MINUTE_S} s"
    return f"{whole // _HOUR_S} h {whole % _HOUR_S // _MINUTE_S} min"

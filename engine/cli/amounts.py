"""Bytes, rates and times as people read them; pure."""

from __future__ import annotations

from typing import Literal

Unit = Literal["bytes", "layers", "steps"]

_MB = 1e6
_GB = 1e9
_MIB = 1 << 20
_GIB = 1 << 30
_MINUTE_S = 60
_HOUR_S = 3600


def memory(num_bytes: int) -> str:
    """Return an amount of memory: ``6.0 GiB``, ``430 MiB``.

    Args:
        num_bytes: 0 or more.
    """
    return f"{num_bytes / _GIB:.1f} GiB" if num_bytes >= _GIB else f"{num_bytes / _MIB:.0f} MiB"


def amount(value: float, unit: Unit) -> str:
    """Return how much was done: ``60.0 MB``, ``12``.

    Args:
        value: Of the unit.
        unit: Bytes become MB or GB; the others are counted.
    """
    if unit != "bytes":
        return f"{value:.0f}"
    return f"{value / _GB:.2f} GB" if value >= _GB else f"{value / _MB:.1f} MB"


def amount_of(done: int, total: int, unit: Unit) -> str:
    """Return how much of how much: ``60.0 MB of 130.0 MB``, ``3 of 30 layers``.

    Args:
        done: So far.
        total: In all; 0 where it isn't known.
        unit: Of both.
    """
    of = f" of {amount(total, unit)}" if total > 0 else ""
    return f"{amount(done, unit)}{of}" + ("" if unit == "bytes" else f" {unit}")


def rate(per_s: float, unit: Unit) -> str:
    """Return a rate: ``22.1 MB/s``, ``1.5 layers/s``.

    Args:
        per_s: Of the unit, in a second.
        unit: What is counted.
    """
    if unit == "bytes":
        return f"{amount(per_s, unit)}/s"
    return f"{per_s:.1f} {unit}/s"


def duration(seconds: float) -> str:
    """Return a time as exactly as it matters: ``3.2 s``, ``45 s``, ``2 min 5 s``, ``3 h 20 min``.

    Args:
        seconds: 0 or more.
    """
    whole = round(seconds)
    if seconds < 10 and round(seconds, 1) < 10:
        return f"{seconds:.1f} s"
    if whole < _MINUTE_S:
        return f"{whole} s"
    if whole < _HOUR_S:
        return f"{whole // _MINUTE_S} min {whole % _MINUTE_S} s"
    return f"{whole // _HOUR_S} h {whole % _HOUR_S // _MINUTE_S} min"


def time_left(seconds: float) -> str:
    """Return what remains, roughly: nobody can tell to a tenth of a second.

    Args:
        seconds: 0 or more.
    """
    return duration(max(1.0, float(round(seconds)))).replace(".0 s", " s")

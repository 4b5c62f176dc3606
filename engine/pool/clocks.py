"""Notices that this PC slept, by its clocks; pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Clocks:
    """One reading of both clocks, in seconds: Linux stops the monotonic one during sleep."""

    monotonic_s: float
    wall_s: float


def has_slept(before: Clocks, now: Clocks, longest_s: float) -> bool:
    """Return whether more time went by than a process that runs can explain.

    A wall clock that is set forward looks the same, and a needless announcement harms nobody.

    Args:
        before: An earlier reading.
        now: A later one.
        longest_s: Seconds that may lie between them.
    """
    steps = (now.monotonic_s - before.monotonic_s, now.wall_s - before.wall_s)
    return max(steps) > longest_s

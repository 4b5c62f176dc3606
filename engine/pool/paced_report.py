"""Progress, told no more often than people can read it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.messages.deployment import Step

Report = Callable[["Step", int, int, str], None]  # step, done, total, unit

REPORT_INTERVAL_S = 0.1


class PacedReport:
    """Passes on what is new: the first and the last word of a step, and ten a second between."""

    def __init__(self, report: Report, clock: Callable[[], float]) -> None:
        """Begin with nothing told.

        Args:
            report: Told of step, done, total and unit.
            clock: Seconds, from anywhere.
        """
        self._report = report
        self._clock = clock
        self._last: tuple[Step, int, int] | None = None
        self._quiet_until = 0.0

    def __call__(self, step: Step, done: int, total: int, unit: str) -> None:
        """Pass it on, if it is time for it.

        Args:
            step: What is being done.
            done: Of it, so much.
            total: All of it; 0 while it isn't known.
            unit: "bytes", "layers" or "steps".
        """
        told = (step, done, total)
        if told == self._last:
            return
        now = self._clock()
        is_first = self._last is None or self._last[0] != step
        is_last = done >= total > 0
        if is_first or is_last or now >= self._quiet_until:
            self._last = told
            self._quiet_until = now + REPORT_INTERVAL_S
            self._report(step, done, total, unit)

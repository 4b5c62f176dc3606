"""What was measured lately, and how it is drawn as a line; pure."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

KEPT = 300  # five minutes at one a second


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement.

    Attributes:
        at_s: On a clock that never goes back.
        value: Of what is drawn; None where nothing was measured: the line has a gap there.
    """

    at_s: float
    value: float | None


class History:
    """The latest measurements of one thing; older ones make room."""

    def __init__(self, kept: int = KEPT) -> None:
        """Begin with none.

        Args:
            kept: How many at most.
        """
        self._samples: deque[Sample] = deque(maxlen=kept)

    def __len__(self) -> int:
        return len(self._samples)

    def add(self, at_s: float, value: float | None) -> None:
        """Take one; what is no number counts as a gap.

        Args:
            at_s: Not before the last one's, or it is left out.
            value: 0 or more; None for a gap.
        """
        if self._samples and at_s < self._samples[-1].at_s:
            return
        is_number = value is not None and math.isfinite(value) and value >= 0
        self._samples.append(Sample(at_s, value if is_number else None))

    @property
    def samples(self) -> tuple[Sample, ...]:
        """The oldest first."""
        return tuple(self._samples)

    @property
    def latest(self) -> float | None:
        """The newest one that is no gap."""
        return next((s.value for s in reversed(self._samples) if s.value is not None), None)

    @property
    def largest(self) -> float | None:
        """Of those kept."""
        return max((s.value for s in self._samples if s.value is not None), default=None)

    def lines(self, now_s: float, span_s: float, top: float) -> list[list[tuple[float, float]]]:
        """Return the line in pieces, one after each gap; points from (0, 0) to (1, 1).

        Args:
            now_s: The right edge.
            span_s: From the left edge to the right one.
            top: The value of the upper edge, more than 0.
        """
        pieces: list[list[tuple[float, float]]] = [[]]
        for sample in self._samples:
            x = 1 - (now_s - sample.at_s) / span_s
            if sample.value is None:
                pieces.append([])
            elif 0 <= x <= 1:
                pieces[-1].append((x, min(1.0, sample.value / top)))
        return [piece for piece in pieces if piece]


def nice_top(largest: float | None) -> float:
    """Return a round number to end an axis with: 1, 2 or 5 times a power of ten.

    Args:
        largest: Of what is drawn; None or 0 for nothing yet.
    """
    if not largest or largest <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(largest))
    return next((step * power for step in (1, 2, 5) if largest <= step * power), 10 * power)

"""How fast something goes, and how long it will take: from what was seen of it; pure."""

from __future__ import annotations

from collections import deque

WINDOW_S = 8.0  # the rate is of this time: long enough to be calm, short enough to be true
LEAST_S = 0.5  # before that much was seen nothing is said


class Pace:
    """The pace of one step on one PC."""

    def __init__(self) -> None:
        """Begin; nothing was seen."""
        self._seen: deque[tuple[float, int]] = deque()

    def see(self, done: int, now_s: float) -> None:
        """Take note of how far it is.

        Args:
            done: So far; where it is less than before it has begun again.
            now_s: On a clock that never goes back.
        """
        if self._seen and done < self._seen[-1][1]:
            self._seen.clear()
        self._seen.append((now_s, done))
        while len(self._seen) > 2 and now_s - self._seen[1][0] >= WINDOW_S:
            self._seen.popleft()

    def rate_per_s(self, now_s: float) -> float | None:
        """Return how much is done in a second; None before enough was seen.

        Args:
            now_s: Not before what was seen last; a step that stands still becomes slower.
        """
        if not self._seen:
            return None
        began_s, at_first = self._seen[0]
        taken_s = now_s - began_s
        if taken_s < LEAST_S:
            return None
        return (self._seen[-1][1] - at_first) / taken_s


def seconds_left(done: int, total: int, rate_per_s: float | None) -> float | None:
    """Return how long the rest takes at that rate; None where nobody can tell.

    Args:
        done: So far.
        total: In all; 0 where it isn't known.
        rate_per_s: In a second.
    """
    if not rate_per_s or rate_per_s < 0 or total <= 0:
        return None
    return max(0, total - done) / rate_per_s

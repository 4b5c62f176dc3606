"""The median of the newest of a series of times: one that was disturbed does not count. Pure."""

from __future__ import annotations

from collections import deque

_REMEMBERED = 10


class TypicalTime:
    """Median of the newest times.

    Attributes:
        value: It, in seconds; 0 without any.
    """

    __slots__ = ("_newest", "value")

    def __init__(self) -> None:
        """Begin without any."""
        self.value = 0.0
        self._newest: deque[float] = deque(maxlen=_REMEMBERED)

    def add(self, seconds: float) -> None:
        """Take one more."""
        self._newest.append(seconds)
        self.value = sorted(self._newest)[(len(self._newest) - 1) // 2]

    @property
    def num(self) -> int:
        """Times that ``value`` is the median of, 10 at most."""
        return len(self._newest)

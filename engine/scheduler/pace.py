"""How much longer something takes than was reckoned. Pure.

What a choice is made by are costs measured one at a time, mostly when a stage was loaded. What they
come to together, on a PC that does other things as well, only the clock says.
"""

from __future__ import annotations

_MOST = 10.0  # times as long: a PC that slept is no slow one
_KEPT = 1.0 - 1.0 / 256  # of what is known, with each more that is
_KEPT_UNTRIED = 1.0 - 1.0 / 256


class Pace:
    """What the newest of some things took, over what they were reckoned to take."""

    def __init__(self, prior: float) -> None:
        """Begin with nothing seen.

        Args:
            prior: As many of them are taken to have been seen before.
        """
        self._prior = prior
        self._took = 0.0  # in things, at the speed that was reckoned
        self._num = 0.0

    def add(self, num: int, seconds: float, reckoned_s: float) -> None:
        """Take what some of them took.

        Args:
            num: 1 or more.
            seconds: For all of them.
            reckoned_s: For one, above 0.
        """
        kept = _KEPT**num
        self._took = kept * self._took + min(seconds / reckoned_s, _MOST * num)
        self._num = kept * self._num + num

    def fade(self) -> None:
        """Forget a little: time went by of which this says nothing."""
        self._took *= _KEPT_UNTRIED
        self._num *= _KEPT_UNTRIED

    def ratio(self, before: float = 1.0) -> float:
        """Return above 1 for what took longer than reckoned.

        Args:
            before: What it is taken to have been before any was seen.
        """
        return (self._took + self._prior * before) / (self._num + self._prior)

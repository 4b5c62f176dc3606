"""The light that goes round the ring: once for a real pass, slowed to what an eye can follow; pure.

A pass takes milliseconds and many come in a second, so not each has a round of its own: while the
light is under way further passes only keep it going, and it stops at the heart of the round after
the last one.
"""

from __future__ import annotations

from dataclasses import dataclass

STATION_S = 0.32  # from one petal to the next
LONGEST_ROUND_S = 3.2
GOES_ON_S = 0.6  # after the last pass no new round begins


@dataclass(frozen=True, slots=True)
class Spot:
    """Where the light is.

    Attributes:
        link: Number of the link it is on; equal to the number of links while it is in the heart.
        share: Of the way along it, 0 to 1.
    """

    link: int
    share: float


class TravellingLight:
    """One light."""

    def __init__(self) -> None:
        """Begin at rest."""
        self._round_from_s: float | None = None
        self._last_pass_s = 0.0

    def token_passed(self, now_s: float) -> None:
        """Take note of a real pass.

        Args:
            now_s: On a clock that never goes back.
        """
        self._last_pass_s = now_s
        if self._round_from_s is None:
            self._round_from_s = now_s

    def stop(self) -> None:
        """Go out at once."""
        self._round_from_s = None

    @property
    def is_lit(self) -> bool:
        """Whether it is under way."""
        return self._round_from_s is not None

    def spot(self, now_s: float, num_links: int) -> Spot | None:
        """Return where it is; None at rest.

        Args:
            now_s: Not before the last pass.
            num_links: Of the ring; 0 for a PC alone, whose light stays in the heart.
        """
        if self._round_from_s is None:
            return None
        stations = num_links + 1
        round_s = min(STATION_S * stations, LONGEST_ROUND_S)
        passed = (now_s - self._round_from_s) / round_s
        if passed >= 1:
            if now_s - self._last_pass_s > GOES_ON_S:
                self._round_from_s = None
                return None
            self._round_from_s += int(passed) * round_s
            passed -= int(passed)
        along = passed * stations
        link = min(int(along), num_links)
        return Spot(link, along - link)

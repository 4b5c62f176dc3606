"""How many rows a frame of decodes is filled up to, so that a device seldom meets another number.

A device that takes any shape prepares itself anew whenever the number of rows is another one than
in the pass before. Of a small model that is a fifth of a pass, and tokens with drafts, or users
who come and go, would pay it for nearly every frame. Frames are therefore filled up to a floor: of
the numbers that came of late, the one with which all of those frames would have taken least. What
passes and changes cost is seen as it goes, on every stage by itself. Pure.
"""

from __future__ import annotations

from collections import defaultdict, deque
from itertools import pairwise

from engine.typical_time import TypicalTime

MAX_WIDTH = 16  # rows: a token with the longest draft
_RECENT = 24  # frames
_CHOSEN_EVERY = 8  # frames
_MIN_CHANGES = 3  # that were timed
_KNOWN_FOR = 240  # frames; a PC may have been busy when a number was timed
_TRIED = 2  # frames in a row: the second one tells what the number costs without a change


class KeptWidth:
    """Chooses the number of rows of one stage's passes."""

    def __init__(self, least_rows: int) -> None:
        """Begin with nothing known: nothing is filled up beyond the least number.

        Args:
            least_rows: Of any pass.
        """
        self._least_rows = self._floor = least_rows
        self._recent: deque[int] = deque(maxlen=_RECENT)
        self._until_chosen = _CHOSEN_EVERY
        self._num_tried = _TRIED
        self._last = 0
        # Of passes with as many rows as the one before, and with another number.
        self._alike: defaultdict[int, TypicalTime] = defaultdict(TypicalTime)
        self._changed: defaultdict[int, TypicalTime] = defaultdict(TypicalTime)
        self._change = TypicalTime()
        self._num_passes = 0
        self._timed: dict[int, int] = {}  # the last pass with each number of rows

    def choose(self, num_rows: int) -> int:
        """Return how many rows to compute for a frame of decodes.

        Args:
            num_rows: That are wanted, 1 or more.

        Returns:
            As many or more; more than ``MAX_WIDTH`` only where so many are wanted.
        """
        wanted = max(num_rows, self._least_rows)
        if wanted > MAX_WIDTH:
            return wanted
        self._recent.append(wanted)
        self._until_chosen -= 1
        if self._until_chosen <= 0:
            self._until_chosen = _CHOSEN_EVERY
            self._choose_floor()
        if self._num_tried < _TRIED:
            self._num_tried += 1
            return max(self._recent)
        return max(wanted, self._floor)

    def _choose_floor(self) -> None:
        for num_rows, number in list(self._timed.items()):
            if self._num_passes - number > _KNOWN_FOR:
                del self._timed[num_rows]
                self._alike.pop(num_rows, None)
                self._changed.pop(num_rows, None)
        floors = sorted(set(self._recent))
        self._floor = self._least_rows
        if len(floors) == 1:
            return
        if self._change.num < _MIN_CHANGES or not self._alike[floors[-1]].num:
            self._num_tried = 0
            return
        self._floor = min(floors, key=self._recent_s)

    def _recent_s(self, floor: int) -> float:
        """Return how long the recent frames would have taken with a floor."""
        computed = [max(wanted, floor) for wanted in self._recent]
        num_changes = sum(a != b for a, b in pairwise(computed))
        return sum(map(self._pass_s, computed)) + num_changes * self._change.value

    def _pass_s(self, num_rows: int) -> float:
        """Return what a number of rows takes that came of late.

        One that was filled up whenever it came is taken to cost nothing, and so is tried.
        """
        if self._alike[num_rows].num:
            return self._alike[num_rows].value
        return max(self._changed[num_rows].value - self._change.value, 0.0)

    def took(self, num_rows: int, seconds: float) -> None:
        """Take how long a pass was.

        Args:
            num_rows: Of it, those that were put in included.
            seconds: Of the device.
        """
        is_change, self._last = num_rows != self._last, num_rows
        self._num_passes += 1
        if num_rows > MAX_WIDTH:
            return
        self._timed[num_rows] = self._num_passes
        if not is_change:
            self._alike[num_rows].add(seconds)
            return
        self._changed[num_rows].add(seconds)
        if self._alike[num_rows].num:
            self._change.add(max(seconds - self._alike[num_rows].value, 0.0))

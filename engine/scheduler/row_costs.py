"""What a pass costs by the number of its rows, as a stage measured it."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from operator import attrgetter
from typing import TYPE_CHECKING

from engine.domain import RowTime

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


_LEAST_S, _MOST_S = 1e-6, 1e4  # of a pass, on whatever device


class RowCosts:
    """Cost of a pass relative to that of one row, c(r): 1 for one row, never falling.

    Attributes:
        one_row_s: Seconds of a pass of one row.
        is_measured: Whether it is known what further rows cost.

    Between measured numbers of rows it is a straight line. Behind the last one the last two's goes
    on, or where that is flatter, the first and the last one's: kernels take rows by the block, and
    behind a block that is full, another one begins. Nothing measured means that every row costs as
    much as the first, the least that favours guessing.
    """

    def __init__(self, measured: Iterable[RowTime] = ()) -> None:
        """Take what was measured.

        Args:
            measured: Of different numbers of rows, in any order. Where one row is not among them,
                or one of them can be no measurement, nothing counts as measured.
        """
        times = sorted(measured, key=attrgetter("rows"))
        if not _can_be(times):
            times = []
        self.is_measured = len(times) > 1 and times[0].rows == 1
        if not times or times[0].rows != 1:
            times = [RowTime(1, 1.0), RowTime(2, 2.0)]
        # More rows never cost less, and what disturbs a measurement makes it longer: a time above
        # that of more rows is wrong, and not the other one.
        seconds = list(accumulate((time.seconds for time in reversed(times)), min))[::-1]
        self.one_row_s = seconds[0]
        self._known: dict[int, float] = {}
        self._rows = [time.rows for time in times]
        self._costs = [each / self.one_row_s for each in seconds]

    def cost(self, num_rows: int) -> float:
        """Return c(r).

        Args:
            num_rows: 1 or more.
        """
        known = self._known.get(num_rows)
        if known is None:
            known = self._known[num_rows] = self._between(num_rows)
        return known

    def _between(self, num_rows: int) -> float:
        if len(self._rows) == 1:
            return self._costs[0] * num_rows
        after = min(max(bisect_left(self._rows, num_rows), 1), len(self._rows) - 1)
        rows, costs = self._rows[after - 1 : after + 1], self._costs[after - 1 : after + 1]
        slope = (costs[1] - costs[0]) / (rows[1] - rows[0])
        if num_rows > rows[1]:
            slope = max(slope, (costs[1] - 1) / (rows[1] - 1))
            return costs[1] + slope * (num_rows - rows[1])
        return costs[0] + slope * (num_rows - rows[0])


def _can_be(times: Sequence[RowTime]) -> bool:
    """Whether a stage can have measured these: distinct numbers of rows, times of this world."""
    are_distinct = len({time.rows for time in times}) == len(times)
    return are_distinct and all(_LEAST_S <= time.seconds <= _MOST_S for time in times)

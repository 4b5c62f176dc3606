"""Costs are as measured at the rows that were, in between on a line, and never fall."""

import pytest

from engine.domain import RowTime
from engine.scheduler.row_costs import RowCosts


def costs_of(measured):
    return RowCosts(RowTime(rows, seconds) for rows, seconds in measured)


MEASURED = [(1, 0.02), (2, 0.03), (4, 0.03), (5, 0.06), (8, 0.05), (16, 0.14)]


@pytest.mark.parametrize(
    ("num_rows", "cost"),
    [(1, 1), (2, 1.5), (4, 1.5), (5, 2.5), (6, 2.5), (8, 2.5), (12, 4.75), (16, 7), (24, 11.5)],
)
def test_cost_of_rows(num_rows, cost):
    """Five rows took longer than eight by chance: they cost as much. Behind 16 the line goes on."""
    costs = costs_of(reversed(MEASURED))
    assert costs.cost(num_rows) == pytest.approx(cost)
    assert costs.cost(num_rows) == pytest.approx(cost)  # once more, from what it remembers
    assert costs.one_row_s == 0.02
    assert costs.is_measured


def test_behind_the_last_measured_rows_cost_what_rows_did_so_far():
    """Sixteen fill a block of the device's kernels, and cost little more than eight did."""
    costs = costs_of([(1, 1), (8, 2.9), (16, 4)])
    assert costs.cost(16) == 4
    assert costs.cost(32) == pytest.approx(4 + 16 * 3 / 15)


@pytest.mark.parametrize("measured", [[], [(2, 0.5)], [(4, 0.1), (8, 0.2)]])
def test_without_one_row_nothing_is_measured(measured):
    """Then each row costs as much as the first."""
    assert [costs_of(measured).cost(rows) for rows in (1, 2, 9)] == [1, 2, 9]
    assert not costs_of(measured).is_measured


def test_one_row_alone():
    """Its time is known, the rest is as if nothing were."""
    costs = costs_of([(1, 0.25)])
    assert (costs.one_row_s, costs.cost(1), costs.cost(4)) == (0.25, 1, 4)
    assert not costs.is_measured


@pytest.mark.parametrize(
    "measured",
    [
        [(1, 0.0), (2, 0.1)],
        [(1, -0.1), (2, 0.1)],
        [(1, 0.1), (2, 1e300)],
        [(1, 5e-324), (2, 0.1)],
        [(1, 0.1), (2, 0.2), (2, 0.3)],
    ],
    ids=["no time", "less than none", "endless", "next to none", "twice the same rows"],
)
def test_what_no_stage_can_have_measured_counts_for_nothing(measured):
    costs = costs_of(measured)
    assert [costs.cost(rows) for rows in (1, 2, 9)] == [1, 2, 9]
    assert not costs.is_measured

from __future__ import annotations

import pytest
from pool_figures import Figures, percentile_95


@pytest.mark.parametrize(
    ("values", "expected"),
    [([3.0], 3.0), ([1.0, 2.0], 2.0), (list(range(1, 21)), 19), (list(range(100, 0, -1)), 95)],
)
def test_95_of_100_values_do_not_exceed_the_percentile(values, expected) -> None:
    assert percentile_95(values) == expected


def test_a_line_has_the_median_the_largest_the_number_and_the_load(capsys) -> None:
    figures = Figures()
    for value_s in (0.5, 9.0, 1.5):
        figures.add("a loss is noticed", value_s)
    assert capsys.readouterr().out.splitlines()[1] == "  a loss is noticed: 9.00 s"
    head, line = figures.table()
    assert head.split() == ["seconds", "p50", "p95", "max", "n", "load"]
    assert line.startswith("a loss is noticed")
    assert line.split()[4:8] == ["1.50", "9.00", "9.00", "3"]


def test_what_is_seen_first_is_shown_first(capsys) -> None:
    figures = Figures()
    for what in ("second", "first", "second"):
        figures.add(what, 1.0)
    capsys.readouterr()
    assert [line.split()[0] for line in figures.table()] == ["seconds", "second", "first"]

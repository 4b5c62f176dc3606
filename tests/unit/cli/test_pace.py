"""The rate is what was seen lately, and what is left follows from it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cli.pace import WINDOW_S, Pace, seconds_left


def paced(*seen):
    pace = Pace()
    for done, now_s in seen:
        pace.see(done, now_s)
    return pace


def test_nothing_is_said_before_enough_was_seen():
    assert Pace().rate_per_s(5.0) is None
    assert paced((0, 10.0)).rate_per_s(10.1) is None
    assert paced((0, 10.0), (5, 10.2)).rate_per_s(10.2) is None


def test_a_steady_step_has_its_rate():
    pace = paced(*((i * 10, 100.0 + i) for i in range(60)))
    assert pace.rate_per_s(159.0) == pytest.approx(10.0)


def test_only_what_was_seen_lately_counts():
    slow = [(i, float(i)) for i in range(30)]
    fast = [(30 + i * 100, 30.0 + i) for i in range(30)]
    assert paced(*slow, *fast).rate_per_s(59.0) == pytest.approx(100.0)


def test_a_step_that_stands_still_becomes_slower():
    pace = paced(*((i * 10, float(i)) for i in range(10)))
    assert pace.rate_per_s(9.0 + 2 * WINDOW_S) < 5.0


def test_a_step_that_begins_again_is_measured_anew():
    pace = paced((0, 0.0), (1000, 1.0), (0, 2.0), (10, 3.0))
    assert pace.rate_per_s(3.0) == pytest.approx(10.0)


@given(st.lists(st.tuples(st.integers(0, 10**12), st.floats(0, 5)), max_size=50))
def test_a_rate_is_never_negative(steps):
    now_s, pace = 0.0, Pace()
    for done, passed_s in steps:
        now_s += passed_s
        pace.see(done, now_s)
    assert (pace.rate_per_s(now_s) or 0.0) >= 0.0


@pytest.mark.parametrize(
    ("done", "total", "per_s", "expected"),
    [
        (40, 100, 20.0, 3.0),
        (40, 0, 20.0, None),
        (40, 100, None, None),
        (40, 100, 0.0, None),
        (40, 100, -1.0, None),
        (120, 100, 20.0, 0.0),
    ],
)
def test_what_is_left(done, total, per_s, expected):
    assert seconds_left(done, total, per_s) == expected

"""How much longer something takes than was reckoned, of late."""

import pytest

from engine.scheduler.pace import Pace


def test_without_anything_seen_it_is_as_it_was_before():
    assert Pace(prior=4).ratio() == 1.0
    assert Pace(prior=4).ratio(before=2.5) == 2.5


def test_what_is_seen_counts_for_more_and_more():
    pace, ratios = Pace(prior=8), []
    for _ in range(40):
        pace.add(2, seconds=0.6, reckoned_s=0.1)
        ratios.append(pace.ratio())
    assert ratios == sorted(ratios)
    assert ratios[3] == pytest.approx(2.0, abs=0.05)  # eight as reckoned, eight three times as long
    assert ratios[-1] == pytest.approx(3.0, abs=0.3)


def test_what_was_seen_of_late_counts_for_more():
    pace = Pace(prior=4)
    for seconds in (3.0,) * 300 + (1.0,) * 300:
        pace.add(1, seconds, reckoned_s=1.0)
    assert 1.0 < pace.ratio() < 1.8


def test_a_pc_that_slept_is_not_taken_for_a_slow_one():
    pace = Pace(prior=24)
    for _ in range(200):
        pace.add(1, 0.1, reckoned_s=0.1)
    pace.add(1, 3600.0, reckoned_s=0.1)
    assert pace.ratio() < 1.1


def test_what_is_not_seen_any_more_is_forgotten():
    """The prior comes back, whatever that is by then."""
    pace = Pace(prior=8)
    for _ in range(100):
        pace.add(1, 3.0, reckoned_s=1.0)
    for _ in range(2000):
        pace.fade()
    assert pace.ratio() == pytest.approx(1.0, abs=0.02)
    assert pace.ratio(before=2.0) == pytest.approx(2.0, abs=0.02)

"""Each measure is its formula, and None where it is not defined."""

import numpy as np
import pytest

from engine.metrics import (
    Percentiles,
    acceptance_rate,
    itl_ms,
    percentile,
    percentiles,
    stage_occupancy,
    throughput_tokens_per_s,
    tpot_ms,
    ttft_s,
)

TIMES_S = (10.5, 10.6, 10.65, 10.9)


def test_ttft_runs_from_accepted_to_first_token():
    """In seconds; None while nothing was delivered."""
    assert ttft_s(10.0, TIMES_S) == 0.5
    assert ttft_s(10.0, ()) is None


def test_tpot_leaves_the_first_token_out():
    """Three gaps in 400 ms."""
    assert tpot_ms(TIMES_S) == pytest.approx(400 / 3)
    assert tpot_ms(TIMES_S[:1]) is None
    assert tpot_ms(()) is None


def test_itl_is_every_gap():
    """One fewer than there are tokens."""
    assert itl_ms(TIMES_S) == pytest.approx((100, 50, 250))
    assert itl_ms(TIMES_S[:1]) == ()


@pytest.mark.parametrize("percent", [0, 12.5, 50, 95, 99, 100])
@pytest.mark.parametrize("size", [1, 2, 7, 100])
def test_percentile_interpolates_as_numpy_does(size, percent):
    """In any order of the values."""
    values = [float((i * 37) % 101) for i in range(size)]
    assert percentile(values, percent) == pytest.approx(float(np.percentile(values, percent)))


def test_percentiles_of_nothing_are_not_defined():
    """None, not three zeros."""
    assert percentile((), 50) is None
    assert percentiles(()) is None
    assert percentiles([1.0, 2.0, 3.0]) == Percentiles(2.0, pytest.approx(2.9), pytest.approx(2.98))


def test_rates_are_quotients_and_not_defined_over_nothing():
    """No division by zero, no invented zero."""
    assert throughput_tokens_per_s(30, 1.5) == 20
    assert throughput_tokens_per_s(30, 0.0) is None
    assert stage_occupancy(0.75, 1.0) == 0.75
    assert stage_occupancy(0.0, 0.0) is None
    assert acceptance_rate(7, 10) == 0.7
    assert acceptance_rate(0, 0) is None

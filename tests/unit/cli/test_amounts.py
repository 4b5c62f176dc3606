"""Amounts as people read them."""

import pytest

from engine.cli.amounts import amount, amount_of, duration, memory, rate, time_left


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.0, "0.0 s"),
        (3.24, "3.2 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (45.4, "45 s"),
        (59.6, "1 min 0 s"),
        (125.0, "2 min 5 s"),
        (3599.7, "1 h 0 min"),
        (12_000.0, "3 h 20 min"),
    ],
)
def test_a_time_is_as_exact_as_it_matters(seconds, shown):
    assert duration(seconds) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.0, "1 s"), (0.4, "1 s"), (3.4, "3 s"), (75.2, "1 min 15 s")]
)
def test_what_is_left_is_said_in_whole_seconds(seconds, shown):
    assert time_left(seconds) == shown


def test_bytes_are_in_the_unit_one_can_read():
    assert amount(60_000_000, "bytes") == "60.0 MB"
    assert amount(4_700_000_000, "bytes") == "4.70 GB"
    assert amount(12, "layers") == "12"
    assert [memory(6 << 30), memory(430 << 20), memory(0)] == ["6.0 GiB", "430 MiB", "0 MiB"]


def test_how_much_of_how_much():
    assert amount_of(60_000_000, 130_000_000, "bytes") == "60.0 MB of 130.0 MB"
    assert amount_of(3, 30, "layers") == "3 of 30 layers"
    assert amount_of(5, 0, "steps") == "5 steps"
    assert rate(22_100_000, "bytes") == "22.1 MB/s"
    assert rate(1.5, "layers") == "1.5 layers/s"

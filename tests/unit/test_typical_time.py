"""The median of the newest times."""

from engine.typical_time import TypicalTime


def test_it_is_the_median_of_the_newest_times():
    typical = TypicalTime()
    assert (typical.value, typical.num) == (0.0, 0)
    for seconds, median in ((3.0, 3.0), (1.0, 1.0), (2.0, 2.0), (500.0, 2.0)):
        typical.add(seconds)
        assert typical.value == median
    for _ in range(10):
        typical.add(7.0)
    assert (typical.value, typical.num) == (7.0, 10)

"""How long a place in the queue takes."""

from __future__ import annotations

import pytest

from engine.scheduler.queue_time import QueueTime


def test_before_any_answer_has_ended_nobody_knows():
    assert QueueTime().wait_s(1, 4) is None


@pytest.mark.parametrize(("place", "num_at_once", "wait_s"), [(1, 1, 10), (3, 1, 30), (2, 4, 5)])
def test_answers_side_by_side_end_evenly_spread(place, num_at_once, wait_s):
    known = QueueTime()
    known.ended(10.0)
    assert known.wait_s(place, num_at_once) == pytest.approx(wait_s)


def test_newer_answers_count_more():
    known = QueueTime()
    for running_s in (100.0, 2.0, 2.0, 2.0, 2.0):
        known.ended(running_s)
    assert 2.0 < known.wait_s(1, 1) < 30.0

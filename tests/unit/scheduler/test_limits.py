"""Limits that leave work possible, and those that don't."""

import pytest

from engine.errors import UsageError
from engine.scheduler.limits import SchedulerLimits


def limits(**changes):
    return SchedulerLimits(**{
        "max_tokens": 1024,
        "block_tokens": 16,
        "max_sequences": 8,
        **changes,
    })


def test_defaults_are_one_batch_on_one_stage():
    """One stage runs everything together."""
    checked = limits().checked()
    assert (checked.batches_in_flight, checked.num_groups) == (1, 1)


def test_as_many_batches_as_stages_unless_told():
    """And the running sequences are divided among them."""
    assert (limits(num_stages=3).batches_in_flight, limits(num_stages=3).num_groups) == (3, 3)
    more = limits(num_stages=2, max_batches_in_flight=4)
    assert (more.batches_in_flight, more.num_groups) == (4, 4)
    alone = limits(max_batches_in_flight=2)
    assert (alone.batches_in_flight, alone.num_groups) == (2, 1)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"block_tokens": 0}, "block_tokens is 0"),
        ({"max_sequences": 0}, "max_sequences is 0"),
        ({"num_stages": 0}, "num_stages is 0"),
        ({"max_batches_in_flight": 0}, "batches_in_flight is 0"),
        ({"chunk_tokens": -1}, "chunk_tokens is -1"),
        ({"max_chunks_in_flight": 0}, "max_chunks_in_flight is 0"),
        ({"max_tokens": 15}, "max_tokens is 15"),
        ({"max_batch_tokens": 7}, "max_batch_tokens is 7"),
    ],
)
def test_limits_that_leave_no_work_are_refused_by_name(changes, sentence):
    """Before the first request comes."""
    with pytest.raises(UsageError, match=sentence):
        limits(**changes).checked()

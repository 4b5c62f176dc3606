"""Rows are timed as they are run, within a budget, and leave nothing behind."""

from itertools import count
from types import SimpleNamespace

import pytest

from engine.errors import InferenceError
from engine.scheduler.row_costs import RowCosts
from engine.stages.loading import load_stage
from engine.stages.row_times import ROWS, WIDE_ROWS, measure_row_times
from tests.unit.stages.running import whole


class TimedStage:
    """A stage that takes a second for each row; its clock stands still in between."""

    def __init__(self, *, max_rows=1000):
        self.description = SimpleNamespace(vocab_size=100)
        self.now_s = 0.0
        self.max_rows = max_rows
        self.steps = []
        self.released = []
        self.passes = count()

    def run(self, batch):
        (step,) = batch.steps
        if step.num_tokens > self.max_rows:
            raise InferenceError("Too many rows.")
        self.steps.append(step)
        self.now_s += step.num_tokens + 0.01 * next(self.passes)  # the first pass is the fastest

    def release(self, sequence_id):
        self.released.append(sequence_id)

    def clock(self):
        return self.now_s


def test_every_number_of_rows_is_timed():
    """In ascending order, by the fastest pass but the first."""
    stage = TimedStage()
    times = measure_row_times(stage, stage.clock, 1e9)
    assert [time.rows for time in times] == sorted((*ROWS, *WIDE_ROWS))
    assert all(time.rows <= time.seconds <= time.rows + 0.3 for time in times)
    assert times[0].seconds == pytest.approx(
        ROWS[0] + 0.02
    )  # pass 0 fills the cache, pass 1 does not count
    assert stage.released


def test_without_time_what_tells_most_is_timed():
    """One row first: without it the others say nothing."""
    stage = TimedStage()
    assert [time.rows for time in measure_row_times(stage, stage.clock, 18)] == [1, 2, 4]
    stage = TimedStage()
    assert measure_row_times(stage, stage.clock, 0) == ()
    assert stage.released


@pytest.mark.parametrize(("budget_s", "widest"), [(238, 16), (258, 64), (758, 64), (778, 256)])
def test_many_rows_are_timed_only_where_there_is_time_for_them(budget_s, widest):
    """They take two passes each, after 120 s for the others."""
    stage = TimedStage()
    assert measure_row_times(stage, stage.clock, budget_s)[-1].rows == widest
    assert stage.now_s < 32 + budget_s + 3 * 16 + 5


def test_rows_that_a_device_refuses_are_left_out():
    """And those that would come after them."""
    stage = TimedStage(max_rows=32)
    assert len(measure_row_times(stage, stage.clock, 1e9)) == len(ROWS)
    stage = TimedStage(max_rows=64)
    assert [time.rows for time in measure_row_times(stage, stage.clock, 1e9)][-1] == 64
    stage = TimedStage(max_rows=1)
    assert measure_row_times(stage, stage.clock, 1e9) == ()
    assert stage.released


def test_a_few_rows_have_logits_each():
    """As they have when guesses are checked; a prompt has none, before them or after."""
    stage = TimedStage()
    measure_row_times(stage, stage.clock, 1e9)
    prompt, *rest = stage.steps
    assert prompt.num_logits == 0
    for step in rest:
        assert step.num_logits == (step.num_tokens if step.num_tokens in ROWS else 0)
    assert {step.past_len for step in rest} == {prompt.num_tokens}


@pytest.mark.parametrize("kind", ["paged", "stateful"])
def test_real_stages_are_timed(kind):
    """Their caches are empty afterwards, and the costs make sense to whoever uses them."""
    stage = load_stage(whole("llama", kind))
    ticks = count()
    times = measure_row_times(stage, lambda: float(next(ticks)), 1e9)
    assert [time.rows for time in times] == sorted((*ROWS, *WIDE_ROWS))
    assert stage.kv_usage().used_blocks == 0
    assert RowCosts(times).cost(256) == 1  # by a clock that goes on once a look


def test_rows_are_timed_where_it_is_asked_for():
    """With golden vectors or without; nobody needs to know it of a draft model."""
    timed = load_stage(whole("llama", "paged", times_rows=True)).description.row_times
    assert [time.rows for time in timed][:2] == [1, 2]
    assert RowCosts(timed).is_measured
    assert not load_stage(whole("llama", "paged")).description.row_times

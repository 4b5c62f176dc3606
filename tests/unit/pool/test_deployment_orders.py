"""Deadlines, orders that are given again, and stages that nobody needs."""

from __future__ import annotations

import pytest

from engine.domain import NodeId
from engine.pool.deployment_attempt import (
    DEADLINES_S,
)
from engine.pool.deployment_due import REPEAT_S, TIDY_EVERY_S
from engine.pool.deployment_inputs import Progressed
from engine.pool.deployment_orders import (
    OrderEnd,
    OrderPlacement,
    OrderSplit,
    OrderWarmUp,
    Publish,
)
from engine.pool.deployment_state import State
from tests.unit.pool.coordinator import (
    FIRST_EPOCH,
    LARGE,
    in_office,
    loading,
    ready,
    seen,
    splitting,
    wish,
)

# ---- deadlines and repeats -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("begin", "what"),
    [
        (State.SPLITTING, "A did not get on with cutting the model for 300 seconds."),
        (State.LOADING, "A did not get on with loading its layers for 600 seconds."),
        (State.WARMING, "A did not get on with sending the first token round for 60 seconds."),
    ],
)
def test_who_doesnt_get_on_is_named_after_a_deadline(begin, what) -> None:
    pool = splitting(seen("a"), seen("c"))
    if begin is not State.SPLITTING:
        pool.cut()
    if begin is State.WARMING:
        pool.load()
    deadline_s = DEADLINES_S[begin]
    pool.wait(deadline_s - 0.25)
    pool.take(Progressed(NodeId("a"), FIRST_EPOCH))
    pool.wait(deadline_s - 0.25)
    assert pool.state is begin
    pool.tick()
    assert pool.state is State.PLANNING
    assert pool.record.trouble.code == "peer_timeout"
    assert pool.record.trouble.what == what
    assert pool.machine.ledger.left_out == {}


def test_who_has_loaded_is_not_named() -> None:
    pool = loading()
    pool.load("a")
    pool.wait(DEADLINES_S[State.LOADING])
    assert pool.record.trouble.what.startswith("B did not get on")


def test_a_stage_that_is_loaded_is_progress() -> None:
    pool = loading()
    pool.wait(DEADLINES_S[State.LOADING] - 0.25)
    pool.load("a")
    pool.wait(DEADLINES_S[State.LOADING] - 0.25)
    assert pool.state is State.LOADING
    pool.tick()
    assert pool.state is State.PLANNING


def test_a_silent_splitter_is_replaced() -> None:
    pool = splitting()
    pool.wait(DEADLINES_S[State.SPLITTING])
    assert pool.machine.work.splitter == "b"


@pytest.mark.parametrize(("name", "epoch"), [("c", FIRST_EPOCH), ("a", 0), ("a", 7)])
def test_only_progress_of_who_is_needed_counts(name, epoch) -> None:
    pool = loading()
    pool.wait(DEADLINES_S[State.LOADING] - 0.25)
    pool.take(Progressed(NodeId(name), epoch))
    pool.tick()
    assert pool.state is State.PLANNING


def test_an_order_is_given_again_to_whoever_says_nothing() -> None:
    pool = splitting()
    assert pool.wait(REPEAT_S - 0.25) == []
    (order,) = pool.tick()
    assert order == OrderSplit(NodeId("a"), FIRST_EPOCH, wish(), pool.all[1].layers)
    pool.cut()
    pool.wait(5.0)
    pool.load("a")
    pool.wait(REPEAT_S - 5.25)
    (order,) = pool.tick()
    assert order == OrderPlacement(pool.record, (NodeId("b"),))
    pool.wait(5.0)
    pool.take(Progressed(NodeId("b"), FIRST_EPOCH))
    assert pool.wait(REPEAT_S - 0.25) == []
    pool.load("b")
    pool.wait(REPEAT_S - 0.25)
    assert pool.tick() == [OrderWarmUp(NodeId("a"), FIRST_EPOCH)]


def test_who_says_that_it_runs_its_stage_is_not_told_to_load_it() -> None:
    pool = loading()
    pool.change("a", epoch=FIRST_EPOCH)
    pool.wait(REPEAT_S - 0.25)
    assert pool.tick() == [OrderPlacement(pool.record, (NodeId("b"),))]


def test_progress_before_an_order_doesnt_stand_for_it() -> None:
    """A node may tell of its step before the coordinator has given out the next one."""
    pool = loading()
    pool.take(Progressed(NodeId("a"), FIRST_EPOCH))
    pool.take(Progressed(NodeId("b"), FIRST_EPOCH))
    pool.load()
    assert pool.ordered(OrderWarmUp) == [OrderWarmUp(NodeId("a"), FIRST_EPOCH)]


# ---- what nobody needs -----------------------------------------------------------------------


def test_a_stage_of_another_epoch_is_ended_when_it_shows() -> None:
    pool = ready()
    pool.wait(TIDY_EVERY_S)
    pool.change("c", epoch=9)
    assert pool.done == [OrderEnd((NodeId("c"),), 9)]
    assert pool.wait(TIDY_EVERY_S - 0.25) == []
    assert pool.tick() == [OrderEnd((NodeId("c"),), 9)]


def test_while_nothing_can_run_whatever_shows_is_ended() -> None:
    pool = in_office(seen("a"), seen("b"), seen("c", is_reachable=False))
    pool.wish(wish(1, max_sequences=0))
    pool.change("a", epoch=8)
    pool.change("b", epoch=9)
    pool.change("c", epoch=9)
    pool.tick(TIDY_EVERY_S)
    assert pool.ordered(OrderEnd) == [OrderEnd((NodeId("a"),), 8), OrderEnd((NodeId("b"),), 9)]


def test_without_a_record_nothing_is_ended() -> None:
    """Somebody may yet tell what it belongs to."""
    pool = in_office(seen("a", epoch=9))
    assert pool.wait(3 * TIDY_EVERY_S) == []


def test_nothing_is_published_twice() -> None:
    pool = ready(seen("a", LARGE), seen("b"))
    records = [order.record for order in pool.all if isinstance(order, Publish)]
    pool.wait(120.0)
    assert [order.record for order in pool.all if isinstance(order, Publish)] == records

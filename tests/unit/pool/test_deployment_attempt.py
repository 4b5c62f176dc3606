"""What goes wrong with a stage: tried again, left out by name, given up."""

from __future__ import annotations

import pytest

from engine.domain import NodeId
from engine.pool.deployment_attempt import (
    BACK_OFF_S,
    MAX_ATTEMPTS,
    PLAN_EVERY_S,
    TRY_AGAIN_S,
)
from engine.pool.deployment_inputs import SplitEnded, WarmEnded
from engine.pool.deployment_orders import (
    OrderEnd,
)
from engine.pool.deployment_state import State
from engine.pool.deployment_troubles import LASTING, restarted
from tests.unit.pool.coordinator import (
    FIRST_EPOCH,
    LARGE,
    SMALL,
    Coordinator,
    in_office,
    loading,
    seen,
    splitting,
    trouble,
    wish,
)
from tests.unit.pool.models import MIB

# ---- trouble with a stage --------------------------------------------------------------------


@pytest.mark.parametrize("code", sorted(LASTING))
def test_what_will_be_so_again_leaves_a_node_out_by_name_at_once(code) -> None:
    pool = loading()
    published, end, split = pool.fail("b", code)
    assert [share.node_id for share in published.record.stages] == ["a", "c"]
    assert published.record.trouble == trouble(code)
    line = pool.line("b")
    assert (line.role, line.reason) == ("left out", f"It was {code}.")
    assert line.remedy == "Look at it. Then restart Daisy there."
    assert end == OrderEnd((NodeId("a"), NodeId("b"), NodeId("c")), FIRST_EPOCH)
    assert split.epoch == FIRST_EPOCH + 1
    assert pool.machine.attempts == 0  # without it, it may well go


@pytest.mark.parametrize("code", ["stage_process_died", "shard_corrupt", "inference", "unheard_of"])
def test_what_may_pass_leaves_a_node_out_the_second_time(code) -> None:
    pool = loading()
    pool.fail("b", code)
    assert (pool.state, pool.machine.attempts) == (State.PLANNING, 1)
    pool.wait(BACK_OFF_S[1])
    assert [share.node_id for share in pool.record.stages] == ["a", "b"]
    pool.cut()
    pool.fail("b", code)
    pool.wait(BACK_OFF_S[1])
    assert [share.node_id for share in pool.record.stages] == ["a", "c"]


@pytest.mark.parametrize(
    "code", ["transport", "peer_unreachable", "peer_timeout", "pipeline_broken", "port_in_use"]
)
def test_what_lies_between_pcs_leaves_nobody_out(code) -> None:
    pool = loading()
    for _ in range(3):
        pool.fail("b", code)
        pool.wait(BACK_OFF_S[pool.machine.attempts])
        assert [share.node_id for share in pool.record.stages] == ["a", "b"]
        pool.cut()


@pytest.mark.parametrize("end", ["restart", "wish"])
def test_a_node_is_left_out_until_it_restarts_or_something_else_is_wished(end) -> None:
    pool = loading()
    pool.fail("b", "compile")
    pool.change("b", epoch=0)
    assert pool.line("b").role == "left out"
    if end == "restart":
        pool.change("b", incarnation=2)
        pool.fail("a", "storage")
        pool.cut()
        pool.fail("a", "storage")
    else:
        pool.wish(wish(2))
    assert pool.line("b").role == "stage"


def test_a_node_that_went_is_still_left_out_when_it_comes_back_as_it_was() -> None:
    pool = loading()
    pool.fail("b", "compile")
    pool.see(seen("a"), seen("c"))
    pool.see(seen("a"), seen("b"), seen("c"))
    assert set(pool.machine.ledger.left_out) == {"b"}


def test_strikes_are_those_of_one_start() -> None:
    pool = loading()
    pool.fail("b", "inference")
    pool.change("b", incarnation=2)
    pool.wait(BACK_OFF_S[1])
    pool.cut()
    pool.fail("b", "inference")
    assert pool.machine.ledger.left_out == {}


def test_missing_shards_are_not_held_against_a_node_when_their_maker_is_gone() -> None:
    nodes = (seen("a", 100 * MIB), seen("b", LARGE))
    for is_gone, strikes in ((True, 0), (False, 1)):
        pool = in_office(*nodes)
        pool.wish()
        pool.cut()
        if is_gone:
            pool.lose("a")
        pool.fail("b", "shard_corrupt")
        assert len(pool.machine.ledger.strikes) == strikes


def test_without_enough_others_what_is_left_out_is_said() -> None:
    pool = loading(seen("a"), seen("b"))
    pool.fail("b", "golden_step")
    assert pool.record.trouble.code == "insufficient_memory"
    assert pool.line("b").reason == "It was golden_step."


@pytest.mark.parametrize("change", [{"is_reachable": False}, {"incarnation": 2}, None])
@pytest.mark.parametrize("begin", [splitting, loading])
def test_a_node_that_is_lost_while_loading_is_a_reason_to_try_again(begin, change) -> None:
    pool = begin()
    if change is None:
        pool.see(pool.nodes["a"], pool.nodes["c"])
    else:
        pool.change("b", **change)
    assert (pool.state, pool.machine.attempts) == (State.PLANNING, 1)
    was_restarted = change == {"incarnation": 2}
    lost = "B can't be reached any more."
    assert pool.record.trouble.what == (restarted("B").what if was_restarted else lost)
    pool.wait(BACK_OFF_S[1])
    chain = [share.node_id for share in pool.record.stages]
    assert chain == (["a", "b"] if was_restarted else ["a", "c"])


def test_who_has_no_part_in_it_may_come_and_go() -> None:
    pool = loading()
    assert pool.lose("c") == []
    assert pool.change("c", is_reachable=True, incarnation=5) == []


def test_a_failed_warm_up_is_held_against_nobody() -> None:
    pool = loading()
    pool.load()
    pool.take(WarmEnded(NodeId("a"), FIRST_EPOCH, trouble("storage")))
    assert (pool.state, pool.machine.attempts) == (State.PLANNING, 1)
    assert pool.machine.ledger.left_out == {}
    assert pool.record.trouble == trouble("storage")


# ---- back-off and giving up ------------------------------------------------------------------


def given_up(*nodes) -> Coordinator:  # type: ignore[no-untyped-def]
    """Return a pool whose attempts failed, all of them."""
    pool = loading(*nodes)
    for _ in range(MAX_ATTEMPTS - 1):
        pool.fail("b", "transport")
        pool.wait(BACK_OFF_S[pool.machine.attempts])
        pool.cut()
    pool.fail("b", "transport")
    return pool


def test_each_wait_is_longer_and_every_attempt_has_an_epoch_of_its_own() -> None:
    pool = loading()
    epochs = {pool.machine.epoch}
    for attempt in range(1, MAX_ATTEMPTS):
        pool.fail("b", "transport")
        assert pool.record.phase == "planning"
        assert pool.wait(BACK_OFF_S[attempt] - 0.25) == []
        pool.tick()
        assert pool.state is State.SPLITTING
        epochs.add(pool.machine.epoch)
        pool.cut()
    assert len(epochs) == MAX_ATTEMPTS
    pool.fail("b", "transport")
    assert pool.state is State.FAILED


def test_it_is_given_up_with_the_last_trouble() -> None:
    pool = given_up()
    published, end = pool.done
    assert published.record.phase == "failed"
    assert published.record.trouble == trouble("transport")
    assert published.record.wish == wish()
    assert {line.role for line in published.record.plan} == {"standby"}
    assert end.epoch == FIRST_EPOCH + MAX_ATTEMPTS - 1


@pytest.mark.parametrize("change", [{"usable": 2 * SMALL}, {"active_requests": 3}, {"epoch": 0}])
def test_given_up_stays_so_while_the_pool_is_the_same(change) -> None:
    """Memory comes and goes by what the attempts themselves take."""
    pool = given_up()
    pool.tick(PLAN_EVERY_S)
    assert pool.change("b", **change) == []


@pytest.mark.parametrize("change", [{"is_reachable": False}, {"incarnation": 2}])
def test_a_pool_that_changes_is_tried_again_with_all_attempts(change) -> None:
    pool = given_up()
    pool.tick(PLAN_EVERY_S)
    pool.change("b", **change)
    assert (pool.state, pool.machine.attempts) == (State.SPLITTING, 0)
    assert pool.record.trouble == trouble("transport")


def test_after_a_long_while_it_is_tried_once_more() -> None:
    """What lies between two PCs may be over without anything else to see."""
    pool = given_up()
    assert pool.wait(TRY_AGAIN_S - 0.25) == []
    pool.tick()
    assert pool.state is State.SPLITTING
    pool.cut()
    pool.fail("b", "transport")
    assert pool.state is State.FAILED


def test_success_makes_the_waits_short_again() -> None:
    pool = loading()
    for _ in range(3):
        pool.fail("b", "transport")
        pool.wait(BACK_OFF_S[pool.machine.attempts])
        pool.cut()
    pool.load()
    pool.run()
    pool.warm()
    assert (pool.state, pool.machine.attempts) == (State.READY, 0)
    assert pool.record.trouble is None


def test_another_wish_begins_with_nothing_held_against_anybody() -> None:
    pool = splitting()
    pool.take(SplitEnded(NodeId("a"), FIRST_EPOCH, None, trouble("storage")))
    pool.cut()
    pool.fail("b", "inference")
    assert pool.machine.attempts == 1
    pool.wait(BACK_OFF_S[1])
    pool.take(SplitEnded(NodeId("a"), pool.machine.epoch, None, trouble("storage")))
    assert pool.machine.work.splitter == "b"
    pool.wish(wish(2))
    assert pool.machine.work.splitter == "a"
    assert (pool.machine.attempts, pool.machine.ledger.strikes) == (0, {})

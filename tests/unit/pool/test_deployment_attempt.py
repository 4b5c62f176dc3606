"""What goes wrong while a model is brought up: said, tried again, left out by name, given up."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from engine.domain import NodeId
from engine.pool.deployment_attempt import (
    BACK_OFF_S,
    DEADLINES_S,
    MAX_ATTEMPTS,
    PLAN_AGAIN_S,
    PLAN_EVERY_S,
    TRY_AGAIN_S,
)
from engine.pool.deployment_due import REPEAT_S, TIDY_EVERY_S
from engine.pool.deployment_inputs import Progressed, SplitEnded, WarmEnded
from engine.pool.deployment_orders import (
    OrderEnd,
    OrderPlacement,
    OrderSplit,
    OrderWarmUp,
    Publish,
)
from engine.pool.deployment_state import State
from engine.pool.deployment_troubles import LASTING, restarted
from engine.pool.plan import Exclusion
from tests.unit.pool.coordinator import (
    FIRST_EPOCH,
    LARGE,
    MODEL,
    SMALL,
    Coordinator,
    in_office,
    loading,
    ready,
    seen,
    splitting,
    trouble,
    wish,
)
from tests.unit.pool.models import MIB

# ---- no plan ---------------------------------------------------------------------------------


def test_too_little_memory_is_said_with_a_line_for_each_pc() -> None:
    pool = in_office(seen("a"), seen("b", 100 * MIB), seen("c", LARGE, is_reachable=False))
    (published,) = pool.wish()
    record = published.record
    assert (record.phase, record.wish, record.epoch) == ("failed", wish(), 0)
    assert record.trouble.code == "insufficient_memory"
    assert "C (Check that it is on and in the same network)" in record.trouble.advice
    assert pool.line("a").role == "standby"
    assert pool.line("b").role == "left out"
    assert pool.line("c").reason == "It can't be reached."
    assert pool.line("c").remedy == "Check that it is on and in the same network."


def test_a_wish_that_makes_no_sense_fails() -> None:
    pool = in_office()
    pool.wish(wish(max_sequences=0))
    assert pool.record.trouble.code == "usage"


@pytest.mark.parametrize(
    "changes", [{"num_layers": 0, "layer_bytes": ()}, {"num_layers": 7}, {"head_size": ()}]
)
def test_a_model_whose_description_contradicts_itself_is_refused(changes) -> None:
    pool = in_office()
    empty = {"num_kv_heads": (), "head_size": (), "value_head_size": ()}
    more = empty if changes.get("num_layers") == 0 else {}
    pool.wish(wish(model=replace(MODEL, **changes, **more)))
    assert pool.record.trouble.what == "The description of model contradicts itself."
    assert pool.record.plan == ()


def test_a_node_that_comes_is_planned_with() -> None:
    pool = in_office(seen("a"))
    pool.wish()
    pool.tick(PLAN_EVERY_S)
    pool.see(seen("a"), seen("b"))
    assert pool.state is State.SPLITTING
    assert pool.record.trouble is None  # it is over


def test_planning_again_waits_a_moment() -> None:
    pool = in_office(seen("a"))
    pool.wish()
    pool.see(seen("a"), seen("b"))
    assert pool.state is State.FAILED
    assert pool.tick(PLAN_EVERY_S - 0.25) == []
    pool.tick()
    assert pool.state is State.SPLITTING


@pytest.mark.parametrize(("usable", "is_planned"), [(1.09, False), (1.11, True), (0.89, True)])
def test_a_tenth_more_or_less_memory_is_a_reason_to_plan_again(usable, is_planned) -> None:
    pool = in_office(seen("a"))
    pool.wish()
    before = pool.record.trouble
    pool.tick(PLAN_EVERY_S)
    pool.change("a", usable=int(SMALL * usable))
    assert (pool.record.trouble != before) == is_planned


@pytest.mark.parametrize(
    "change",
    [
        {"is_reachable": False},
        {"incarnation": 2},
        {"kept_models": ()},
        {"facts": replace(seen("b").facts, exclusions=(Exclusion("It is paused.", "Resume it."),))},
        {"facts": replace(seen("b").facts, devices=())},
    ],
)
def test_other_changes_are_a_reason_too(change) -> None:
    pool = in_office(seen("a"), seen("b", 200 * MIB))
    pool.wish()
    pool.tick(PLAN_EVERY_S)
    before = pool.machine.failure
    pool.change("b", **change)
    assert pool.machine.failure is not before


def test_small_changes_are_looked_at_now_and_then() -> None:
    pool = in_office(seen("a", 1850 * MIB))
    pool.wish()
    assert pool.state is State.FAILED
    pool.change("a", usable=1950 * MIB)
    assert pool.wait(PLAN_AGAIN_S - 0.25) == []
    pool.tick()
    assert pool.state is State.SPLITTING


def test_planning_again_to_no_avail_is_not_published() -> None:
    pool = in_office(seen("a"))
    pool.wish()
    assert pool.wait(3 * PLAN_AGAIN_S) == []


# ---- nobody with the files -------------------------------------------------------------------


def test_nobody_with_the_files_is_said_by_name() -> None:
    absent = seen("b", is_reachable=False)
    pool = in_office(seen("c", LARGE), seen("a", is_reachable=False), absent)
    pool.wish(wish(asked_on=NodeId("z")))
    assert pool.record.trouble.code == "model_not_found"
    assert pool.record.trouble.what == (
        "None of the PCs that have the files of model is here: A, B."
    )
    pool.tick(PLAN_EVERY_S)
    pool.change("b", is_reachable=True)
    assert pool.ordered(OrderSplit)[0].node_id == "b"


def test_nobody_known_is_not_named() -> None:
    pool = in_office(seen("c", LARGE))
    pool.wish(wish(asked_on=NodeId("z")))
    assert pool.record.trouble.what == "None of the PCs that have the files of model is here."


def test_who_was_asked_cuts_rather_than_the_chain_and_the_chain_rather_than_others() -> None:
    asked = wish(asked_on=NodeId("d"))
    pool = in_office(seen("a", 300 * MIB), seen("b", LARGE), seen("d", 300 * MIB))
    pool.wish(asked)
    assert pool.ordered(OrderSplit)[0].node_id == "d"
    pool.lose("d")
    pool.wait(2.0)
    assert pool.machine.work.splitter == "b"
    pool.change("b", kept_models=())
    pool.fail("b", "transport")
    pool.cut("b")
    pool.fail("b", "transport")
    pool.wait(3.0)
    assert pool.machine.work.splitter == "a"


# ---- cutting ---------------------------------------------------------------------------------


def test_another_keeper_cuts_at_once_where_one_cant() -> None:
    pool = splitting()
    published, end, order = pool.take(
        SplitEnded(NodeId("a"), FIRST_EPOCH, None, trouble("storage"))
    )
    assert published.record.trouble == trouble("storage")
    assert end.epoch == FIRST_EPOCH
    assert order.node_id == "b"
    assert order.epoch == FIRST_EPOCH + 1
    assert pool.machine.attempts == 0
    assert pool.machine.ledger.left_out == {}  # it may still run a stage


def test_when_none_can_they_are_asked_again_after_a_wait() -> None:
    pool = splitting()
    for name in "ab":
        pool.take(SplitEnded(NodeId(name), pool.machine.epoch, None, trouble("storage")))
    assert (pool.state, pool.machine.attempts) == (State.PLANNING, 1)
    assert pool.record.phase == "planning"
    pool.wait(BACK_OFF_S[1])
    assert pool.machine.work.splitter == "a"


def test_no_reason_given_is_one_too() -> None:
    pool = splitting(seen("a", LARGE))
    pool.take(SplitEnded(NodeId("a"), FIRST_EPOCH, None))
    assert pool.record.trouble.what == "A could not cut the model."


def test_a_splitter_that_is_lost_is_replaced_at_once() -> None:
    pool = in_office(seen("a", 100 * MIB), seen("b", LARGE))
    pool.wish()
    pool.lose("a")
    assert pool.ordered(OrderSplit)[0].node_id == "b"
    assert pool.machine.attempts == 0


def test_a_splitter_that_has_a_stage_is_missed_as_a_stage() -> None:
    pool = splitting()
    pool.lose("a")
    assert (pool.state, pool.machine.attempts) == (State.PLANNING, 1)


def test_the_one_that_has_cut_is_not_needed_after_it() -> None:
    pool = in_office(seen("a", 100 * MIB), seen("b", LARGE))
    pool.wish()
    pool.cut()
    assert pool.lose("a") == []
    assert pool.state is State.LOADING


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

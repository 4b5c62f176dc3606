"""No plan, nobody with the files, nobody who can cut them: said, and tried again."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from engine.domain import NodeId
from engine.pool.deployment_attempt import (
    BACK_OFF_S,
    PLAN_AGAIN_S,
    PLAN_EVERY_S,
)
from engine.pool.deployment_inputs import SplitEnded
from engine.pool.deployment_orders import (
    OrderPlacement,
    OrderSplit,
    OrderWarmUp,
)
from engine.pool.deployment_state import State
from engine.pool.plan import Exclusion
from tests.unit.pool.coordinator import (
    FIRST_EPOCH,
    LARGE,
    MODEL,
    SMALL,
    in_office,
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


def test_a_private_wish_begins_and_ends_on_the_pc_it_was_asked_on() -> None:
    pool = in_office(seen("a"), seen("b"), seen("c", LARGE))
    pool.wish(wish(is_private=True))
    (first, *middle, last) = pool.record.stages
    assert first.node_id == last.node_id == "a"
    assert "a" not in {share.node_id for share in middle}
    line = pool.line("a")
    assert (line.layers, line.last_layers) == (first.layers, last.layers)
    assert all(other.last_layers is None for other in pool.record.plan if other.node_id != "a")
    assert pool.record.reason.startswith("The first and the last stage stay on one PC")
    assert len(pool.record.stages) == 3


def test_a_private_placement_is_brought_up_with_each_pc_asked_once_and_then_stays() -> None:
    pool = in_office(seen("a"), seen("b"), seen("c", LARGE))
    pool.wish(wish(is_private=True))
    pool.cut()
    (order,) = pool.ordered(OrderPlacement)
    assert len(order.node_ids) == len(set(order.node_ids)) == 2
    pool.load()
    assert [warm.node_id for warm in pool.ordered(OrderWarmUp)] == ["a"]
    pool.run()
    pool.warm()
    assert pool.state is State.READY
    epoch = pool.machine.epoch
    pool.wait(60.0)
    assert (pool.state, pool.machine.epoch) == (State.READY, epoch)
    pool.lose("a")
    pool.wait(10.0)
    assert (pool.state, pool.record.stages) == (State.FAILED, ())


@pytest.mark.parametrize("home", [(), (seen("a", is_reachable=False),)], ids=["unknown", "away"])
def test_a_private_wish_waits_for_its_pc_and_runs_nowhere_else(home) -> None:
    pool = in_office(*home, seen("b", LARGE), seen("c", LARGE, kept_models=("m",)))
    pool.wish(wish(is_private=True))
    assert (pool.state, pool.record.stages) == (State.FAILED, ())
    pool.tick(PLAN_EVERY_S)
    pool.see(seen("a", LARGE), seen("b", LARGE))
    assert {share.node_id for share in pool.record.stages} == {"a"}


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

"""What the coordinator does while the pool is ready."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from engine.domain import NodeId
from engine.pool.deployment_inputs import Progressed
from engine.pool.deployment_orders import OrderEnd, OrderKeep, OrderSplit, Publish
from engine.pool.deployment_plan import has_better_plan
from engine.pool.deployment_state import State
from engine.pool.deployment_troubles import Ledger
from engine.pool.deployment_upkeep import (
    AMISS_S,
    KEEP_EVERY_S,
    LINES_EVERY_S,
    REPLAN_EVERY_S,
    STEADY_S,
)
from engine.pool.plan import Exclusion
from tests.unit.pool.coordinator import (
    FIRST_EPOCH,
    LARGE,
    SMALL,
    Coordinator,
    in_office,
    ready,
    ready_record,
    seen,
    trouble,
    wish,
)
from tests.unit.pool.models import MIB

PAUSED = Exclusion("It is paused.", "Resume it.")

# ---- what ends it ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"is_reachable": False}, "B can't be reached any more."),
        ({"incarnation": 2}, "Daisy was restarted on B."),
    ],
)
def test_a_node_that_is_lost_is_replaced_at_once(change, what) -> None:
    pool = ready()
    published, end, split = pool.change("b", **change)
    assert published.record.phase == "splitting"
    assert published.record.trouble.what == what
    assert published.record.epoch == split.epoch == FIRST_EPOCH + 1
    assert end == OrderEnd(pool.machine.reachable, FIRST_EPOCH)
    assert pool.machine.attempts == 0


def test_a_pc_whose_owner_lends_it_no_longer_is_replaced_at_once_and_nothing_held_against_it() -> (
    None
):
    pool = ready()
    facts = replace(pool.nodes["b"].facts, exclusions=(PAUSED,))
    published, _, split = pool.change("b", facts=facts)
    assert published.record.trouble.code == "lending_paused"
    assert published.record.trouble.what == "B is not lent at the moment."
    assert [s.node_id for s in published.record.stages] == ["a", "c"]
    assert split.epoch == FIRST_EPOCH + 1
    assert pool.machine.ledger == Ledger()
    assert pool.line("b").reason == PAUSED.reason


def test_a_model_without_room_once_a_pc_is_not_lent_comes_back_with_it() -> None:
    pool = ready(seen("a"), seen("b"))
    lent = pool.nodes["b"].facts
    pool.change("b", facts=replace(lent, exclusions=(PAUSED,)))
    assert pool.record.phase == "failed"
    assert PAUSED.remedy.rstrip(".") in pool.record.trouble.advice
    pool.wait(3.0)
    pool.change("b", facts=lent, epoch=0)
    pool.wait(3.0)
    assert pool.record.phase == "splitting"


def test_a_pool_of_two_goes_on_with_the_one_that_is_left() -> None:
    pool = in_office(seen("a", LARGE), seen("b", LARGE))
    pool.wish(wish(asked_on=NodeId("b")))
    pool.bring_up()
    assert pool.machine.chain == ("b",)
    pool.lose("b")
    pool.bring_up()
    assert pool.machine.chain == ("a",)


@pytest.mark.parametrize("code", ["stage_process_died", "golden_step"])
def test_a_chain_that_broke_is_placed_again_at_once(code) -> None:
    pool = ready()
    published, *_ = pool.fail("b", code)
    assert published.record.trouble == trouble(code)
    assert pool.state is State.SPLITTING


def test_a_link_that_broke_is_told_by_the_name_of_the_pc_at_its_end() -> None:
    pool = ready()
    published, *_ = pool.fail("b", "transport")
    assert published.record.trouble.what == "The connection to B was lost."
    assert pool.state is State.SPLITTING


def test_a_pc_that_said_goodbye_is_not_sought_behind_a_firewall() -> None:
    pool = ready()
    published, *_ = pool.change("b", is_reachable=False, has_left=True)
    assert published.record.trouble.what == "B was ended."
    assert "firewall" not in published.record.trouble.advice


def test_a_new_coordinator_says_so_too() -> None:
    pool = Coordinator(seen("a", epoch=7), seen("b", is_reachable=False, has_left=True), seen("c"))
    pool.take_office(ready_record())
    assert pool.record.trouble.what == "B was ended."


def test_a_stage_that_ends_again_soon_leaves_its_node_out() -> None:
    pool = ready()
    pool.fail("b", "stage_process_died")
    pool.bring_up()
    pool.fail("b", "stage_process_died")
    assert [share.node_id for share in pool.record.stages] == ["a", "c"]


def test_what_went_wrong_long_ago_is_forgiven() -> None:
    pool = ready()
    pool.fail("b", "stage_process_died")
    pool.bring_up()
    pool.wait(STEADY_S)
    pool.fail("b", "stage_process_died")
    assert [share.node_id for share in pool.record.stages] == ["a", "b"]


@pytest.mark.parametrize("epoch", [0, FIRST_EPOCH - 1])
def test_a_stage_that_its_node_doesnt_run_is_missed_after_a_while(epoch) -> None:
    """Nobody said that it ended, or that was lost."""
    pool = ready()
    pool.change("b", epoch=epoch)
    pool.wait(AMISS_S - 0.25)
    assert pool.state is State.READY
    pool.tick()
    assert pool.state is State.SPLITTING
    assert pool.record.trouble.what == "B no longer runs its layers."
    assert len(pool.machine.ledger.strikes) == 1


def test_a_report_that_comes_late_is_waited_for() -> None:
    pool = ready()
    pool.change("b", epoch=0)
    pool.wait(AMISS_S - 0.25)
    pool.change("b", epoch=FIRST_EPOCH)
    pool.change("b", epoch=0)
    pool.wait(AMISS_S - 0.25)
    assert pool.state is State.READY


# ---- the lines -------------------------------------------------------------------------------


def test_a_newcomer_stands_by_and_is_shown_within_seconds() -> None:
    pool = ready(seen("a"), seen("b"))
    pool.see(*pool.nodes.values(), seen("d"))
    assert pool.ordered(Publish) == []
    orders = pool.wait(LINES_EVERY_S)
    (published,) = [order for order in orders if isinstance(order, Publish)]
    assert published.record.epoch == FIRST_EPOCH
    assert pool.line("d").role == "standby"


def test_lines_are_published_every_few_seconds_at_most() -> None:
    pool = ready(seen("a"), seen("b"))
    for number in range(20):
        pool.see(*list(pool.nodes.values())[:2], seen(f"n{number}"))
        pool.tick(0.5)
    assert 2 <= len([o for o in pool.all if isinstance(o, Publish) and o.record.version > 4]) <= 3


@pytest.mark.parametrize(
    ("usable", "is_shown"),
    [(100, False), (110, False), (111, True), (90, False), (89, True)],
)
def test_a_tenth_of_a_pcs_memory_is_worth_showing(usable, is_shown) -> None:
    pool = ready()
    pool.change("c", usable=SMALL * usable // 100)
    pool.wait(LINES_EVERY_S)
    assert (pool.line("c").usable_bytes != SMALL) == is_shown


def test_a_pc_that_went_is_shown_as_such() -> None:
    pool = ready()
    pool.lose("c")
    pool.wait(LINES_EVERY_S)
    assert pool.line("c").reason == "It can't be reached."


def test_the_lines_of_a_placement_that_was_taken_over_are_refreshed_too() -> None:
    pool = Coordinator(seen("a", epoch=7), seen("b", epoch=7, devices=()))
    pool.take_office(ready_record())
    pool.wait(LINES_EVERY_S)
    assert [(line.node_id, line.role) for line in pool.record.plan] == [
        ("a", "stage"),
        ("b", "stage"),
    ]
    assert pool.line("b").needed_bytes > 600 * MIB


# ---- a better plan ---------------------------------------------------------------------------


def timed(name: str, layer_ms: float, usable: int = SMALL, **changes: object):  # type: ignore[no-untyped-def]
    links = dict.fromkeys(map(NodeId, "abcd"), 1.0)
    return seen(name, usable, layer_ms=layer_ms, link_ms=links, **changes)


def slow_pair() -> Coordinator:
    """Return a pool that runs on ``a`` and a slow ``b``; a fast ``c`` has just joined."""
    pool = ready(timed("a", 5.0), timed("b", 50.0))
    pool.see(*pool.nodes.values(), timed("c", 5.0))
    return pool


def test_a_much_faster_placement_is_moved_to_between_requests() -> None:
    pool = slow_pair()
    orders = pool.wait(REPLAN_EVERY_S - 0.25)
    assert [o for o in orders if isinstance(o, OrderSplit)] == []
    published, end, split = pool.tick()
    assert [share.node_id for share in published.record.stages] == ["a", "c"]
    assert published.record.trouble is None
    assert (end.epoch, split.epoch) == (FIRST_EPOCH, FIRST_EPOCH + 1)
    assert pool.machine.attempts == 0


def test_what_has_just_been_loaded_is_not_moved_at_once() -> None:
    pool = in_office(timed("a", 5.0), timed("b", 50.0))
    pool.wish()
    pool.see(*pool.nodes.values(), timed("c", 5.0))
    pool.bring_up()
    pool.wait(REPLAN_EVERY_S - 0.25)
    assert pool.machine.chain == ("a", "b")
    pool.tick()
    assert pool.machine.chain == ("a", "c")


def test_while_somebody_is_answered_nothing_is_moved() -> None:
    pool = slow_pair()
    pool.change("a", active_requests=1)
    pool.wait(3 * REPLAN_EVERY_S)
    assert pool.state is State.READY
    pool.change("a", active_requests=0)
    assert pool.state is State.SPLITTING


def test_a_better_plan_is_looked_for_now_and_then_only() -> None:
    pool = ready(timed("a", 5.0), timed("b", 50.0))
    pool.wait(REPLAN_EVERY_S)
    pool.see(*pool.nodes.values(), timed("c", 5.0))
    pool.wait(REPLAN_EVERY_S - 0.25)
    assert pool.state is State.READY
    pool.tick()
    assert pool.state is State.SPLITTING


def test_a_little_faster_is_not_worth_it() -> None:
    pool = ready(timed("a", 5.0), timed("b", 5.0))
    pool.see(*pool.nodes.values(), timed("c", 4.8))
    pool.wait(3 * REPLAN_EVERY_S)
    assert pool.state is State.READY


def better(pool: Coordinator, **changes: object) -> bool:
    pool.change("b", **changes)
    return has_better_plan(wish(), pool.record, pool.machine.nodes, Ledger())


def test_an_owner_who_wants_the_memory_back_gets_it() -> None:
    assert better(ready(), usable=SMALL // 2)


def test_a_tenth_too_little_memory_is_waited_out() -> None:
    assert not better(ready(), usable=int(SMALL * 0.92))


def test_what_cant_stay_and_has_no_alternative_stays() -> None:
    assert not better(ready(seen("a"), seen("b")), usable=SMALL // 2)


def test_a_pc_that_is_paused_is_left_between_requests() -> None:
    pool = ready()
    pool.change("b", facts=replace(pool.nodes["b"].facts, exclusions=(PAUSED,)))
    pool.wait(REPLAN_EVERY_S)
    assert [share.node_id for share in pool.record.stages] == ["a", "c"]


# ---- a second copy of the files --------------------------------------------------------------


def lone_keeper(*others) -> Coordinator:  # type: ignore[no-untyped-def]
    """Return a coordinator ``a`` and others, of which only the asker ``k`` keeps the model."""
    nodes = (seen("a", kept_models=()), seen("k"), *others)
    pool = Coordinator(*nodes)
    pool.take_office()
    pool.wish(wish(asked_on=NodeId("k")))
    return pool.bring_up()


def keeps(pool: Coordinator) -> list[str]:
    return [order.node_id for order in pool.all if isinstance(order, OrderKeep)]


def test_the_coordinator_keeps_the_model_too() -> None:
    pool = lone_keeper(seen("c", LARGE))
    assert pool.done[-1] == OrderKeep(NodeId("a"), "m")
    pool.change("a", kept_models=("m",))
    pool.wait(4 * KEEP_EVERY_S)
    assert keeps(pool) == ["a"]


def test_if_it_does_already_the_roomiest_of_the_others_does() -> None:
    nodes = (seen("a"), seen("c"), seen("d", 2 * SMALL, kept_models=()), seen("e", kept_models=()))
    pool = ready(*nodes)
    assert keeps(pool) == ["d"]


def test_who_doesnt_get_on_with_it_is_followed_by_the_next() -> None:
    pool = lone_keeper(seen("c"))
    pool.wait(KEEP_EVERY_S - 0.25)
    assert keeps(pool) == ["a"]
    pool.tick()
    assert keeps(pool) == ["a", "c"]
    pool.wait(KEEP_EVERY_S)
    assert keeps(pool) == ["a", "c", "a"]
    pool.wait(KEEP_EVERY_S)
    assert keeps(pool) == ["a", "c", "a", "c"]


def test_who_gets_on_with_it_is_waited_for() -> None:
    pool = lone_keeper(seen("c"))
    for _ in range(10):
        pool.wait(KEEP_EVERY_S / 2)
        pool.take(Progressed(NodeId("a"), 0))
    assert keeps(pool) == ["a"]
    pool.wait(KEEP_EVERY_S / 2)
    pool.take(Progressed(NodeId("c"), 0))  # it fetches something else
    pool.wait(KEEP_EVERY_S / 2)
    assert keeps(pool) == ["a", "c"]


def test_who_is_left_out_or_paused_or_gone_doesnt_keep_it() -> None:
    paused = replace(
        seen("d"), kept_models=(), facts=replace(seen("d").facts, exclusions=(PAUSED,))
    )
    gone = seen("e", kept_models=(), is_reachable=False)
    pool = ready(seen("a"), seen("c", LARGE), paused, gone)
    assert keeps(pool) == ["c"]
    pool.wish(wish(2))
    pool.cut()
    pool.fail("c", "storage")
    assert pool.state is State.FAILED
    assert keeps(pool) == ["c"]


def test_two_orders_to_keep_are_never_close_together() -> None:
    """Not even where the pool was loaded anew in between, or with another model."""
    pool = lone_keeper(seen("c"))
    pool.wish(wish(2, asked_on=NodeId("k"), model_sha256="n"))
    pool.bring_up()
    assert keeps(pool) == ["a"]
    pool.wait(KEEP_EVERY_S)
    assert [o for o in pool.all if isinstance(o, OrderKeep)][1] == OrderKeep(NodeId("a"), "n")


def test_copies_on_pcs_that_went_dont_count() -> None:
    pool = ready(seen("a"), seen("b"), seen("c"))
    assert keeps(pool) == []
    pool.lose("b")
    pool.bring_up()
    assert keeps(pool) == ["c"]

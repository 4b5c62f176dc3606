"""From a wish to ready."""

from __future__ import annotations

import pytest

from engine.domain import LayerRange, NodeId
from engine.errors import LocalProtocolError
from engine.messages.deployment import Deployment
from engine.pool.deployment import begin
from engine.pool.deployment_inputs import (
    LeftOffice,
    SplitEnded,
    StageLoaded,
    StageTrouble,
    Ticked,
    WarmEnded,
    Wished,
)
from engine.pool.deployment_orders import (
    OrderEnd,
    OrderKeep,
    OrderPlacement,
    OrderSplit,
    OrderWarmUp,
    Publish,
)
from engine.pool.deployment_state import (
    DECIDED,
    IN_OFFICE,
    PHASES,
    TRANSITIONS,
    Input,
    State,
    moved,
)
from tests.unit.pool.coordinator import (
    FIRST_EPOCH,
    LARGE,
    ME,
    SMALL,
    in_office,
    loading,
    ready,
    ready_record,
    seen,
    share,
    splitting,
    term,
    trouble,
    wish,
)

# ---- the road to ready -----------------------------------------------------------------------


def test_a_wish_is_planned_published_and_cut_at_once() -> None:
    pool = in_office()
    published, split = pool.wish()
    record = published.record
    assert record.order == (term(5), 1)
    assert record.phase == "splitting"
    assert record.wish == wish()
    assert [share.node_id for share in record.stages] == ["a", "b"]
    assert record.reason == "No PC holds the model alone; these are the fewest that do."
    assert pool.line("c").role == "standby"
    assert pool.line("a").needed_bytes > 0
    layers = tuple(stage.layers for stage in record.stages)
    assert split == OrderSplit(NodeId("a"), FIRST_EPOCH, wish(), layers)


def test_what_is_cut_is_loaded_by_every_node_of_the_chain() -> None:
    pool = splitting()
    published, order = pool.cut()
    assert published.record.manifest_sha256 == "f"
    assert published.record.phase == "loading"
    assert order == OrderPlacement(published.record, (NodeId("a"), NodeId("b")))


def test_the_head_warms_up_when_every_stage_is_loaded() -> None:
    pool = loading()
    assert pool.load("b") == []
    assert pool.load("b") == []  # told twice
    published, order = pool.load("a")
    assert published.record.phase == "warming"
    assert order == OrderWarmUp(NodeId("a"), FIRST_EPOCH)


def test_a_node_that_says_it_runs_its_stage_has_loaded_it() -> None:
    """What it answered was lost."""
    pool = loading()
    pool.load("a")
    pool.change("b", epoch=FIRST_EPOCH)
    assert pool.state is State.WARMING


def test_the_pool_is_ready_when_a_token_came_round() -> None:
    pool = loading()
    pool.load()
    published, *_ = pool.warm()
    assert published.record.phase == "ready"
    assert published.record.trouble is None
    assert [order.record.version for order in pool.all if isinstance(order, Publish)] == [
        1,
        2,
        3,
        4,
    ]


def test_one_pc_alone_comes_up_too() -> None:
    pool = ready(seen("a", LARGE))
    assert pool.record.stages == (share("a", 0, 6),)
    assert pool.ordered(OrderKeep) == []  # there is nobody else


def test_exact_mode_plans_for_the_larger_cache() -> None:
    needs = []
    for mode in ("fast", "exact"):
        pool = in_office(seen("a", LARGE))
        pool.wish(wish(mode=mode, context_tokens=4096))
        needs.append(pool.line("a").needed_bytes)
    assert needs[0] < needs[1]


# ---- what is wished --------------------------------------------------------------------------


@pytest.mark.parametrize("wished", [wish(1), None])
def test_a_wish_that_is_repeated_changes_nothing(wished) -> None:
    pool = ready()
    pool.take(Wished(wished, "w1" if wished else "w2"))
    orders = len(pool.all)
    pool.take(Wished(wished, "w1" if wished else "w2"))
    pool.take(Wished(wished, "w1" if wished else "w3"))
    assert len(pool.all) == orders


def test_a_wish_that_another_replaced_is_not_obeyed_again() -> None:
    """Or two that repeat theirs would have the pool load for ever."""
    pool = splitting()
    pool.wish(wish(2))
    assert pool.wish(wish(1)) == []
    assert pool.record.wish == wish(2)


def test_a_new_wish_ends_what_runs_first() -> None:
    pool = ready()
    published, end, split = pool.wish(wish(2))
    assert published.record.wish == wish(2)
    assert end == OrderEnd((NodeId("a"), NodeId("b"), NodeId("c")), FIRST_EPOCH)
    assert split.epoch == published.record.epoch == FIRST_EPOCH + 1


def test_unloading_ends_what_runs_everywhere() -> None:
    pool = ready()
    assert pool.take(Wished(None, "w2")) == [
        Publish(Deployment(term=term(5), version=5, phase="unloaded")),
        OrderEnd((NodeId("a"), NodeId("b"), NodeId("c")), FIRST_EPOCH),
    ]
    assert pool.state is State.IDLE


def test_unloading_nothing_is_recorded_once() -> None:
    """Whoever asked waits for the record."""
    pool = in_office()
    (published,) = pool.take(Wished(None, "w2"))
    assert published.record.phase == "unloaded"
    assert pool.take(Wished(None, "w3")) == []


def test_the_asker_can_cut_before_it_has_told_that_it_keeps_the_model() -> None:
    pool = in_office(seen("a", LARGE, kept_models=()))
    pool.wish()
    assert pool.ordered(OrderSplit)[0].node_id == "a"


def test_an_asker_that_is_not_known_yet_is_waited_for() -> None:
    pool = in_office(seen("a", LARGE, kept_models=()))
    pool.wish(wish(asked_on=NodeId("n")))
    assert pool.record.phase == "failed"
    pool.take(Ticked(), 2.0)
    pool.see(*pool.nodes.values(), seen("n"))
    assert pool.ordered(OrderSplit)[0].node_id == "n"


# ---- answers that are not to what is asked now -----------------------------------------------


@pytest.mark.parametrize("stage", [splitting, loading, ready])
def test_what_is_said_of_another_epoch_is_ignored(stage) -> None:
    pool = stage()
    before = pool.machine
    for epoch in (0, FIRST_EPOCH - 1):
        for happened in (
            SplitEnded(ME, epoch, "other"),
            StageLoaded(ME, epoch),
            StageTrouble(ME, epoch, trouble("storage")),
            WarmEnded(ME, epoch, trouble("storage")),
        ):
            assert pool.take(happened) == []
    assert pool.machine == before


def test_who_was_not_asked_is_not_believed() -> None:
    pool = splitting()
    assert pool.cut("b") == []
    pool.cut()
    assert pool.load("c") == []
    assert pool.fail("c", "storage") == []
    pool.load()
    assert pool.take(WarmEnded(NodeId("b"), FIRST_EPOCH)) == []
    assert pool.state is State.WARMING


def test_a_stage_has_no_trouble_while_the_model_is_cut() -> None:
    pool = splitting()
    assert pool.fail("a", "storage") == []


# ---- epochs ----------------------------------------------------------------------------------


def test_no_epoch_is_given_out_that_somebody_may_have_in_mind() -> None:
    pool = in_office(seen("a", LARGE, epoch=7), seen("b", epoch=8))
    drawn = iter((0, 7, 9, 9))
    pool.draw = lambda: next(drawn)
    pool.wish()
    assert pool.machine.epoch == 1
    pool.wish(wish(2))
    assert pool.machine.epoch == 9  # 7 and 8 run somewhere
    pool.wish(wish(3))
    assert pool.machine.epoch == 10


def test_epochs_of_earlier_offices_are_not_given_out_either() -> None:
    pool = in_office(seen("a", LARGE))
    pool.draw = lambda: 7
    pool.wish()
    pool.take(LeftOffice())
    pool.take_office(ready_record(epoch=8), counter=6)
    assert pool.machine.epoch == 9


# ---- the table -------------------------------------------------------------------------------


def test_what_is_not_in_the_table_cant_happen() -> None:
    pool = ready()
    with pytest.raises(
        LocalProtocolError, match="'model cut' can't happen to a pool that is ready"
    ):
        moved(pool.machine, Input.CUT)
    with pytest.raises(LocalProtocolError, match="out of office has no record"):
        _ = begin(ME).deployment
    with pytest.raises(LocalProtocolError, match="out of office has no wish"):
        _ = begin(ME).wanted


def test_every_state_can_be_left_and_reached() -> None:
    assert {before for before, _ in TRANSITIONS} == set(State)
    assert set(TRANSITIONS.values()) == set(State)
    assert set(PHASES) == set(DECIDED)
    assert set(IN_OFFICE) == set(State) - {State.OUT}
    for state in IN_OFFICE:
        assert TRANSITIONS[state, Input.LEFT_OFFICE] is State.OUT


def test_the_layers_in_an_order_to_cut_are_those_of_the_record() -> None:
    pool = splitting()
    (order,) = pool.ordered(OrderSplit)
    assert order.layers == (LayerRange(0, 3), LayerRange(3, 6))
    assert pool.nodes["a"].facts.usable_bytes == SMALL

"""From one coordinator to the next."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from engine.domain import NodeId
from engine.messages.deployment import Deployment
from engine.pool.deployment import begin
from engine.pool.deployment_inputs import (
    Known,
    LeftOffice,
    StageLoaded,
    Ticked,
    TookOffice,
    Wished,
)
from engine.pool.deployment_orders import (
    OrderEnd,
    Publish,
)
from engine.pool.deployment_state import (
    SETTLE_S,
    State,
)
from tests.unit.pool.coordinator import (
    FIRST_EPOCH,
    LARGE,
    ME,
    Coordinator,
    in_office,
    ready,
    ready_record,
    seen,
    share,
    splitting,
    term,
    trouble,
    wish,
)

UNLOADED = Deployment(term=term(1, "z"), version=4, phase="unloaded")

# ---- in office and out of it -----------------------------------------------------------------


def test_out_of_office_nothing_is_done() -> None:
    pool = Coordinator(seen("a", LARGE))
    for happened in (Wished(wish(), "w1"), Known(ready_record()), Ticked(), StageLoaded(ME, 7)):
        assert pool.take(happened, 9.0) == []
    assert pool.machine == replace(begin(ME), nodes=pool.machine.nodes)


def test_leaving_office_drops_everything_but_who_is_there() -> None:
    pool = ready()
    before = pool.machine
    assert pool.take(LeftOffice()) == []
    assert pool.machine == replace(begin(ME), nodes=before.nodes, epochs=before.epochs)
    assert pool.wait(60.0) == []


def test_an_office_begins_with_a_moment_for_the_nodes_to_tell_what_they_know() -> None:
    pool = Coordinator(seen("a"), seen("b"))
    pool.take(TookOffice(term(5), None))
    assert pool.wish() == []  # it is repeated
    assert pool.tick(SETTLE_S - 0.01) == []
    assert pool.state is State.SETTLING
    pool.tick(0.01)
    assert pool.state is State.IDLE


def test_an_office_doesnt_begin_before_it_has_seen_anybody() -> None:
    pool = Coordinator()
    pool.take_office(ready_record())
    assert pool.state is State.SETTLING
    pool.see(seen("a", epoch=7), seen("b", epoch=7))
    assert pool.state is State.READY


def test_without_a_record_a_new_coordinator_is_silent() -> None:
    pool = in_office()
    assert pool.wait(60.0) == []


def test_that_nothing_is_to_run_is_said_under_the_new_term() -> None:
    pool = Coordinator(seen("a"))
    assert pool.take_office(UNLOADED) == [
        Publish(Deployment(term=term(5), version=1, phase="unloaded"))
    ]


def test_what_runs_is_kept_as_it_is() -> None:
    pool = Coordinator(seen("a", epoch=7), seen("b", epoch=7))
    record = ready_record()
    assert pool.take_office(record) == [Publish(replace(record, term=term(5), version=1))]
    assert pool.state is State.READY


@pytest.mark.parametrize(
    ("other", "what"),
    [
        (None, "b can't be reached any more."),
        (seen("b", epoch=7, is_reachable=False), "B can't be reached any more."),
        (seen("b", epoch=0), "Daisy was restarted on B."),
        (seen("b", epoch=8), "Daisy was restarted on B."),
    ],
)
def test_what_doesnt_run_any_more_is_planned_anew(other, what) -> None:
    nodes = [seen("a", LARGE, epoch=7), *([other] if other else [])]
    pool = Coordinator(*nodes)
    published, end, split = pool.take_office(ready_record())
    assert published.record.trouble.what == what
    assert end == OrderEnd(pool.machine.reachable, 7)
    assert split.epoch == FIRST_EPOCH


def test_a_lost_pc_keeps_its_name_when_only_the_record_knows_it() -> None:
    line = ready(seen("a"), seen("b")).record.plan[1]
    pool = Coordinator(seen("a", LARGE, epoch=7))
    pool.take_office(ready_record(plan=(line,)))
    assert pool.record.trouble.what == "B can't be reached any more."


@pytest.mark.parametrize("phase", ["planning", "splitting", "loading", "warming", "failed"])
def test_what_was_not_ready_is_planned_anew(phase) -> None:
    pool = Coordinator(seen("a", epoch=7), seen("b", epoch=7))
    pool.take_office(ready_record(phase=phase, trouble=trouble("storage")))
    assert pool.state is State.SPLITTING
    assert pool.ordered(OrderEnd) == [OrderEnd((NodeId("a"), NodeId("b")), 7)]
    assert pool.record.trouble is None


@pytest.mark.parametrize(
    "stages",
    [
        (),
        (share("a", 0, 3),),
        (share("a", 0, 3), share("b", 4, 6)),
        (share("a", 0, 3), share("b", 3, 3), share("b", 3, 6)),
    ],
)
def test_a_record_that_doesnt_cover_the_model_is_not_taken_for_ready(stages) -> None:
    pool = Coordinator(seen("a", epoch=7), seen("b", epoch=7))
    pool.take_office(ready_record(stages=stages))
    assert pool.state is State.SPLITTING


def test_a_record_whose_model_contradicts_itself_is_not_taken_for_ready() -> None:
    pool = Coordinator(seen("a", epoch=7), seen("b", epoch=7))
    odd = wish(model=replace(wish().model, layer_bytes=(1,)))
    pool.take_office(ready_record(wish=odd))
    assert pool.record.phase == "failed"
    assert pool.record.trouble.code == "model_unsupported"
    assert pool.record.plan == ()


# ---- the newest record counts ----------------------------------------------------------------


def settling(record: Deployment | None) -> Coordinator:
    pool = Coordinator(seen("a", epoch=8), seen("b", epoch=8))
    pool.take(TookOffice(term(5), record))
    return pool


@pytest.mark.parametrize(
    ("own", "known", "counts"),
    [
        (None, (1, 1), True),
        ((1, 9), (1, 10), True),
        ((1, 9), (2, 1), True),
        ((1, 9), (1, 9), False),
        ((1, 9), (1, 8), False),
        ((1, 9), (6, 1), False),
    ],
)
def test_the_highest_record_that_is_not_of_a_later_term_counts(own, known, counts) -> None:
    pool = settling(own and ready_record(own, epoch=8, wish=wish(3)))
    pool.take(Known(ready_record(known, epoch=8, wish=wish(4))))
    pool.tick(SETTLE_S)
    assert pool.record.wish == wish(4 if counts else 3)


def test_an_own_record_of_a_later_term_doesnt_count() -> None:
    pool = settling(ready_record((6, 1)))
    assert pool.tick(SETTLE_S) == []
    assert pool.state is State.IDLE


def test_the_version_goes_on_from_that_of_an_own_record_of_the_same_term() -> None:
    pool = settling(replace(ready_record(epoch=8), term=term(5), version=30))
    assert pool.tick(SETTLE_S) == []  # it is what it was
    published, *_ = pool.wish(wish(2))
    assert published.record.version == 31


def test_a_newer_record_that_comes_late_counts_if_nothing_was_decided() -> None:
    pool = settling(None)
    pool.tick(SETTLE_S)
    (published,) = pool.take(Known(ready_record((2, 2), epoch=8)))
    assert published.record.phase == "ready"
    late = ready_record((3, 1), epoch=9)
    pool.take(Known(late))
    assert pool.record.trouble.what == "Daisy was restarted on A."
    assert pool.ordered(OrderEnd) == [OrderEnd((NodeId("a"), NodeId("b")), 8)]
    assert pool.ordered(Publish)[0].record.version == 2


@pytest.mark.parametrize("order", [(2, 2), (2, 1), (5, 9), (6, 1)])
def test_late_is_too_late_for_others(order) -> None:
    """Of an older record, of one of this term or a later one."""
    pool = settling(ready_record((2, 2), epoch=8))
    pool.tick(SETTLE_S)
    late = replace(ready_record(order, epoch=9), term=term(order[0]))
    assert pool.take(Known(late)) == []
    assert pool.state is State.READY


def test_late_is_too_late_once_something_was_decided() -> None:
    pool = splitting()
    assert pool.take(Known(ready_record((4, 1), epoch=8))) == []


def test_moving_what_was_taken_over_is_a_decision() -> None:
    pool = settling(ready_record((2, 2), epoch=8))
    pool.tick(SETTLE_S)
    pool.fail("a", "transport")
    assert pool.state is State.SPLITTING
    assert pool.take(Known(ready_record((4, 1), epoch=8))) == []

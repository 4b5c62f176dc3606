from msgspec.structs import replace

from app.pool.forecast import error_percent, layer_work, tokens_per_s
from app.pool.memory_parts import memory_parts
from app.pool.ring import ring_of
from engine.domain import LayerRange, NodeId
from engine.messages.pool import Neighbour
from tests.app.pools import (
    ATTIC,
    DESK,
    GIB,
    LAPTOP,
    OLD,
    deployment,
    line,
    loaded,
    model,
    node,
    pool,
    report,
    three_pcs,
)


def test_petals_stand_in_the_order_of_the_chain_whatever_the_order_of_the_nodes():
    status = three_pcs()
    status = replace(status, nodes=status.nodes[::-1])

    ring = ring_of(status)

    assert [pc.node_id for pc in ring.petals] == [DESK, LAPTOP]
    assert [str(pc.layers[0]) for pc in ring.petals] == ["0..21", "22..39"]
    assert ring.petals[0].takes_questions
    assert not ring.petals[1].takes_questions
    assert [pc.is_coordinator for pc in ring.petals] == [False, True]
    assert ring.is_running
    assert all(pc.is_loaded for pc in ring.petals)


def test_a_pc_left_out_stands_outside_with_its_reason_and_what_would_help():
    (old,) = ring_of(three_pcs()).outside

    assert (old.node_id, old.role) == (OLD, "left out")
    assert "needs 1.4 GiB" in old.reason
    assert old.remedy == "Close programs there that hold 0.9 GiB."


def test_the_slowest_stage_sets_the_pace_by_its_own_time_head_included():
    ring = ring_of(three_pcs())

    desk, laptop = ring.petals
    assert desk.stage_ms == 22 * 1.6
    assert laptop.stage_ms == 2.4 * (18 + 800_000_000 / 180_000_000)
    assert (desk.sets_the_pace, laptop.sets_the_pace) == (False, True)


def test_one_pc_alone_sets_no_pace_and_has_no_links():
    status = pool(node(DESK, loaded(DESK, 0, 40)), deployment=deployment(shares=((DESK, 0, 40),)))

    ring = ring_of(status)

    assert ring.links == ()
    assert not ring.petals[0].sets_the_pace
    assert ring.forecast == 1000 / (1.6 * (40 + 800 / 180))


def test_links_carry_the_slower_kind_and_the_round_trip_either_end_measured():
    first, back = ring_of(three_pcs()).links

    assert (first.sender, first.receiver) == (DESK, LAPTOP)
    assert (back.sender, back.receiver) == (LAPTOP, DESK)
    assert first.kind == back.kind == "wireless"
    assert first.round_trip_ms == back.round_trip_ms == 0.8


def test_a_round_trip_between_two_others_is_taken_from_what_they_tell():
    attic = loaded(ATTIC, 22, 40, neighbours=(Neighbour(LAPTOP, "192.0.2.98:7420", 3.5),))
    status = pool(
        node(DESK),
        node(LAPTOP, loaded(LAPTOP, 0, 22)),
        node(ATTIC, attic),
        deployment=deployment(shares=((LAPTOP, 0, 22), (ATTIC, 22, 40))),
    )

    assert [link.round_trip_ms for link in ring_of(status).links] == [3.5, 3.5]


def test_a_plan_is_shown_before_there_are_stages():
    record = deployment("planning", shares=(), plan=())
    record = replace(
        record,
        epoch=0,
        plan=(
            line(LAPTOP, layers=LayerRange(22, 40)),
            line(DESK, layers=LayerRange(0, 22)),
            line(OLD, "standby"),
        ),
    )

    ring = ring_of(pool(node(DESK), node(LAPTOP), node(OLD), deployment=record))

    assert ring.is_plan
    assert [pc.node_id for pc in ring.petals] == [DESK, LAPTOP]
    assert [pc.role for pc in ring.outside] == ["standby"]
    assert not any(pc.is_loaded for pc in ring.petals)


def test_without_a_model_everyone_who_is_there_stands_in_the_ring():
    status = pool(node(DESK), node(LAPTOP), node(OLD, state="offline"))

    ring = ring_of(status)

    assert [pc.role for pc in ring.petals] == ["present", "present"]
    assert [pc.role for pc in ring.outside] == ["offline"]
    assert ring.links == ()
    assert ring.forecast is None
    assert ring.phase == "unloaded"


def test_a_stage_on_a_pc_nobody_sees_any_more_keeps_its_name_from_the_plan():
    status = pool(node(DESK, loaded(DESK, 0, 22)), deployment=deployment())

    lost = ring_of(status).petals[1]

    assert (lost.name, lost.state, lost.is_loaded) == ("LAPTOP", "gone", False)


def test_a_pc_with_both_ends_of_the_chain_is_one_petal_with_two_ranges():
    shares = ((DESK, 0, 2), (LAPTOP, 2, 39), (DESK, 39, 40))
    status = pool(node(DESK), node(LAPTOP), deployment=deployment(shares=shares))

    ring = ring_of(status)

    assert [pc.node_id for pc in ring.petals] == [DESK, LAPTOP]
    assert ring.petals[0].layers == (LayerRange(0, 2), LayerRange(39, 40))
    assert [(link.sender, link.receiver) for link in ring.links] == [
        (DESK, LAPTOP),
        (LAPTOP, DESK),
    ]


def test_a_pc_that_told_nothing_yet_has_a_name_and_no_figures():
    silent = NodeId("z" * 20)
    (pc,) = ring_of(pool(node(silent, own=report(silent, name=" ")))).petals

    assert pc.name == "PC zzzzzz"
    assert pc.stage_ms is None


def test_memory_parts_make_up_the_whole_and_obey_the_owners_limit():
    told = report(DESK, memory_lent_bytes=3 * GIB, memory_cap_bytes=5 * GIB)

    parts = memory_parts(told, GIB)

    assert (parts.system, parts.used, parts.lendable, parts.kept) == (
        4 * GIB,
        3 * GIB,
        2 * GIB,
        7 * GIB,
    )
    assert parts.total == 16 * GIB
    assert parts.lent == 5 * GIB


def test_memory_that_does_not_add_up_never_becomes_negative():
    told = report(DESK, memory_free_bytes=99 * GIB, memory_lent_bytes=20 * GIB)

    parts = memory_parts(told, 50 * GIB)

    assert min(parts.system, parts.used, parts.lendable, parts.kept) >= 0
    assert parts.total == 16 * GIB


def test_a_forecast_needs_every_stage_measured_and_counts_half_of_each_round_trip():
    assert tokens_per_s([40.0, None], [1.0]) is None
    assert tokens_per_s([], []) is None
    assert tokens_per_s([40.0, 50.0], [10.0, 10.0]) == 10.0
    assert tokens_per_s([99.0], [2.0]) == 10.0


def test_a_forecasts_error_is_told_in_percent_of_what_came():
    assert error_percent(11.0, 10.0) == 10
    assert error_percent(9.0, 10.0) == -10
    assert error_percent(None, 10.0) is None
    assert error_percent(9.0, 0.0) is None


def test_the_work_of_the_last_layers_has_the_head_in_it():
    two = model(num_layers=2, layer_bytes=100, head_bytes=300)

    assert layer_work(two, [LayerRange(0, 1)]) == 1.0
    assert layer_work(two, [LayerRange(1, 2)]) == 4.0
    assert layer_work(two, []) == 0.0


def test_who_left_on_purpose_is_no_longer_shown_and_who_was_lost_is():
    status = pool(node(DESK), node(LAPTOP, state="gone"), node(OLD, state="offline"))

    assert [pc.node_id for pc in ring_of(status).pcs] == [DESK, OLD]

"""Plans a person can check by hand: who gets which layers, and what is said of those who don't."""

import math
import re
from itertools import permutations

import msgspec
import pytest

from engine.domain import LayerRange
from engine.errors import (
    InsufficientMemoryError,
    PlacementError,
    UsageError,
    in_binary_units,
)
from engine.pool.chain_choice import Wishes
from engine.pool.chain_search import can_hold, order_of_many
from engine.pool.deployment_plan import UNREACHABLE
from engine.pool.placement import plan_placement, replan
from engine.pool.plan import Exclusion, in_gib, plan_rows
from engine.pool.stage_memory import (
    LAYER_PROCESS_BYTES,
    PROCESS_BYTES,
    StageMemory,
    Workload,
    stage_memory,
    stage_sizes,
    usable_for,
)
from tests.unit.pool.models import GIB, MIB, SHORT, model, node, node_holding

MODEL = model()
SIZES = stage_sizes(MODEL, SHORT)
LAYER = SIZES.layers[0]
PAUSED = Exclusion("It is paused by its owner.", "Resume it in its tray.")


def chain(plan):
    return [(stage.node_id, stage.layers.start, stage.layers.stop) for stage in plan.stages]


def row(plan, node_id):
    return next(row for row in plan.rows if row.node_id == node_id)


def half(extra=0):
    """Return a capacity for half of MODEL, wherever the half is."""
    return 2 * LAYER + SIZES.head + extra


# ---- what a stage takes


def test_a_stage_takes_mapped_and_repacked_weights_kv_process_and_a_fifth():
    """Computed by hand for two middle layers, 2 users of 100 tokens."""
    workload = Workload(context_tokens=100, max_sequences=2)
    memory = stage_memory(MODEL, workload, LayerRange(1, 3))
    assert memory.weights_bytes == 200 * MIB
    assert memory.repacked_bytes == 2 * math.ceil(109 * MIB)
    blocks = math.ceil(200 / 32) + 2
    assert memory.kv_bytes == 2 * blocks * 32 * 2 * (80 + 64 + 8)
    assert memory.process_bytes == PROCESS_BYTES + 2 * LAYER_PROCESS_BYTES
    bare = memory.total_bytes - memory.headroom_bytes
    assert bare == sum(msgspec.structs.astuple(memory)[:4])
    assert memory.headroom_bytes == math.ceil(bare / 5)


def test_the_embedding_is_looked_up_and_the_head_is_repacked():
    """So the first costs its bytes once and the second twice and a bit."""
    first = stage_memory(MODEL, SHORT, LayerRange(0, 1))
    middle = stage_memory(MODEL, SHORT, LayerRange(1, 2))
    last = stage_memory(MODEL, SHORT, LayerRange(3, 4))
    assert first.weights_bytes - middle.weights_bytes == 50 * MIB
    assert first.repacked_bytes == middle.repacked_bytes
    assert last.weights_bytes - middle.weights_bytes == 60 * MIB
    assert last.repacked_bytes - middle.repacked_bytes == math.ceil(60 * MIB * 1.09)


@pytest.mark.parametrize(
    ("changes", "per_token"),
    [
        ({"kv_precision": "f16"}, 2 * 128 * 2),
        ({"kv_precision": "f32"}, 2 * 128 * 4),
        ({"kind": "stateful"}, 2 * 2 * (80 + 64 + 8)),
    ],
)
def test_kv_follows_precision_and_kind(changes, per_token):
    """Stateful caches double when they grow."""
    workload = msgspec.structs.replace(SHORT, **changes)
    assert stage_memory(MODEL, workload, LayerRange(0, 1)).kv_bytes == 64 * per_token


def test_what_the_search_counts_is_what_the_stage_takes():
    """The same rounding in both, for every range."""
    odd = model(layer_bytes=[101, 7, 33], embedding=13, head=77)
    sizes = stage_sizes(odd, SHORT)
    for start in range(3):
        for stop in range(start + 1, 4):
            counted = sizes.ends[stop] - sizes.ends[start]
            counted += sizes.embedding if start == 0 else 0
            counted += sizes.head if stop == 3 else 0
            taken = stage_memory(odd, SHORT, LayerRange(start, stop)).total_bytes
            assert taken == usable_for(counted)


@pytest.mark.parametrize(
    ("num_layers", "layer_mb", "embedding_mb", "head_mb", "kv_mb", "resident_mb"),
    [
        (32, 110, 525, 632, 0, 8802),
        (24, 7.76, 0, 136.3, 0, 882),  # tied
        (30, 2.05, 31, 31, 14.9, 403),  # tied, in one shard
        (23, 2.05, 31, 0, 11.4, 288),
        (7, 2.05, 0, 31, 3.5, 237),
        (13, 2.05, 31, 0, 6.4, 218),
        (16, 2.05, 0, 0, 8, 235),
        (1, 2.05, 0, 31, 0.5, 196),
    ],
)
def test_what_was_measured_is_within_fifteen_percent_of_the_plan(
    num_layers, layer_mb, embedding_mb, head_mb, kv_mb, resident_mb
):
    """Resident size of stage processes on the CPU, their KV cache filled."""
    measured = model(
        num_layers, round(layer_mb * 1e6), round(embedding_mb * 1e6), round(head_mb * 1e6)
    )
    memory = stage_memory(measured, SHORT, LayerRange(0, num_layers))
    planned = memory.total_bytes - memory.headroom_bytes - memory.kv_bytes + kv_mb * 1e6
    assert 0.85 <= planned / (resident_mb * 1e6) <= 1.15


@pytest.mark.parametrize("field", ["context_tokens", "max_sequences"])
def test_a_workload_of_nothing_is_refused(field):
    """Zero tokens or users are a mistake of whoever asks."""
    workload = msgspec.structs.replace(SHORT, **{field: 0})
    with pytest.raises(UsageError, match=f"{field} is 0"):
        plan_placement(MODEL, workload, [node("a")])


# ---- which PCs


def test_one_pc_runs_it_all_if_it_can():
    """Also where others are there; they stand by."""
    plan = plan_placement(MODEL, SHORT, [node("a", 100 * MIB), node("b"), node("c", 4 * GIB)])
    assert chain(plan) == [("b", 0, 4)]
    assert [r.role for r in plan.rows] == ["stage", "left out", "standby"]
    assert plan.basis == "memory"
    assert plan.expected is None
    assert plan.node_ids == {"b"}


def test_the_askers_pc_comes_first_then_one_on_mains():
    """The roomiest is neither."""
    nodes = [node("a", 9 * GIB, on_battery=True), node("b"), node("c", 7 * GIB)]
    assert chain(plan_placement(MODEL, SHORT, nodes, Wishes(asker="a"))) == [("a", 0, 4)]
    assert chain(plan_placement(MODEL, SHORT, nodes)) == [("b", 0, 4)]


def test_the_fewest_pcs_that_hold_it_share_in_proportion_to_memory():
    """Three would do as well; two do. The one with three times the room has more layers."""
    eight = model(8)
    sizes = stage_sizes(eight, SHORT)
    nodes = [
        node_holding("a", 2 * LAYER + sizes.embedding),
        node_holding("b", 6 * LAYER + sizes.head),
        node_holding("c", LAYER),
    ]
    plan = plan_placement(eight, SHORT, nodes)
    assert chain(plan) == [("a", 0, 2), ("b", 2, 8)]
    assert row(plan, "c").role == "standby"


def test_usable_memory_is_the_cap_or_what_is_free_without_the_reserve():
    """What its stages hold already comes back; never less than nothing."""
    assert node("a", 8 * GIB, reserve_bytes=GIB).usable_bytes == 7 * GIB
    assert node("a", 8 * GIB, reserve_bytes=GIB, cap_bytes=2 * GIB).usable_bytes == 2 * GIB
    assert node("a", 1 * GIB, lent_bytes=3 * GIB).usable_bytes == 4 * GIB
    assert node("a", 1 * GIB, reserve_bytes=2 * GIB).usable_bytes == 0


def test_a_pc_that_may_not_be_used_says_why_and_what_would_help():
    """Paused, without a device, too full, or capped too low."""
    nodes = [
        node("a", exclusions=(PAUSED,)),
        node("b", devices=()),
        node("c", 100 * MIB),
        node("d", cap_bytes=200 * MIB),
        node("e"),
    ]
    plan = plan_placement(MODEL, SHORT, nodes)
    assert chain(plan) == [("e", 0, 4)]
    told = {r.node_id: (r.reason, r.remedy) for r in plan.rows if r.role == "left out"}
    assert told["a"] == ("It is paused by its owner.", "Resume it in its tray.")
    assert told["b"] == ("It has no device that can hold a stage.", "Update its drivers.")
    need = in_gib(usable_for(LAYER))
    assert need in told["c"][0]
    assert told["c"][1].startswith("Close programs there that hold ")
    assert told["d"][1].startswith("Raise its memory limit by ")


def test_a_row_has_all_the_numbers():
    """Total, free, reserved, lent, usable, and bytes by kind."""
    plan = plan_placement(MODEL, SHORT, [node("a", reserve_bytes=GIB, lent_bytes=MIB)])
    (only,) = plan.rows
    assert (only.total_bytes, only.free_bytes, only.reserved_bytes) == (16 * GIB, 8 * GIB, GIB)
    assert (only.lent_bytes, only.usable_bytes) == (MIB, 7 * GIB + MIB)
    assert only.layers == (LayerRange(0, 4),)
    assert only.memory == stage_memory(MODEL, SHORT, LayerRange(0, 4))
    assert only.name == "A"


def test_the_order_of_the_pcs_given_changes_nothing():
    """All 24 orders of four PCs."""
    nodes = [node_holding(n, half(i * MIB)) for i, n in enumerate("abcd")]
    plans = {msgspec.json.encode(plan_placement(MODEL, SHORT, p)) for p in permutations(nodes)}
    assert len(plans) == 1


def test_the_order_is_the_one_that_fits():
    """Only b can hold the head, only a the embedding."""
    wide = model(2, 100 * MIB, embedding=400 * MIB, head=10 * MIB)
    sizes = stage_sizes(wide, SHORT)
    nodes = [
        node_holding("b", sizes.layers[0] + sizes.embedding),
        node_holding("a", sizes.layers[0] + sizes.head),
    ]
    assert chain(plan_placement(wide, SHORT, nodes)) == [("b", 0, 1), ("a", 1, 2)]


def test_the_head_is_near_the_asker():
    """On its PC if that is in the chain, else on the PC with the shortest link."""
    nodes = [
        node_holding("a", half(), link_ms={"x": 9.0}),
        node_holding("b", half(), link_ms={"x": 1.0}),
        node("x", 10 * MIB),
    ]
    assert chain(plan_placement(MODEL, SHORT, nodes, Wishes(asker="b")))[0][0] == "b"
    assert chain(plan_placement(MODEL, SHORT, nodes, Wishes(asker="x")))[0][0] == "b"


def test_links_order_the_ring():
    """Four PCs in a square whose sides are short and diagonals long."""
    side, diagonal = 1.0, 50.0
    links = {
        "a": {"c": side, "d": side, "b": diagonal},
        "b": {"c": side, "d": side, "a": diagonal},
        "c": {"d": diagonal},
        "d": {},
    }
    one = LAYER + SIZES.head
    nodes = [node_holding(n, one, link_ms=links[n]) for n in "abcd"]
    ids = [stage.node_id for stage in plan_placement(MODEL, SHORT, nodes).stages]
    assert ids == ["a", "c", "b", "d"]


def test_seven_pcs_are_too_many_for_every_order_and_still_get_one_layer_each():
    """The order comes from the search then."""
    seven = model(7)
    nodes = [node_holding(n, LAYER + SIZES.head) for n in "abcdefg"]
    plan = plan_placement(seven, SHORT, nodes)
    assert sorted(s.node_id for s in plan.stages) == list("abcdefg")
    assert [len(s.layers) for s in plan.stages] == [1] * 7


def test_more_pcs_than_are_searched_are_used_when_they_are_needed():
    """Twelve PCs of one layer each."""
    twelve = model(12)
    nodes = [node_holding(f"n{i:02}", LAYER + SIZES.head) for i in range(12)]
    assert len(plan_placement(twelve, SHORT, nodes).stages) == 12
    assert can_hold(stage_sizes(twelve, SHORT), [LAYER + SIZES.head] * 12)
    assert not can_hold(stage_sizes(twelve, SHORT), [LAYER + SIZES.head] * 11)


@pytest.mark.parametrize("many", [2, 12])
def test_no_two_pcs_with_one_id(many):
    """The second is a copy of the first; membership must settle it."""
    with pytest.raises(PlacementError, match="Two PCs have the id a"):
        plan_placement(MODEL, SHORT, [node("a")] * many)


# ---- by time


def timed(name, layer_ms, capacity=8 * GIB, **facts):
    return node_holding(name, capacity, layer_ms=layer_ms, **facts)


def links(to, ms=1.0):
    return dict.fromkeys(to, ms)


def test_the_fastest_pc_runs_it_alone():
    """Not the asker's, and not the roomiest."""
    plan = plan_placement(
        MODEL, SHORT, [timed("a", 9.0, 9 * GIB), timed("b", 5.0)], Wishes(asker="a")
    )
    assert chain(plan) == [("b", 0, 4)]
    assert plan.basis == "time"
    work = 4 + 60 / 100
    assert plan.expected.circuit_ms == pytest.approx(5.0 * work)
    assert plan.expected.reply_tokens_per_s == pytest.approx(1000 / (5.0 * work))
    assert plan.expected.pool_tokens_per_s == plan.expected.reply_tokens_per_s
    assert plan.stages[0].compute_ms == pytest.approx(5.0 * work)


def test_the_slowest_stage_decides_where_the_layers_are_cut():
    """A PC three times as fast has three times the layers, head counted; links are too."""
    twelve = model(12, head=0)
    nodes = [
        timed("a", 3.0, 10 * LAYER, link_ms=links("b", 0.5)),
        timed("b", 1.0, 10 * LAYER),
    ]
    plan = plan_placement(twelve, SHORT, nodes)
    spans = {stage.node_id: len(stage.layers) for stage in plan.stages}
    assert spans == {"a": 3, "b": 9}
    assert plan.expected.circuit_ms == pytest.approx(9 + 9 + 2 * 0.5)
    assert plan.expected.slowest_ms == pytest.approx(9 + 0.5)
    assert plan.expected.slowest_node == plan.stages[0].node_id


def test_two_fast_pcs_are_chosen_before_one_slow_and_roomy():
    """Each pair holds it; the pair without the slow one is faster."""
    nodes = [
        timed("a", 50.0, half(LAYER), link_ms=links("bc")),
        timed("b", 5.0, half(), link_ms=links("c")),
        timed("c", 5.0, half()),
    ]
    assert plan_placement(MODEL, SHORT, nodes).node_ids == {"b", "c"}


def test_a_chain_is_chosen_where_it_clearly_beats_the_only_pc_that_holds_it_all():
    """And not where it is less than a tenth faster, or a link isn't known."""

    def plan(slow_ms, fast_links):
        nodes = [
            timed("a", slow_ms, link_ms=links("bc")),
            timed("b", 5.0, half(), link_ms=fast_links),
            timed("c", 5.0, half()),
        ]
        return plan_placement(MODEL, SHORT, nodes)

    assert plan(50.0, links("c")).node_ids == {"b", "c"}
    assert plan(5.1, links("c")).node_ids == {"a"}
    assert plan(50.0, {}).node_ids == {"a"}


def test_a_time_that_is_none_is_not_believed():
    """A peer may send anything; then memory decides."""
    for nonsense in (math.nan, math.inf, -1.0, 0.0):
        plan = plan_placement(MODEL, SHORT, [timed("a", nonsense), timed("b", 1.0)])
        assert plan.basis == "memory"
        assert chain(plan)[0][0] == "a"
    assert node("a", link_ms={"b": math.nan, "c": -1.0}).link_ms_to("b") is None
    assert node("a", link_ms={"b": math.nan, "c": -1.0}).link_ms_to("c") is None
    assert node("a").link_ms_to("a") == 0.0


def test_weights_without_bytes_do_not_divide_by_zero():
    """A model of which nothing is known but its layers."""
    empty = model(2, 0, 0, 0)
    nodes = [timed("a", 1.0, 100), timed("b", 1.0, 100)]
    with pytest.raises(InsufficientMemoryError):
        plan_placement(empty, Workload(context_tokens=10_000), nodes)
    assert plan_placement(empty, SHORT, [timed("a", 1.0)]).expected.circuit_ms == pytest.approx(2.0)


# ---- privacy


PRIVATE = Wishes(asker="a", is_private=True)


def test_a_private_chain_begins_and_ends_on_the_askers_pc():
    """As many layers on either side, the others in between; one row with both ranges."""
    eight = model(8)
    sizes = stage_sizes(eight, SHORT)
    home = sizes.embedding + sizes.head + 4 * LAYER + PROCESS_BYTES + 1
    nodes = [node_holding("a", home), node_holding("b", 4 * LAYER), node("c", 10 * MIB)]
    plan = plan_placement(eight, SHORT, nodes, PRIVATE)
    assert chain(plan) == [("a", 0, 2), ("b", 2, 6), ("a", 6, 8)]
    own = row(plan, "a")
    assert own.layers == (LayerRange(0, 2), LayerRange(6, 8))
    assert own.memory == plan.stages[0].memory + plan.stages[2].memory
    assert own.memory.total_bytes <= own.usable_bytes
    assert [r.node_id for r in plan.rows] == ["a", "b", "c"]


def test_a_private_chain_is_balanced_by_time_when_times_are_known():
    """The other PC is much faster, so the asker's keeps the least it may."""
    eight = model(8)
    nodes = [
        timed("a", 10.0, 6 * LAYER + SIZES.embedding + SIZES.head, link_ms=links("b")),
        timed("b", 1.0, 7 * LAYER),
    ]
    plan = plan_placement(eight, SHORT, nodes, PRIVATE)
    assert chain(plan) == [("a", 0, 1), ("b", 1, 7), ("a", 7, 8)]
    assert plan.expected.slowest_node == "a"
    assert plan.expected.slowest_ms == pytest.approx(20 + 6.0 + 1.0)


def test_private_and_it_fits_on_the_askers_pc():
    """Then nothing leaves it, though another PC is roomier."""
    plan = plan_placement(MODEL, SHORT, [node("a"), node("b", 9 * GIB)], PRIVATE)
    assert chain(plan) == [("a", 0, 4)]


def test_a_private_chain_uses_the_fewest_others():
    """The roomy one alone, not the two small ones; shares that leave it too much are passed."""
    eight = model(8)
    home = SIZES.embedding + SIZES.head + 4 * LAYER + PROCESS_BYTES + 1
    nodes = [
        node_holding("a", home),
        node_holding("b", 2 * LAYER),
        node_holding("c", 2 * LAYER),
        node_holding("d", 4 * LAYER),
    ]
    assert plan_placement(eight, SHORT, nodes, PRIVATE).node_ids == {"a", "d"}
    assert plan_placement(eight, SHORT, nodes[:3], PRIVATE).node_ids == {"a", "b", "c"}


def test_private_without_the_asker_or_without_room_there_is_refused():
    """Naming the PC; or saying what is missing."""
    with pytest.raises(PlacementError, match="z is away, and"):
        plan_placement(MODEL, SHORT, [node("a")], Wishes(asker="z", is_private=True))
    off = node("a", exclusions=(UNREACHABLE,))  # the others' memory is beside the point
    with pytest.raises(PlacementError, match=f"{off.name} is away, and") as away:
        plan_placement(MODEL, SHORT, [off, node("b", 99 * GIB)], PRIVATE)
    assert "without --private" in away.value.advice
    with pytest.raises(InsufficientMemoryError):  # the asker's PC can hold no stage at all
        plan_placement(MODEL, SHORT, [node("a", MIB), node("b")], PRIVATE)
    with pytest.raises(InsufficientMemoryError) as told:  # one stage, but not two
        plan_placement(MODEL, SHORT, [node_holding("a", 2 * LAYER), node("b")], PRIVATE)
    assert "another PC" not in told.value.advice
    short = [node_holding("a", half(PROCESS_BYTES + SIZES.embedding + 1)), node("b", MIB)]
    with pytest.raises(InsufficientMemoryError) as told:  # room at home, nobody in between
        plan_placement(MODEL, SHORT, short, PRIVATE)
    assert "another PC that can give" in told.value.advice


# ---- no place


def test_too_little_memory_says_by_how_much_and_what_would_help():
    """Both numbers, and every single thing that is enough."""
    big = model(4, 1600 * MIB, 100 * MIB, 100 * MIB, precision="f16")
    workload = Workload(context_tokens=8192, max_sequences=4)
    nodes = [node("a", 3 * GIB), node("b", 9 * GIB), node("c", 10 * GIB, exclusions=(PAUSED,))]
    with pytest.raises(InsufficientMemoryError) as told:
        plan_placement(big, workload, nodes)
    error = told.value
    sizes = stage_sizes(big, workload)
    assert error.available_bytes == 12 * GIB
    assert error.required_bytes == usable_for(sizes.whole)
    assert "another PC that can give" in error.advice
    assert "C (Resume it in its tray)" in error.advice
    assert "8-bit weights" in error.advice
    assert "context" not in error.advice  # KV is not what is too much here


def test_what_is_said_to_be_enough_is_enough_and_less_is_not():
    """Context, users, another PC: each taken at its word."""
    small = model(2, 10 * MIB, MIB, MIB)
    workload = Workload(context_tokens=100_000, max_sequences=8, kv_precision="f32")
    nodes = [node("a", GIB)]
    with pytest.raises(InsufficientMemoryError) as told:
        plan_placement(small, workload, nodes)
    words = told.value.advice.split("; ")
    context = int(words[0].removeprefix("Any one of these is enough: a context of ").split()[0])
    users = int(words[1].split()[0])
    assert words[0].endswith(f"(--context {context})")
    assert words[1].endswith(f"(--users {users})")
    gib = float(words[2].split("can give ")[1].split()[0])

    def fits(pcs=tuple(nodes), **changes):
        try:
            plan_placement(small, msgspec.structs.replace(workload, **changes), pcs)
        except InsufficientMemoryError:
            return False
        return True

    assert fits(context_tokens=context)
    assert not fits(context_tokens=context + 256)
    assert fits(max_sequences=users)
    assert not fits(max_sequences=users + 1)
    assert fits((*nodes, node("b", int((gib + 0.06) * GIB))))
    assert not fits((*nodes, node("b", int((gib - 0.16) * GIB))))


def test_the_sentence_speaks_of_memory_as_people_do_and_says_what_takes_most_of_it():
    """GiB and MiB, never bare bytes; a small model that needs much is a riddle otherwise."""
    small = model(2, 10 * MIB, MIB, MIB)
    workload = Workload(context_tokens=100_000, max_sequences=4, kv_precision="f32")
    with pytest.raises(InsufficientMemoryError) as told:
        plan_placement(small, workload, [node("a", 300 * MIB)])
    error = told.value
    sizes = (error.required_bytes, error.required_bytes - error.available_bytes)
    needed, missing = (in_binary_units(size) for size in sizes)
    assert error.what.startswith(f"The model needs {needed} (")
    assert "of it for a context of 100000 tokens for 4 users at once)" in error.what
    assert error.what.endswith(f", and 300 MiB may be used: {missing} too few.")
    with pytest.raises(InsufficientMemoryError) as told:
        plan_placement(MODEL, SHORT, [node("a", 300 * MIB)])
    assert "context" not in told.value.what  # there the weights are


def test_a_lone_pc_whose_limit_is_too_low_is_told_the_limit_that_is_enough():
    """Although it can hold no stage now; the option is named, and taken at its word."""
    low = node("a", cap_bytes=100 * MIB)
    with pytest.raises(InsufficientMemoryError) as told:
        plan_placement(MODEL, SHORT, [low])
    limit = float(re.search(r"daisy node --memory ([0-9.]+)GiB", told.value.advice)[1])
    assert f"a limit of {limit} GiB on A (" in told.value.advice
    enough, less = (
        node("a", cap_bytes=int(round(gib, 1) * GIB) + 1) for gib in (limit, limit - 0.1)
    )
    assert chain(plan_placement(MODEL, SHORT, [enough])) == [("a", 0, 4)]
    with pytest.raises(InsufficientMemoryError):
        plan_placement(MODEL, SHORT, [less])


def test_limits_that_only_together_stand_in_the_way_are_named_together():
    """No single one is enough: layers of 900 MiB, and each PC can have one."""
    nodes = [node(n, 2500 * MIB, cap_bytes=200 * MIB) for n in "ab"]
    two = model(2, 900 * MIB, MIB, MIB)
    with pytest.raises(InsufficientMemoryError) as told:
        plan_placement(two, SHORT, nodes)
    assert "higher limits on A, B (daisy node --memory)" in told.value.advice


def test_a_limit_that_takes_nothing_away_is_not_blamed():
    """The PC has no more than that."""
    with pytest.raises(InsufficientMemoryError) as told:
        plan_placement(MODEL, SHORT, [node("a", 300 * MIB, cap_bytes=GIB)])
    assert "--memory" not in told.value.advice


def test_without_a_place_nobody_is_said_not_to_be_needed():
    """All of them are; that they stand by would contradict the error."""
    rows = plan_rows([node("a"), node("b", MIB)], (), usable_for(LAYER))
    assert [r.reason for r in rows if r.role == "standby"] == [
        "It can take layers as soon as the whole model has a place."
    ]


def test_one_user_is_one_user():
    """The singular, where only one fits."""
    small = model(1, 10 * MIB, MIB, MIB)
    workload = Workload(context_tokens=100_000, max_sequences=2, kv_precision="f32")
    with pytest.raises(InsufficientMemoryError) as told:
        plan_placement(small, workload, [node_holding("a", 160 * MIB)])
    assert "1 user at once (--users 1)" in told.value.advice


def test_enough_in_all_but_not_where_it_is():
    """One layer is larger than any PC; the sum would do."""
    uneven = model(layer_bytes=[MIB, 900 * MIB], embedding=0, head=0)
    nodes = [node(n, 2 * GIB) for n in "abcd"]
    with pytest.raises(InsufficientMemoryError) as told:
        plan_placement(uneven, SHORT, nodes)
    assert told.value.required_bytes > told.value.available_bytes == 8 * GIB
    assert "another PC that can give" in told.value.advice


def test_nobody_there_has_no_memory():
    """An empty pool is a sentence, not a crash."""
    with pytest.raises(InsufficientMemoryError) as told:
        plan_placement(MODEL, SHORT, [])
    assert told.value.available_bytes == 0


def test_where_nothing_single_helps_the_general_advice_stands():
    """A private chain whose asker has no room for anything."""
    with pytest.raises(InsufficientMemoryError) as told:
        plan_placement(MODEL, SHORT, [node("a", MIB)], PRIVATE)
    assert told.value.advice == InsufficientMemoryError.default_advice()


def test_private_enough_in_all_but_not_at_the_asker():
    """Its PC lacks memory for two stages and nothing helps; the numbers still make sense."""
    nodes = [node_holding("a", LAYER), node("b", 99 * GIB)]
    with pytest.raises(InsufficientMemoryError) as told:
        plan_placement(MODEL, SHORT, nodes, PRIVATE)
    assert told.value.required_bytes > told.value.available_bytes


def test_a_paused_asker_of_a_private_chain_need_only_be_resumed():
    """Nothing else would help, since the text must stay there."""
    nodes = [node("a", exclusions=(PAUSED,)), node("b")]
    with pytest.raises(InsufficientMemoryError) as told:
        plan_placement(MODEL, SHORT, nodes, PRIVATE)
    assert told.value.advice == ("Any one of these is enough: A (Resume it in its tray).")


def test_a_private_model_that_would_fit_at_home_with_a_shorter_context():
    """Then it needs no other PC."""
    workload = Workload(context_tokens=100_000, kv_precision="f32")
    nodes = [node_holding("a", SIZES.whole + 10 * MIB)]
    with pytest.raises(InsufficientMemoryError) as told:
        plan_placement(MODEL, workload, nodes, PRIVATE)
    assert "a context of " in told.value.advice


def test_smaller_weights_that_are_still_too_large_are_not_proposed():
    """16 bits to 4 bits is not enough here."""
    huge = model(4, 400 * GIB, precision="f16")
    with pytest.raises(InsufficientMemoryError) as told:
        plan_placement(huge, SHORT, [node("a")])
    assert "weights" not in told.value.advice


# ---- again


def test_a_joiner_stands_by():
    """Although it is roomier and would have been chosen."""
    plan = plan_placement(MODEL, SHORT, [node("b")])
    again = replan(plan, MODEL, SHORT, [node("b"), node("a", 9 * GIB)])
    assert not again.has_changed
    assert again.plan.chain == plan.chain
    assert row(again.plan, "a").role == "standby"


@pytest.mark.parametrize(
    ("after", "why"),
    [
        ([node("a")], "The PC b is gone."),
        ([node("a"), node("b", exclusions=(PAUSED,))], "B can't go on: It is paused"),
        ([node("a"), node("b", cap_bytes=GIB)], "B may give 1.0 GiB now"),
        ([node("a"), node("b", devices=("GPU",))], "B has no device CPU any more."),
    ],
)
def test_a_placement_that_can_not_stay_is_replaced_and_the_reason_said(after, why):
    """Gone, paused, capped, or its device lost."""
    plan = plan_placement(model(8), SHORT, [node("b")])
    again = replan(plan, model(8), SHORT, after)
    assert again.has_changed
    assert why in again.reason


def test_a_placement_that_can_not_stay_and_has_no_successor_is_an_error():
    """The last PC left."""
    plan = plan_placement(MODEL, SHORT, [node("b")])
    with pytest.raises(InsufficientMemoryError):
        replan(plan, MODEL, SHORT, [])


def test_a_public_chain_asked_to_be_private_must_change():
    """The text may not go on passing another PC."""
    plan = plan_placement(MODEL, SHORT, [node("b")])
    again = replan(plan, MODEL, SHORT, [node("a"), node("b")], PRIVATE)
    assert again.has_changed
    assert chain(again.plan) == [("a", 0, 4)]


def test_its_own_memory_counts_as_room_for_what_it_runs():
    """Nearly nothing is free, because the stage has it."""
    plan = plan_placement(MODEL, SHORT, [node("b")])
    lent = plan.stages[0].memory.total_bytes
    assert not replan(plan, MODEL, SHORT, [node("b", MIB, lent_bytes=lent)]).has_changed
    assert replan(plan, MODEL, SHORT, [node("b", 0, lent_bytes=lent - 1), node("a")]).has_changed


def test_a_faster_placement_must_be_worth_the_change():
    """A fifth faster and not slower in any way."""
    plan = plan_placement(MODEL, SHORT, [timed("b", 10.0)])
    worth = replan(plan, MODEL, SHORT, [timed("b", 10.0), timed("a", 5.0)])
    assert worth.has_changed
    assert "2.0 times as fast" in worth.reason
    assert not replan(plan, MODEL, SHORT, [timed("b", 10.0), timed("a", 9.0)]).has_changed
    assert not replan(plan, MODEL, SHORT, [timed("b", 10.0)]).has_changed


def test_faster_for_one_reply_but_slower_together_is_not_worth_it():
    """A chain stands; one PC alone would answer a little faster."""
    chained = [
        timed("a", 5.0, half(), link_ms=links("b")),
        timed("b", 5.0, half()),
    ]
    plan = plan_placement(MODEL, SHORT, chained)
    assert len(plan.stages) == 2
    again = replan(plan, MODEL, SHORT, [*chained, timed("c", 5.0, link_ms=links("ab"))])
    assert not again.has_changed


def test_faster_together_but_slower_for_one_reply_is_not_worth_it():
    """The slow PC was given memory; with four layers instead of one it would share the work."""
    many = model(16, head=0)
    sizes = stage_sizes(many, SHORT)
    a = timed("a", 1.0, 15 * LAYER + sizes.embedding, link_ms=links("b", 0.0))
    plan = plan_placement(many, SHORT, [a, timed("b", 3.0, LAYER)])
    assert [len(stage.layers) for stage in plan.stages] == [15, 1]
    now = [a, timed("b", 3.0, 8 * LAYER)]
    assert plan_placement(many, SHORT, now).expected.slowest_ms * 1.2 < plan.expected.slowest_ms
    assert not replan(plan, many, SHORT, now).has_changed


def test_a_kept_stage_keeps_its_device():
    """A better one turning up is no reason to load again."""
    plan = plan_placement(MODEL, SHORT, [node("b")])
    again = replan(plan, MODEL, SHORT, [node("b", devices=("GPU", "CPU"))])
    assert again.plan.stages[0].device == "CPU"


def test_what_stands_is_kept_where_the_search_would_not_find_it():
    """Eleven PCs and uneven layers, all of them needed in one order only."""
    small, big = MIB, 10 * MIB
    uneven = model(layer_bytes=[*[small] * 5, big, *[small] * 4, big], embedding=0, head=0)
    sizes = stage_sizes(uneven, SHORT)
    capacities = {s: sizes.layers[i] for s, i in (("small", 0), ("big", 5))}
    assert order_of_many(sizes, [capacities["big"]] * 2 + [capacities["small"]] * 9) is None
    nodes = [
        node_holding(f"n{i:02}", capacities["small" if uneven.layer_bytes[i] == small else "big"])
        for i in range(11)
    ]
    with pytest.raises(InsufficientMemoryError):
        plan_placement(uneven, SHORT, nodes)
    roomy = plan_placement(uneven, SHORT, [node("a")])
    stages = tuple(
        msgspec.structs.replace(roomy.stages[0], node_id=n.node_id, layers=LayerRange(i, i + 1))
        for i, n in enumerate(nodes)
    )
    plan = msgspec.structs.replace(roomy, stages=stages)
    again = replan(plan, uneven, SHORT, nodes)
    assert not again.has_changed
    assert [s.node_id for s in again.plan.stages] == [n.node_id for n in nodes]


def test_no_stages_add_up_to_nothing():
    """The neutral element of the sum."""
    assert StageMemory().total_bytes == 0

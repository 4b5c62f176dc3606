"""Placements of any model on any PCs: whole, ordered, within every cap, and no PC too many."""

from itertools import combinations, permutations, product

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import InsufficientMemoryError
from engine.pool.chain_choice import Wishes
from engine.pool.placement import plan_placement, replan
from engine.pool.plan import Exclusion
from engine.pool.stage_memory import Workload, stage_sizes, usable_for
from engine.splitter.partition import ranges_from_cuts
from tests.unit.pool.models import MIB, model, node

SHORT = Workload(context_tokens=32)
PAUSED = Exclusion("It is paused.", "Resume it.")

models = st.builds(
    lambda layers, embedding, head: model(
        layer_bytes=[size * MIB for size in layers], embedding=embedding * MIB, head=head * MIB
    ),
    st.lists(st.integers(1, 20), min_size=1, max_size=6),
    st.integers(0, 30),
    st.integers(0, 30),
)
facts = st.fixed_dictionaries({
    "capacity": st.integers(0, 250),
    "reserve_bytes": st.integers(0, 50).map(lambda n: n * MIB),
    "lent_bytes": st.integers(0, 50).map(lambda n: n * MIB),
    "cap": st.none() | st.none() | st.integers(0, 250),
    "layer_ms": st.none() | st.floats(0.5, 50),
    "on_battery": st.booleans(),
    "exclusions": st.sampled_from([(), (), (), (PAUSED,)]),
    "links": st.lists(st.none() | st.floats(0, 30), min_size=5, max_size=5),
})


def make(number, given):
    """Describe a PC; its capacity is in MiB of layers, headroom and process apart."""
    own = dict(given)
    links = {f"n{i}": ms for i, ms in enumerate(own.pop("links")) if ms is not None and i != number}
    cap = own.pop("cap")
    usable = usable_for(own.pop("capacity") * MIB)
    own["cap_bytes"] = None if cap is None else usable_for(cap * MIB)
    return node(f"n{number}", usable, link_ms=links, **own)


pools = st.lists(facts, min_size=1, max_size=5).map(
    lambda many: [make(number, given) for number, given in enumerate(many)]
)
timed_pools = st.lists(facts, min_size=1, max_size=5).map(
    lambda many: [
        make(number, {**given, "layer_ms": given["layer_ms"] or 3.0, "links": [1.0] * 5})
        for number, given in enumerate(many)
    ]
)
wishes = st.builds(Wishes, asker=st.none() | st.just("n0"), is_private=st.just(False)) | st.just(
    Wishes(asker="n0", is_private=True)
)


def planned(*arguments):
    try:
        return plan_placement(*arguments)
    except InsufficientMemoryError:
        return None


@settings(max_examples=400, deadline=None)
@given(models, pools | timed_pools, wishes)
def test_every_layer_is_placed_once_in_order_and_nobody_is_above_the_cap(a_model, nodes, wish):
    """With every kind of wish; the rows account for all of it."""
    plan = planned(a_model, SHORT, nodes, wish)
    if plan is None:
        return
    layers = [i for stage in plan.stages for i in range(stage.layers.start, stage.layers.stop)]
    assert layers == list(range(a_model.num_layers))
    by_id = {n.node_id: n for n in nodes}
    for row in plan.rows:
        limit = by_id[row.node_id]
        taken = sum(s.memory.total_bytes for s in plan.stages if s.node_id == row.node_id)
        assert taken == row.memory.total_bytes <= limit.usable_bytes
        assert limit.cap_bytes is None or taken <= limit.cap_bytes
        assert taken <= max(0, limit.free_bytes + limit.lent_bytes - limit.reserve_bytes)
        assert (row.role == "stage") == bool(row.layers) == (taken > 0)
        assert not (limit.exclusions and row.layers)
        assert bool(row.remedy) == (row.role == "left out")
    assert {row.node_id for row in plan.rows} == set(by_id)
    if wish.is_private:
        assert plan.stages[0].node_id == plan.stages[-1].node_id == "n0"


@settings(max_examples=200, deadline=None)
@given(models, pools | timed_pools, wishes, st.randoms(use_true_random=False))
def test_the_order_in_which_pcs_are_known_changes_nothing(a_model, nodes, wish, shuffler):
    """Nor does asking twice."""
    shuffled = list(nodes)
    shuffler.shuffle(shuffled)
    assert planned(a_model, SHORT, nodes, wish) == planned(a_model, SHORT, shuffled, wish)


def fewest_by_trying(a_model, nodes):
    """Return the least number of PCs of any division in any order; None if there is none."""
    sizes = stage_sizes(a_model, SHORT)
    capacities = [n.capacity_bytes for n in nodes if not n.exclusions]
    for count in range(1, min(len(capacities), a_model.num_layers) + 1):
        every = product(
            combinations(range(1, a_model.num_layers), count - 1), permutations(capacities, count)
        )
        if any(holds(sizes, cuts, order) for cuts, order in every):
            return count
    return None


def holds(sizes, cuts, capacities):
    ranges = ranges_from_cuts(cuts, sizes.num_layers)
    loads = [sizes.ends[part.stop] - sizes.ends[part.start] for part in ranges]
    loads[0] += sizes.embedding
    loads[-1] += sizes.head
    return all(load <= room for load, room in zip(loads, capacities, strict=True))


@settings(max_examples=300, deadline=None)
@given(models, pools)
def test_no_fewer_pcs_would_do_and_it_is_refused_only_if_no_division_fits(a_model, nodes):
    """Against every division on every choice of PCs in every order."""
    fewest = fewest_by_trying(a_model, nodes)
    plan = planned(a_model, SHORT, nodes)
    if plan is None:
        assert fewest is None
    elif plan.basis == "memory":
        assert len(plan.stages) == fewest
    else:  # a chain may be taken because it is faster
        assert fewest is not None
        assert len(plan.stages) >= fewest


@settings(max_examples=200, deadline=None)
@given(models, timed_pools)
def test_where_one_pc_would_do_a_chain_is_taken_only_if_a_reply_is_faster(a_model, nodes):
    """By more than a tenth against the best PC alone."""
    plan = planned(a_model, SHORT, nodes)
    if plan is None or fewest_by_trying(a_model, nodes) != 1:
        return
    whole = stage_sizes(a_model, SHORT).whole
    mean = sum(a_model.layer_bytes) / a_model.num_layers
    work = a_model.num_layers + a_model.head_bytes / mean
    alone = min(n.layer_ms * work for n in nodes if n.capacity_bytes >= whole and not n.exclusions)
    if len(plan.stages) > 1:
        assert plan.expected.circuit_ms * 1.1 < alone
    else:
        assert plan.expected.circuit_ms == pytest.approx(alone)


@settings(max_examples=300, deadline=None)
@given(models, pools, wishes, st.integers(0, 4), st.integers(1, 200))
def test_more_memory_never_makes_it_impossible(a_model, nodes, wish, which, more):
    """On one PC of those there are; nor does a cap that is lifted, or another PC."""
    if planned(a_model, SHORT, nodes, wish) is None:
        return
    number = which % len(nodes)
    grown = list(nodes)
    grown[number] = msgspec.structs.replace(
        nodes[number], free_bytes=nodes[number].free_bytes + more * MIB
    )
    assert planned(a_model, SHORT, grown, wish) is not None
    grown[number] = msgspec.structs.replace(grown[number], cap_bytes=None)
    assert planned(a_model, SHORT, grown, wish) is not None
    assert planned(a_model, SHORT, [*grown, node("z", more * MIB)], wish) is not None


@settings(max_examples=200, deadline=None)
@given(models, pools | timed_pools, wishes)
def test_looking_again_at_the_same_pool_changes_nothing(a_model, nodes, wish):
    """A placement is stable."""
    plan = planned(a_model, SHORT, nodes, wish)
    if plan is None:
        return
    again = replan(plan, a_model, SHORT, nodes, wish)
    assert not again.has_changed
    assert again.plan == plan


@settings(max_examples=200, deadline=None)
@given(models, pools, facts)
def test_a_pc_that_joins_never_moves_a_layer_while_times_are_unknown(a_model, nodes, joiner):
    """It stands by, however roomy."""
    plan = planned(a_model, SHORT, nodes)
    if plan is None or plan.expected is not None:
        return
    nodes = [msgspec.structs.replace(n, layer_ms=None) for n in nodes]
    again = replan(plan, a_model, SHORT, [*nodes, make(9, joiner)])
    assert not again.has_changed
    assert again.plan.chain == plan.chain

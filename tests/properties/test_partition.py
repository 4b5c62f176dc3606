"""Every division is complete, disjoint and ordered, for every layer count and node count."""

from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import InsufficientMemoryError, PlacementError
from engine.splitter.partition import (
    LayerCosts,
    NodeCapability,
    partition_by_memory,
    partition_by_time,
    partition_evenly,
    ranges_from_cuts,
)

MAX_LAYERS = 200
MAX_NODES = 16


def covered(partition):
    return [layer for part in partition if part for layer in range(part.start, part.stop)]


def test_even_division_loses_no_layer_at_any_count():
    """All of 200 x 16; where there are more stages than layers it refuses."""
    for num_layers, num_stages in product(range(1, MAX_LAYERS + 1), range(1, MAX_NODES + 1)):
        if num_stages > num_layers:
            with pytest.raises(PlacementError):
                partition_evenly(num_layers, num_stages)
            continue
        ranges = partition_evenly(num_layers, num_stages)
        assert covered(ranges) == list(range(num_layers))
        sizes = [len(layers) for layers in ranges]
        assert len(sizes) == num_stages
        assert max(sizes) - min(sizes) <= 1
        assert sizes == sorted(sizes, reverse=True)


def test_equal_nodes_lose_no_layer_at_any_count():
    """All of 200 layer counts on 1 to 16 nodes by memory, roomy enough for everything."""
    for num_layers in range(1, MAX_LAYERS + 1):
        num_nodes = num_layers % MAX_NODES + 1
        partition = partition_by_memory([1.0] * num_layers, 0, 0, [1000.0] * num_nodes)
        assert covered(partition) == list(range(num_layers))
        sizes = [len(layers) for layers in partition if layers is not None]
        assert len(sizes) == min(num_nodes, num_layers)
        assert max(sizes) - min(sizes) <= 1


layer_costs = st.lists(st.integers(1, 50), min_size=1, max_size=MAX_LAYERS)
extras = st.integers(0, 200)
capabilities = st.builds(
    NodeCapability,
    capacity_bytes=st.integers(0, 6000).map(float),
    speed=st.floats(0.1, 10),
    link_ms=st.floats(0, 20),
)


def loads(partition, sizes, first, last):
    used = [part for part in partition if part is not None]
    for part in used:
        yield (
            sum(sizes[part.start : part.stop])
            + (first if part is used[0] else 0)
            + (last if part is used[-1] else 0)
        )


@settings(max_examples=200, deadline=None)
@given(
    sizes=layer_costs,
    first=extras,
    last=extras,
    capacities=st.lists(st.integers(0, 6000), min_size=1, max_size=MAX_NODES),
)
def test_memory_division_loses_no_layer_and_breaks_no_limit(sizes, first, last, capacities):
    """Or says that it can't be done."""
    try:
        partition = partition_by_memory(sizes, first, last, capacities)
    except InsufficientMemoryError:
        assert sum(sizes) + first + last > sum(capacities)
        return
    except PlacementError:
        return
    assert len(partition) == len(capacities)
    assert covered(partition) == list(range(len(sizes)))
    used = [capacity for capacity, part in zip(capacities, partition, strict=True) if part]
    assert all(
        load <= capacity
        for load, capacity in zip(loads(partition, sizes, first, last), used, strict=True)
    )


@settings(max_examples=200, deadline=None)
@given(
    sizes=layer_costs,
    first=extras,
    last=extras,
    nodes=st.lists(capabilities, min_size=1, max_size=MAX_NODES),
)
def test_time_division_loses_no_layer_and_breaks_no_limit(sizes, first, last, nodes):
    """Or says that it can't be done."""
    costs = LayerCosts(tuple(map(float, sizes)), first, last)
    try:
        partition = partition_by_time(costs, costs, nodes)
    except PlacementError:
        return
    assert len(partition) == len(nodes)
    assert covered(partition) == list(range(len(sizes)))
    used = [node.capacity_bytes for node, part in zip(nodes, partition, strict=True) if part]
    assert all(
        load <= capacity
        for load, capacity in zip(loads(partition, sizes, first, last), used, strict=True)
    )


def every_division(num_layers, num_nodes):
    """Yield every division of the layers among some of the nodes, in order."""
    for num_used in range(1, min(num_layers, num_nodes) + 1):
        for nodes in combinations(range(num_nodes), num_used):
            for cuts in combinations(range(1, num_layers), num_used - 1):
                yield nodes, ranges_from_cuts(cuts, num_layers)


def stage_times(nodes, ranges, times, capabilities):
    for node, layers in zip(nodes, ranges, strict=True):
        work = sum(times.layers[layers.start : layers.stop])
        work += times.first_extra if layers is ranges[0] else 0
        work += times.last_extra if layers is ranges[-1] else 0
        link = capabilities[node].link_ms if layers is not ranges[-1] else 0
        yield work / capabilities[node].speed + link


def fits(nodes, ranges, sizes, capacities):
    return all(
        load <= capacities[node]
        for node, load in zip(
            nodes, loads(ranges, sizes.layers, sizes.first_extra, sizes.last_extra), strict=True
        )
    )


small_costs = st.builds(
    LayerCosts,
    layers=st.lists(st.integers(1, 9), min_size=6, max_size=6).map(tuple),
    first_extra=st.integers(0, 9),
    last_extra=st.integers(0, 20),
)


@settings(max_examples=150, deadline=None)
@given(
    times=small_costs,
    sizes=small_costs,
    nodes=st.lists(
        st.builds(
            NodeCapability,
            capacity_bytes=st.integers(0, 60),
            speed=st.sampled_from([0.5, 1.0, 2.0]),
            link_ms=st.integers(0, 8),
        ),
        min_size=1,
        max_size=4,
    ),
)
def test_time_division_is_as_good_as_trying_every_one(times, sizes, nodes):
    """The slowest stage, then the sum; and refused only where no division fits."""
    capacities = [node.capacity_bytes for node in nodes]
    scores = [
        (max(seconds), sum(seconds))
        for used, ranges in every_division(len(times.layers), len(nodes))
        if fits(used, ranges, sizes, capacities)
        for seconds in [list(stage_times(used, ranges, times, nodes))]
    ]
    if not scores:
        with pytest.raises(PlacementError):
            partition_by_time(times, sizes, nodes)
        return
    partition = partition_by_time(times, sizes, nodes)
    used = [node for node, part in enumerate(partition) if part]
    ranges = [part for part in partition if part]
    seconds = list(stage_times(used, ranges, times, nodes))
    assert (max(seconds), sum(seconds)) == pytest.approx(min(scores))


@settings(max_examples=150, deadline=None)
@given(
    sizes=small_costs,
    capacities=st.lists(st.integers(0, 60), min_size=1, max_size=4),
)
def test_memory_division_is_as_good_as_trying_every_one(sizes, capacities):
    """The fullest node, then the squares; and what is missing is exactly what would help."""
    divisions = list(every_division(len(sizes.layers), len(capacities)))

    def fullness(nodes, ranges):
        taken = loads(ranges, sizes.layers, sizes.first_extra, sizes.last_extra)
        shares = [load / capacities[node] for node, load in zip(nodes, taken, strict=True)]
        return max(shares), sum(share**2 for share in shares)

    scores = [
        fullness(nodes, ranges)
        for nodes, ranges in divisions
        if fits(nodes, ranges, sizes, capacities)
    ]
    arguments = (sizes.layers, sizes.first_extra, sizes.last_extra)
    if scores:
        partition = partition_by_memory(*arguments, capacities)
        used = [node for node, part in enumerate(partition) if part]
        best = fullness(used, [part for part in partition if part])
        assert best == pytest.approx(min(scores))
        return
    with pytest.raises(PlacementError) as caught:
        partition_by_memory(*arguments, capacities)
    if not isinstance(caught.value, InsufficientMemoryError):
        missing = int(caught.value.what.split("at best one has ")[1].split()[0])
        partition_by_memory(*arguments, [capacity + missing for capacity in capacities])
        with pytest.raises(PlacementError):
            partition_by_memory(*arguments, [capacity + missing - 1 for capacity in capacities])

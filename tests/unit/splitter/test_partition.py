"""Layers to stages: what each way of dividing gives, and what it refuses."""

import math

import pytest

from engine.domain import LayerRange
from engine.errors import InsufficientMemoryError, PlacementError, UsageError
from engine.splitter.partition import (
    LayerCosts,
    NodeCapability,
    check_partition,
    partition_by_memory,
    partition_by_time,
    partition_evenly,
    ranges_from_cuts,
)


def lengths(partition):
    return [len(layers) if layers is not None else 0 for layers in partition]


def test_even_division_gives_the_first_stages_the_remainder():
    """The counts that a well-known project loses layers at."""
    assert lengths(partition_evenly(61, 2)) == [31, 30]
    assert lengths(partition_evenly(61, 3)) == [21, 20, 20]
    assert lengths(partition_evenly(28, 3)) == [10, 9, 9]
    assert lengths(partition_evenly(36, 5)) == [8, 7, 7, 7, 7]
    assert partition_evenly(4, 2) == (LayerRange(0, 2), LayerRange(2, 4))


@pytest.mark.parametrize(("num_layers", "num_stages"), [(3, 4), (3, 0), (0, 0), (0, 1), (5, -1)])
def test_a_stage_without_layers_is_refused(num_layers, num_stages):
    """By both numbers."""
    with pytest.raises(PlacementError, match=f"{num_layers} layers.*{num_stages} stages"):
        partition_evenly(num_layers, num_stages)


def test_cuts_are_the_first_layers_of_the_next_stages():
    """``--cuts 10,20`` of 30 layers."""
    assert lengths(ranges_from_cuts((10, 20), 30)) == [10, 10, 10]
    assert ranges_from_cuts((), 30) == (LayerRange(0, 30),)
    assert ranges_from_cuts((29,), 30) == (LayerRange(0, 29), LayerRange(29, 30))


@pytest.mark.parametrize(
    ("cuts", "sentence"),
    [
        ((0,), "cut 0 is not between"),
        ((30,), "cut 30 is not between.* from 1 to 29"),
        ((10, -1), "cut -1 is not between"),
        ((10, 10), "cut 10 is given twice"),
        ((20, 10), "cut 10 comes after 20"),
    ],
)
def test_a_wrong_cut_is_named(cuts, sentence):
    """The sentence says which one and why."""
    with pytest.raises(UsageError, match=sentence):
        ranges_from_cuts(cuts, 30)


def test_memory_division_is_in_proportion_to_capacity():
    """8, 16 and 24 GB of room: 5, 10 and 15 of 30 equal layers."""
    partition = partition_by_memory([1e9] * 30, 0, 0, [8e9, 16e9, 24e9])
    assert lengths(partition) == [5, 10, 15]


def test_memory_division_counts_embedding_and_head():
    """They weigh as much as layers and only the first and the last stage have them."""
    assert lengths(partition_by_memory([10] * 12, 20, 40, [100, 100, 100])) == [4, 6, 2]


def test_layers_of_different_size_are_weighed_and_not_counted():
    """Two heavy layers balance six light ones."""
    assert lengths(partition_by_memory([3, 3, 1, 1, 1, 1, 1, 1], 0, 0, [10, 10])) == [2, 6]


@pytest.mark.parametrize("nothing", [0, -5, 9])
def test_a_node_too_small_for_a_layer_is_left_out_by_name(nothing):
    """Its entry is None, at its place in the order."""
    partition = partition_by_memory([10] * 4, 0, 0, [50, nothing, 50])
    assert partition == (LayerRange(0, 2), None, LayerRange(2, 4))


def test_a_node_too_small_for_the_embedding_does_not_go_first():
    """The next one takes the embedding with its layers."""
    partition = partition_by_memory([10] * 4, 100, 0, [50, 150])
    assert partition == (None, LayerRange(0, 4))


def test_more_nodes_than_layers_leaves_nodes_out():
    """No range is empty."""
    partition = partition_by_memory([10, 10], 0, 0, [50] * 5)
    assert sorted(lengths(partition)) == [0, 0, 0, 1, 1]


def test_a_model_that_exactly_fills_its_nodes_fits():
    """And with one byte less it does not."""
    assert lengths(partition_by_memory([10] * 4, 5, 7, [25, 27])) == [2, 2]
    with pytest.raises(InsufficientMemoryError) as caught:
        partition_by_memory([10] * 4, 5, 7, [25, 26])
    assert (caught.value.required_bytes, caught.value.available_bytes) == (52, 51)
    assert "1 bytes too few" in caught.value.what


def test_memory_that_is_enough_only_in_all_says_how_much_is_missing():
    """Three layers of 10 don't go into 19 and 19; into 20 and 20 they do."""
    with pytest.raises(PlacementError, match="at best one has 1 bytes too few") as caught:
        partition_by_memory([10] * 3, 0, 0, [19, 19])
    assert not isinstance(caught.value, InsufficientMemoryError)
    assert "each PC" in caught.value.advice
    assert lengths(partition_by_memory([10] * 3, 0, 0, [20, 20])) in ([1, 2], [2, 1])


ROOMY = NodeCapability(capacity_bytes=1e12)


def test_time_division_gives_the_stage_with_the_head_fewer_layers():
    """An LM head as long as ten layers of 24: not 12 and 12."""
    times = LayerCosts((1.0,) * 24, first_extra=0.0, last_extra=10.0)
    sizes = LayerCosts((1.0,) * 24)
    assert lengths(partition_by_time(times, sizes, [ROOMY, ROOMY])) == [17, 7]


def test_time_division_follows_speed():
    """A node three times as fast takes three times the layers."""
    times = LayerCosts((1.0,) * 16)
    fast = NodeCapability(capacity_bytes=1e12, speed=3.0)
    assert lengths(partition_by_time(times, times, [ROOMY, fast])) == [4, 12]


def test_time_division_keeps_within_memory():
    """The fast node can't hold its share."""
    times = LayerCosts((1.0,) * 16)
    fast = NodeCapability(capacity_bytes=6.0, speed=3.0)
    assert lengths(partition_by_time(times, times, [ROOMY, fast])) == [10, 6]


def test_a_node_behind_a_slow_link_is_left_out():
    """Sending would take longer than computing everything on one."""
    times = LayerCosts((1.0,) * 16)
    distant = NodeCapability(capacity_bytes=1e12, link_ms=100.0)
    partition = partition_by_time(times, times, [distant, ROOMY])
    assert lengths(partition) in ([0, 16], [16, 0])
    assert lengths(partition_by_time(times, times, [ROOMY, ROOMY])) == [8, 8]


def test_the_last_stage_sends_no_hidden_states():
    """Only token ids leave it, so its own link does not count."""
    times = LayerCosts((1.0,) * 16)
    distant = NodeCapability(capacity_bytes=1e12, link_ms=100.0)
    assert lengths(partition_by_time(times, times, [ROOMY, distant])) == [8, 8]


def test_of_equal_bottlenecks_the_one_with_the_shortest_round_is_taken():
    """A slow node that would not raise the bottleneck still makes one user wait longer."""
    times = LayerCosts((9.0, 1.0))
    slow = NodeCapability(capacity_bytes=1e12, speed=0.2)
    assert lengths(partition_by_time(times, times, [ROOMY, slow, ROOMY])) == [1, 0, 1]


def test_time_division_says_what_memory_is_missing():
    """As the division by memory does."""
    costs = LayerCosts((10.0,) * 4)
    with pytest.raises(InsufficientMemoryError, match="40 bytes, and 39"):
        partition_by_time(costs, costs, [NodeCapability(capacity_bytes=39.0)])


@pytest.mark.parametrize(
    ("times", "nodes", "sentence"),
    [
        ((1.0, 1.0), [ROOMY], "2 layers and sizes for 3"),
        ((1.0,) * 3, [NodeCapability(1e9, speed=0.0)], "Node 0 has speed 0"),
        ((1.0,) * 3, [ROOMY, NodeCapability(1e9, speed=math.nan)], "Node 1 has speed nan"),
        ((1.0,) * 3, [NodeCapability(1e9, link_ms=-1.0)], "link time -1"),
        ((1.0, math.nan, 1.0), [ROOMY], "Layer 1 costs nan ms"),
        ((1.0,) * 3, [], "capacities"),
        ((1.0,) * 3, [NodeCapability(math.inf)], "capacities"),
    ],
)
def test_times_that_make_no_sense_are_refused(times, nodes, sentence):
    """By the number that is wrong."""
    with pytest.raises(PlacementError, match=sentence):
        partition_by_time(LayerCosts(times), LayerCosts((1.0,) * 3), nodes)


@pytest.mark.parametrize(
    ("layers", "first", "last", "sentence"),
    [
        ([], 0, 0, "no layers"),
        ([1, 0, 1], 0, 0, "Layer 1 costs 0 bytes"),
        ([1, 1], -1, 0, "embedding costs -1"),
        ([1, 1], 0, math.inf, "LM head costs inf"),
    ],
)
def test_sizes_that_make_no_sense_are_refused(layers, first, last, sentence):
    """By the number that is wrong."""
    with pytest.raises(PlacementError, match=sentence):
        partition_by_memory(layers, first, last, [100])


def test_a_whole_partition_passes_the_check():
    """With and without nodes that are left out."""
    check_partition((LayerRange(0, 3), None, LayerRange(3, 5)), 5)
    check_partition((), 0)


@pytest.mark.parametrize(
    "ranges",
    [
        (LayerRange(0, 3), LayerRange(4, 5)),
        (LayerRange(0, 3), LayerRange(2, 5)),
        (LayerRange(3, 5), LayerRange(0, 3)),
        (LayerRange(0, 3), LayerRange(3, 3), LayerRange(3, 5)),
        (LayerRange(0, 3),),
        (LayerRange(0, 6),),
        (LayerRange(1, 5),),
        (None,),
        (),
    ],
    ids=str,
)
def test_a_partition_with_a_gap_an_overlap_or_an_empty_range_does_not(ranges):
    """Each mistake is found."""
    with pytest.raises(PlacementError):
        check_partition(ranges, 5)

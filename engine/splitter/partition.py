"""Layers to stages: contiguous, disjoint, complete, in the order of the nodes given; pure.

Every way of dividing ends in ``check_partition``: a layer that two stages run, or none, is the
one mistake that must never leave this file.

The two divisions by cost are one dynamic programme over contiguous ranges. With ``C_n(k, j)`` the
cost of node n running layers ``[k, j)``, infinite where its memory does not hold them,

    slowest_n(j) = min( slowest_(n-1)(j),                            node n is left out
                        min over k < j of max(slowest_(n-1)(k), C_n(k, j)) )

gives the smallest bottleneck; a second pass with sums in place of maxima, over the ranges that
stay within that bottleneck, chooses the best among the divisions that reach it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from engine.domain import LayerRange
from engine.errors import InsufficientMemoryError, PlacementError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    _Costs = NDArray[
        np.float64
    ]  # [num_nodes, num_layers + 1, num_layers + 1]; [n, k, j]: C_n(k, j)

# One entry for each node in the order given; None is a node that is left out.
Partition = tuple[LayerRange | None, ...]


@dataclass(frozen=True, slots=True)
class LayerCosts:
    """What the layers of a model cost, in one unit: bytes, or milliseconds on a reference node.

    Attributes:
        layers: Cost of each layer, above 0.
        first_extra: What only the first stage has, 0 or more: the embedding.
        last_extra: What only the last stage has, 0 or more: the LM head.
    """

    layers: tuple[float, ...]
    first_extra: float = 0.0
    last_extra: float = 0.0


@dataclass(frozen=True, slots=True)
class NodeCapability:
    """What a node brings to a division by time.

    Attributes:
        capacity_bytes: What its stage may take.
        speed: Relative to the node the milliseconds were measured on; 2 is twice as fast.
        link_ms: Time to send one micro-batch's hidden states to the next stage.
    """

    capacity_bytes: float
    speed: float = 1.0
    link_ms: float = 0.0


def partition_evenly(num_layers: int, num_stages: int) -> tuple[LayerRange, ...]:
    """Return ranges whose lengths differ by at most one, the longer ones first.

    The last stage has the LM head to run as well, so it gets none of the remainder.

    Args:
        num_layers: Of the model, from 1.
        num_stages: From 1 to ``num_layers``.

    Raises:
        PlacementError: There are no layers or no stages, or more stages than layers.
    """
    if not 1 <= num_stages <= num_layers:
        raise PlacementError(
            f"{num_layers} layers can't be divided into {num_stages} stages: "
            f"each stage needs at least one layer."
        )
    length, remainder = divmod(num_layers, num_stages)
    cuts = [stage * length + min(stage, remainder) for stage in range(num_stages + 1)]
    ranges = tuple(LayerRange(start, stop) for start, stop in pairwise(cuts))
    check_partition(ranges, num_layers)
    return ranges


def ranges_from_cuts(cuts: Sequence[int], num_layers: int) -> tuple[LayerRange, ...]:
    """Return the ranges between explicit cuts; a cut is the first layer of the next stage.

    Args:
        cuts: Ascending, each from 1 to ``num_layers - 1``; none means one stage.
        num_layers: Of the model, from 1.

    Raises:
        UsageError: A cut is out of range; the sentence names it.

    Cuts that do not ascend raise as ``check_ascending`` says.
    """
    for cut in cuts:
        if not 1 <= cut < num_layers:
            raise UsageError(
                f"The cut {cut} is not between layers: with {num_layers} layers a cut must be "
                f"from 1 to {num_layers - 1}."
            )
    check_ascending(cuts)
    ranges = tuple(LayerRange(start, stop) for start, stop in pairwise((0, *cuts, num_layers)))
    check_partition(ranges, num_layers)
    return ranges


def check_ascending(cuts: Sequence[int]) -> None:
    """Return if cuts follow each other upwards; says nothing of the model.

    Args:
        cuts: As given.

    Raises:
        UsageError: A cut is repeated, or smaller than the one before it; the sentence names it.
    """
    for earlier, cut in pairwise(cuts):
        if cut == earlier:
            raise UsageError(f"The cut {cut} is given twice.")
        if cut < earlier:
            raise UsageError(f"The cut {cut} comes after {earlier}; cuts must ascend.")


def partition_by_memory(
    layer_bytes: Sequence[float],
    first_extra_bytes: float,
    last_extra_bytes: float,
    capacities_bytes: Sequence[float],
) -> Partition:
    """Divide in proportion to capacity, every node within its own.

    The fullest node is as empty as can be; among the divisions that reach that, the one with
    the smallest sum of squares of how full the nodes are.

    Args:
        layer_bytes: What each layer takes, above 0: weights, and its share of the KV cache.
        first_extra_bytes: What the first stage takes besides: the embedding.
        last_extra_bytes: What the last stage takes besides: the LM head.
        capacities_bytes: What each node may use, in the order of the pipeline.

    Returns:
        One range for each node; None for one that is left out, because a single layer is too
        much for it or there are fewer layers than nodes.

    Memory too small in all raises ``InsufficientMemoryError`` with both numbers; enough in all,
    but not where it is, or a number that makes no sense, ``PlacementError``.
    """
    sizes = LayerCosts(tuple(layer_bytes), first_extra_bytes, last_extra_bytes)
    capacities = np.array(capacities_bytes, dtype=np.float64)
    loads = _range_costs("bytes", sizes)
    fullness = loads[np.newaxis] / np.maximum(capacities, 1.0)[:, np.newaxis, np.newaxis]
    return _least_bottleneck(fullness, fullness**2, sizes, capacities)


def partition_by_time(
    times_ms: LayerCosts, sizes_bytes: LayerCosts, nodes: Sequence[NodeCapability]
) -> Partition:
    """Divide so that the slowest stage is as fast as can be, every node within its memory.

    A stage's time is that of its layers, of the embedding on the first and the LM head on the
    last, divided by the node's speed, and that of sending hidden states onward, which the last
    stage does not. The slowest stage decides the throughput of a full pipeline. Among the
    divisions that reach it, the one with the smallest sum over the stages is taken: one user
    waits for all of them in turn.

    Args:
        times_ms: Milliseconds of one pass on a node of speed 1.
        sizes_bytes: Bytes of the same layers.
        nodes: In the order of the pipeline.

    Returns:
        One range for each node; None for one that is better left out.

    Raises:
        PlacementError: The two costs differ in their number of layers, or a node's speed or
            link time is not what its description says.

    Memory too small in all raises ``InsufficientMemoryError`` with both numbers; enough in all,
    but not where it is, or a number that makes no sense, ``PlacementError``.
    """
    if len(times_ms.layers) != len(sizes_bytes.layers):
        raise PlacementError(
            f"There are times for {len(times_ms.layers)} layers and sizes for "
            f"{len(sizes_bytes.layers)}."
        )
    for number, node in enumerate(nodes):
        if not (0 < node.speed < math.inf and 0 <= node.link_ms < math.inf):
            raise PlacementError(
                f"Node {number} has speed {node.speed} and link time {node.link_ms} ms; "
                f"the first must be above 0 and the second 0 or more."
            )
    speeds = np.array([node.speed for node in nodes])
    links_ms = np.array([node.link_ms for node in nodes])
    capacities = np.array([node.capacity_bytes for node in nodes], dtype=np.float64)
    stage_ms = _range_costs("ms", times_ms)[np.newaxis] / speeds[:, np.newaxis, np.newaxis]
    stage_ms[:, :, :-1] += links_ms[:, np.newaxis, np.newaxis]
    return _least_bottleneck(stage_ms, stage_ms, sizes_bytes, capacities)


def check_partition(ranges: Iterable[LayerRange | None], num_layers: int) -> None:
    """Raise unless the ranges are complete, disjoint, in order, and none is empty.

    Args:
        ranges: In the order of the stages; None, a node left out, is passed over.
        num_layers: Of the model.

    Raises:
        PlacementError: They are not; the sentence names the first range that is wrong.
    """
    covered = 0
    for layers in ranges:
        if layers is None:
            continue
        if layers.start != covered or layers.stop <= layers.start:
            raise PlacementError(
                f"A stage has the layers [{layers.start}, {layers.stop}) where one that begins "
                f"with layer {covered} is due."
            )
        covered = layers.stop
    if covered != num_layers:
        raise PlacementError(f"The stages run {covered} layers, and the model has {num_layers}.")


def _range_costs(unit: str, costs: LayerCosts) -> NDArray[np.float64]:
    """Return what each range ``[k, j)`` costs, ``[num_layers + 1, num_layers + 1]``.

    Raises:
        PlacementError: There are no layers, or a cost is not what it must be.
    """
    if not costs.layers:
        raise PlacementError("There are no layers to divide.")
    for number, cost in enumerate(costs.layers):
        if not 0 < cost < math.inf:
            raise PlacementError(f"Layer {number} costs {cost} {unit}; it must be above 0.")
    for name, extra in (("embedding", costs.first_extra), ("LM head", costs.last_extra)):
        if not 0 <= extra < math.inf:
            raise PlacementError(f"The {name} costs {extra} {unit}; it must be 0 or more.")
    ends = np.concatenate(([0.0], np.cumsum(np.array(costs.layers, dtype=np.float64))))
    ranges = ends[np.newaxis, :] - ends[:, np.newaxis]
    ranges[0, :] += costs.first_extra
    ranges[:, -1] += costs.last_extra
    ranges[np.tril_indices(len(ends))] = np.inf  # k >= j: not a range
    return ranges


def _least_bottleneck(
    costs: _Costs, tie_costs: _Costs, sizes: LayerCosts, capacities: NDArray[np.float64]
) -> Partition:
    """Return the division that fits with the least largest cost, then least sum of tie costs.

    Raises:
        PlacementError: There are no nodes, or a capacity is not a number.
    """
    if not (capacities.size and np.isfinite(capacities).all()):
        raise PlacementError(f"The capacities {capacities.tolist()} are not those of nodes.")
    excess = _range_costs("bytes", sizes)[np.newaxis] - capacities[:, np.newaxis, np.newaxis]
    costs = np.where(excess > 0, np.inf, costs)
    bottleneck = _totals(costs, np.maximum)[-1, -1]
    if bottleneck == np.inf:
        shortfall = _totals(excess, np.maximum, start=-np.inf)[-1, -1]
        _refuse_too_small(sizes, capacities, shortfall)
    # Rounding must not shut out the division that was just found.
    allowed = np.where(costs <= bottleneck * (1 + 1e-12), tie_costs, np.inf)
    partition = _traced(_totals(allowed, np.add), allowed)
    check_partition(partition, len(sizes.layers))
    return partition


def _totals(
    costs: _Costs, combine: Callable[[_Costs, _Costs], _Costs], start: float = 0.0
) -> NDArray[np.float64]:
    """Return the best total for layers ``[0, j)`` on the first n nodes, ``[num_nodes + 1, j]``."""
    num_nodes, num_ends, _ = costs.shape
    totals = np.full((num_nodes + 1, num_ends), np.inf)
    totals[:, 0] = start
    for node in range(num_nodes):
        used = combine(totals[node][:, np.newaxis], costs[node]).min(axis=0)
        totals[node + 1] = np.minimum(totals[node], used)
    return totals


def _traced(totals: NDArray[np.float64], costs: _Costs) -> Partition:
    """Walk the sums back from the last layer to the range of each node."""
    ranges: list[LayerRange | None] = []
    stop = costs.shape[1] - 1
    for node in reversed(range(len(costs))):
        if totals[node + 1, stop] == totals[node, stop]:
            ranges.append(None)
            continue
        start = int(np.argmin(totals[node] + costs[node, :, stop]))
        ranges.append(LayerRange(start, stop))
        stop = start
    return tuple(reversed(ranges))


def _refuse_too_small(
    sizes: LayerCosts, capacities: NDArray[np.float64], shortfall: float
) -> NoReturn:
    """Say by how much the memory is too small: in all, or where it is shared best.

    Raises:
        InsufficientMemoryError: Too small in all.
        PlacementError: Enough in all, but not where it is.
    """
    required = math.ceil(sum(sizes.layers) + sizes.first_extra + sizes.last_extra)
    available = math.floor(np.maximum(capacities, 0.0).sum())
    if required > available:
        raise InsufficientMemoryError(required, available)
    raise PlacementError(
        f"The model needs {required} bytes and {available} may be used in all, but no cut "
        f"between layers keeps every node within its own share: at best one has "
        f"{math.ceil(shortfall)} bytes too few.",
        "Allow that much more on each PC, choose a shorter context, or add a PC.",
    )

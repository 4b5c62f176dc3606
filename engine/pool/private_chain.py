"""A chain whose first and last stage stay on one PC, so that no other sees text; pure.

Token ids enter at the first stage and leave at the last; what travels in between are hidden
states. The PC holds as many layers on either side, one more on the first if their number is odd,
because a few layers from either end the text can still be guessed from them.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from engine.domain import LayerRange
from engine.pool.chain_search import MAX_CANDIDATES, ChainSearch, fits_in_order
from engine.pool.chain_times import expectation
from engine.pool.stage_memory import StageSizes, capacity_for
from engine.splitter.partition import partition_by_memory

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from engine.pool.chain_choice import PlacementQuestion
    from engine.pool.chain_times import Chain
    from engine.pool.plan import NodeFacts


def private_chain(question: PlacementQuestion) -> Chain | None:
    """Return the best private chain with the fewest other PCs; None if there is none.

    Args:
        question: What to place; its asker is the PC that keeps the text.
    """
    home = next((n for n in question.usable if n.node_id == question.wishes.asker), None)
    if home is None:
        return None
    shares = list(home_shares(question.sizes, capacity_for(home.usable_bytes, num_stages=2)))
    others = sorted(
        (node for node in question.usable if node is not home),
        key=lambda node: (-node.capacity_bytes, node.node_id),
    )[:MAX_CANDIDATES]
    if not shares:
        return None
    most = shares[-1]  # what is left for the others is then the least
    search = ChainSearch(
        middle_sizes(question.sizes, most), [node.capacity_bytes for node in others]
    )
    for size in range(1, min(len(others), len(most)) + 1):
        for numbers in search.sets_of(size):  # the roomiest first
            order = [others[n] for n in search.order_of(numbers)]
            chains = [
                chain
                for middle in shares
                if (chain := _divided(question, home, order, middle)) is not None
            ]
            return min(chains, key=lambda chain: _score(question, chain))
    return None


def home_shares(sizes: StageSizes, capacity: int) -> Iterator[LayerRange]:
    """Yield the layers left for the others, for each share that one PC can hold on either side.

    Args:
        sizes: Of the model.
        capacity: Of that PC, for two stages.

    Yields:
        The middle, from the longest to the shortest; never empty.
    """
    for held in range(2, sizes.num_layers):
        start, stop = -(-held // 2), sizes.num_layers - held // 2
        if _home_bytes(sizes, LayerRange(start, stop)) <= capacity:
            yield LayerRange(start, stop)


def middle_sizes(sizes: StageSizes, middle: LayerRange) -> StageSizes:
    """Return the sizes of layers in the middle, as a model without embedding and head.

    Args:
        sizes: Of the model.
        middle: Which layers.
    """
    layers = sizes.layers[middle.start : middle.stop]
    return StageSizes(ends=tuple(accumulate(layers, initial=0)), embedding=0, head=0)


def _home_bytes(sizes: StageSizes, middle: LayerRange) -> int:
    own = sizes.ends[-1] - (sizes.ends[middle.stop] - sizes.ends[middle.start])
    return own + sizes.embedding + sizes.head


def _divided(
    question: PlacementQuestion, home: NodeFacts, others: Sequence[NodeFacts], middle: LayerRange
) -> Chain | None:
    """Return the chain with that middle, in proportion to memory; None if it doesn't fit."""
    sizes = middle_sizes(question.sizes, middle)
    capacities = [node.capacity_bytes for node in others]
    if not fits_in_order(sizes, capacities):
        return None
    partition = partition_by_memory([float(size) for size in sizes.layers], 0, 0, capacities)
    between = tuple(
        (node, LayerRange(part.start + middle.start, part.stop + middle.start))
        for node, part in zip(others, partition, strict=True)
        if part is not None
    )
    last = LayerRange(middle.stop, question.sizes.num_layers)
    return ((home, LayerRange(0, middle.start)), *between, (home, last))


def _score(question: PlacementQuestion, chain: Chain) -> tuple[float, float]:
    """Return what the best chain has least of: the slowest PC, or the fullest one."""
    expected = expectation(question.model, chain)
    if expected is not None:
        return expected.slowest_ms, expected.circuit_ms
    taken: dict[str, float] = {}
    sizes = question.sizes
    for node, layers in chain:
        extra = sizes.embedding if layers.start == 0 else 0
        extra += sizes.head if layers.stop == sizes.num_layers else 0
        share = (sizes.ends[layers.stop] - sizes.ends[layers.start] + extra) / node.capacity_bytes
        taken[node.node_id] = taken.get(node.node_id, 0.0) + share
    return max(taken.values()), sum(share**2 for share in taken.values())

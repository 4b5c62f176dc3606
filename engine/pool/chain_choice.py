"""Which PCs form the chain, in which order, and where the layers are cut; pure.

The result depends on what is known of the PCs, never on the order in which they are given.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING

from engine.pool.chain_search import MAX_CANDIDATES, ChainSearch, fits_in_order, order_of_many
from engine.pool.chain_times import (
    chain_score,
    expectation,
    link_ms,
    ring_ms,
)
from engine.pool.plan import NodeFacts, why_unusable
from engine.splitter.layer_work import layer_times
from engine.splitter.partition import (
    LayerCosts,
    NodeCapability,
    partition_by_memory,
    partition_by_time,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from engine.domain import ModelDescription, NodeId
    from engine.pool.chain_times import Chain
    from engine.pool.stage_memory import StageSizes, Workload

CHAIN_GAIN = 1.1  # a chain must answer so much faster to be chosen where one PC would do
MAX_ORDERED = 6  # PCs of which every order is looked at
MAX_TIMED_SETS = 32  # sets of PCs whose division by time is computed


@dataclass(frozen=True, slots=True)
class Wishes:
    """What whoever asks would like.

    Attributes:
        asker: The PC it asks from; the first stage comes there, or as near as can be.
        is_private: The first and the last stage stay on the asker's PC, so that no other sees
            the text; hidden states go through about as many layers there on either side.
    """

    asker: NodeId | None = None
    is_private: bool = False


@dataclass(frozen=True, slots=True)
class PlacementQuestion:
    """Everything a plan depends on, brought into one form.

    Attributes:
        model: What to divide.
        workload: What it must have room for.
        nodes: Every PC that is known, by id.
        wishes: Head and privacy.
        sizes: Of the model's parts under the workload.
        smallest_bytes: Memory a PC must give to hold the smallest stage.
    """

    model: ModelDescription
    workload: Workload
    nodes: tuple[NodeFacts, ...]
    wishes: Wishes
    sizes: StageSizes
    smallest_bytes: int

    @property
    def allowed(self) -> tuple[NodeFacts, ...]:
        """The PCs that may be used, however little room they have."""
        return tuple(n for n in self.nodes if n.devices and not n.exclusions)

    @property
    def usable(self) -> tuple[NodeFacts, ...]:
        """The PCs that can hold at least the smallest stage."""
        return tuple(n for n in self.nodes if why_unusable(n, self.smallest_bytes) is None)

    @property
    def are_times_known(self) -> bool:
        """Whether every one of those was measured with this model."""
        return all(node.known_layer_ms is not None for node in self.usable)


def solo_node(question: PlacementQuestion) -> NodeFacts | None:
    """Return the PC that should run everything, if one can: the fastest, or else the asker's.

    Args:
        question: What to place; a private chain runs on no other PC than the asker's.
    """
    roomy = [node for node in question.usable if node.capacity_bytes >= question.sizes.whole]
    if question.wishes.is_private:
        roomy = [node for node in roomy if node.node_id == question.wishes.asker]
    use_times = question.are_times_known

    def preference(node: NodeFacts) -> tuple[float, bool, bool, int, str]:
        layer_ms = node.known_layer_ms or 0.0
        return (
            layer_ms if use_times else 0.0,
            node.node_id != question.wishes.asker,
            node.on_battery,
            -node.capacity_bytes,
            node.node_id,
        )

    return min(roomy, key=preference, default=None)


def faster_chain(question: PlacementQuestion, alone: Chain) -> Chain | None:
    """Return the chain of the fewest PCs that answers clearly faster than one PC, if any does.

    Args:
        question: What to place.
        alone: The one PC, with every layer.
    """
    solo_time = expectation(question.model, alone)
    if solo_time is None or not question.are_times_known:
        return None
    for chain in _best_chains(question):
        time = expectation(question.model, chain)
        if time is not None and time.circuit_ms * CHAIN_GAIN < solo_time.circuit_ms:
            return chain
    return None


def smallest_chain(question: PlacementQuestion) -> Chain | None:
    """Return the best chain of the fewest PCs that hold the model; None if they don't.

    Args:
        question: What to place; no PC holds it alone.
    """
    chain = next(_best_chains(question), None)
    if chain is not None:
        return chain
    roomiest = sorted(question.usable, key=lambda node: (-node.capacity_bytes, node.node_id))
    order = order_of_many(question.sizes, [node.capacity_bytes for node in roomiest])
    return None if order is None else _divided(question, [roomiest[n] for n in order])


def _best_chains(question: PlacementQuestion) -> Iterator[Chain]:
    """Yield the best chain of each number of PCs that hold the model, from two on."""
    candidates = _candidates(question)
    search = ChainSearch(question.sizes, [node.capacity_bytes for node in candidates])
    for size in range(2, min(len(candidates), question.sizes.num_layers) + 1):
        chain = _best_of_size(question, candidates, search, size)
        if chain is not None:
            yield chain


def _candidates(question: PlacementQuestion) -> list[NodeFacts]:
    """Return the PCs whose sets are looked at: the roomiest, and the asker's.

    If any k PCs hold a model, the k roomiest do.
    """
    roomiest = sorted(
        question.usable,
        key=lambda node: (
            node.node_id != question.wishes.asker,
            -node.capacity_bytes,
            node.node_id,
        ),
    )
    return sorted(roomiest[:MAX_CANDIDATES], key=lambda node: node.node_id)


def _best_of_size(
    question: PlacementQuestion, candidates: Sequence[NodeFacts], search: ChainSearch, size: int
) -> Chain | None:
    """Return the best chain of so many PCs, if there is one."""
    speed = {
        number: 1 / node.known_layer_ms if node.known_layer_ms else 0.0
        for number, node in enumerate(candidates)
    }

    def preference(numbers: tuple[int, ...]) -> tuple[float, bool, int, int, tuple[int, ...]]:
        members = [candidates[n] for n in numbers]
        return (
            -sum(speed[n] for n in numbers) if question.are_times_known else 0.0,
            question.wishes.asker not in {node.node_id for node in members},
            sum(node.on_battery for node in members),
            -sum(node.capacity_bytes for node in members),
            numbers,
        )

    sets = sorted(search.sets_of(size), key=preference)
    most = MAX_TIMED_SETS if question.are_times_known else 1
    chains = [
        _divided(question, _ordered(question, candidates, search, numbers))
        for numbers in sets[:most]
    ]
    return min(chains, key=lambda chain: chain_score(question.model, chain), default=None)


def _ordered(
    question: PlacementQuestion,
    candidates: Sequence[NodeFacts],
    search: ChainSearch,
    numbers: tuple[int, ...],
) -> list[NodeFacts]:
    """Return a set of PCs in the order of the chain: head near the asker, then short links."""
    if len(numbers) > MAX_ORDERED:
        return [candidates[n] for n in search.order_of(numbers)]
    asker = next((n for n in question.nodes if n.node_id == question.wishes.asker), None)

    def preference(order: tuple[int, ...]) -> tuple[float, float, tuple[int, ...]]:
        nodes = [candidates[n] for n in order]
        return (0.0 if asker is None else link_ms(asker, nodes[0])), ring_ms(nodes), order

    possible = (
        order
        for order in permutations(numbers)
        if fits_in_order(question.sizes, [candidates[n].capacity_bytes for n in order])
    )
    # Where the set is larger than it must be, every order may leave one of them without layers.
    order = min(possible, key=preference, default=None) or search.order_of(numbers)
    return [candidates[n] for n in order]


def _divided(question: PlacementQuestion, nodes: Sequence[NodeFacts]) -> Chain:
    """Divide the layers among PCs that hold them in this order."""
    sizes = question.sizes
    layers = tuple(float(size) for size in sizes.layers)
    if question.are_times_known:
        following = [*nodes[1:], nodes[0]]
        partition = partition_by_time(
            layer_times(question.model),
            LayerCosts(layers, float(sizes.embedding), float(sizes.head)),
            [
                NodeCapability(
                    capacity_bytes=float(node.capacity_bytes),
                    speed=1 / (node.known_layer_ms or 1.0),
                    link_ms=link_ms(node, after),
                )
                for node, after in zip(nodes, following, strict=True)
            ],
        )
    else:
        partition = partition_by_memory(
            layers, sizes.embedding, sizes.head, [node.capacity_bytes for node in nodes]
        )
    return tuple((n, part) for n, part in zip(nodes, partition, strict=True) if part is not None)

"""How long a token takes along a chain, from what was measured on each PC; pure."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from engine.pool.plan import Expectation
from engine.splitter.layer_work import layer_times, stage_work

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeAlias

    from engine.domain import LayerRange, ModelDescription
    from engine.pool.plan import NodeFacts
    from engine.splitter.partition import LayerCosts

    Chain: TypeAlias = tuple[tuple[NodeFacts, LayerRange], ...]

UNKNOWN_LINK_MS = 1.0  # a hop in a local network, until it is measured


def compute_ms(times: LayerCosts, node: NodeFacts, layers: LayerRange) -> float | None:
    """Return how long a PC computes for one token; None if that isn't known.

    Args:
        times: Of ``layer_times``.
        node: The PC.
        layers: Of its stage.
    """
    per_layer = node.known_layer_ms
    if per_layer is None:
        return None
    return per_layer * stage_work(times, layers)


def ring_ms(nodes: Sequence[NodeFacts]) -> float:
    """Return the time of one round through a chain and back, links only.

    Args:
        nodes: In the order of the chain; a link that isn't known counts as one of a local network.
    """
    following = [*nodes[1:], nodes[0]]
    return sum(link_ms(a, b) for a, b in zip(nodes, following, strict=True))


def link_ms(sender: NodeFacts, receiver: NodeFacts) -> float:
    """Return the time from one PC to another, as either measured it.

    Args:
        sender: One of them.
        receiver: The other.
    """
    known = measured_link_ms(sender, receiver)
    return UNKNOWN_LINK_MS if known is None else known


def measured_link_ms(sender: NodeFacts, receiver: NodeFacts) -> float | None:
    """Return the time from one PC to another; None if neither measured it.

    Args:
        sender: One of them; what it measured counts first.
        receiver: The other.
    """
    own = sender.link_ms_to(receiver.node_id)
    return receiver.link_ms_to(sender.node_id) if own is None else own


def chain_score(model: ModelDescription, chain: Chain) -> tuple[float, float]:
    """Return what the better of two chains has less of: slowest stage, then the whole circuit.

    Args:
        model: Whose layers.
        chain: PCs and layers in order; a time that isn't known counts as none.
    """
    times = layer_times(model)
    work = [compute_ms(times, node, layers) or 0.0 for node, layers in chain]
    links = [link_ms(a, b) for (a, _), (b, _) in pairwise(chain)]
    busy = [own + link for own, link in zip(work, [*links, 0.0], strict=True)]
    return max(busy), sum(work) + ring_ms([node for node, _ in chain])


def expectation(model: ModelDescription, chain: Chain) -> Expectation | None:
    """Return how fast a chain will be; None where a time of it was not measured.

    Args:
        model: Whose layers.
        chain: PCs and layers in order, at least one; a PC may come twice.
    """
    times = layer_times(model)
    following = [*(node for node, _ in chain[1:]), chain[0][0]]
    busy_ms: dict[str, float] = {}
    circuit_ms = 0.0
    for number, ((node, layers), after) in enumerate(zip(chain, following, strict=True)):
        compute = compute_ms(times, node, layers)
        link = measured_link_ms(node, after)
        if compute is None or link is None:
            return None
        circuit_ms += compute + link
        # Only ids go back to the head, and nobody waits for the sending of them.
        sending = link if number < len(chain) - 1 else 0.0
        busy_ms[node.node_id] = busy_ms.get(node.node_id, 0.0) + compute + sending
    slowest = max(chain, key=lambda stage: busy_ms[stage[0].node_id])[0].node_id
    return Expectation(slowest_node=slowest, slowest_ms=busy_ms[slowest], circuit_ms=circuit_ms)

"""Which nodes have a model's files and can cut it, and which should; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Set

    from engine.domain import NodeId
    from engine.messages.deployment import Wish
    from engine.pool.deployment_inputs import NodeSeen

    Nodes = Mapping[NodeId, NodeSeen]

ENOUGH_KEEPERS = 2  # the files survive the loss of any one PC


def keepers(wish: Wish, nodes: Nodes, asker_incarnation: int | None) -> frozenset[NodeId]:
    """Return the reachable nodes that can cut the model.

    Args:
        wish: Which model.
        nodes: All that are known.
        asker_incarnation: Start of the node that wished: it has the files, though what it says
            of itself may not say so yet. None if that isn't known.
    """

    def has_it(node: NodeSeen) -> bool:
        has_wished = node.node_id == wish.asked_on and node.incarnation == asker_incarnation
        return has_wished or wish.model_sha256 in node.kept_models

    return frozenset(n.node_id for n in nodes.values() if n.is_reachable and has_it(n))


def best_splitter(
    wish: Wish, able: Set[NodeId], chain: Set[NodeId], cannot: Set[NodeId]
) -> NodeId | None:
    """Return who should cut the model: who was asked, or else a node of the chain; None for nobody.

    Args:
        wish: Which model.
        able: Who keeps it.
        chain: Who will run it; a file that is made where it is needed need not travel.
        cannot: Who has tried already.
    """

    def preference(node_id: NodeId) -> tuple[bool, bool, NodeId]:
        return node_id != wish.asked_on, node_id not in chain, node_id

    return min(able - cannot, key=preference, default=None)


def next_keeper(
    nodes: Nodes, able: Set[NodeId], unfit: Set[NodeId], asked: Set[NodeId], own: NodeId
) -> NodeId | None:
    """Return who should fetch the model's files too; None if nobody need or can.

    Args:
        nodes: All that are known.
        able: Who keeps it already.
        unfit: Who is left out.
        asked: Who was asked in vain; they come last.
        own: The coordinator, which comes first: where it is, there is a pool.
    """
    if len(able) >= ENOUGH_KEEPERS:
        return None
    able_to = (
        node
        for node in nodes.values()
        if node.is_reachable
        and not node.facts.exclusions
        and node.node_id not in able
        and node.node_id not in unfit
    )

    def preference(node: NodeSeen) -> tuple[bool, bool, int, NodeId]:
        return (
            node.node_id in asked,
            node.node_id != own,
            -node.facts.usable_bytes,
            node.node_id,
        )

    best = min(able_to, key=preference, default=None)
    return None if best is None else best.node_id

"""What of a pool must have changed before planning again may come out differently; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from engine.pool.deployment_plan import differs

if TYPE_CHECKING:
    from collections.abc import Mapping, Set

    from engine.domain import NodeId
    from engine.pool.deployment_inputs import NodeSeen


class Looked(msgspec.Struct, frozen=True):
    """What counts of one node."""

    incarnation: int
    usable_bytes: int
    is_keeper: bool
    is_excluded: bool
    devices: tuple[str, ...]


def look(nodes: Mapping[NodeId, NodeSeen], able: Set[NodeId]) -> dict[NodeId, Looked]:
    """Return what counts of each node that can be used.

    Args:
        nodes: All that are known.
        able: Who keeps the model.
    """
    return {
        node_id: Looked(
            node.incarnation,
            node.facts.usable_bytes,
            node_id in able,
            bool(node.facts.exclusions),
            node.facts.devices,
        )
        for node_id, node in nodes.items()
        if node.is_reachable
    }


def has_changed(
    before: Mapping[NodeId, Looked], after: Mapping[NodeId, Looked], *, by_memory: bool
) -> bool:
    """Return whether it is worth planning again.

    Args:
        before: What was looked at when planning came to nothing.
        after: What there is now.
        by_memory: Whether more than a tenth more or less memory counts as well.
    """
    if before.keys() != after.keys():
        return True
    return any(
        msgspec.structs.replace(old, usable_bytes=0)
        != msgspec.structs.replace(after[node_id], usable_bytes=0)
        or (by_memory and differs(old.usable_bytes, after[node_id].usable_bytes))
        for node_id, old in before.items()
    )

"""Which models fit this PC, or the pool, or by how much they don't; pure.

The same idea as the coordinator's, from what the PCs say they may give: a stage takes its weights,
the device's own copy of them, the KV cache, what the process and each layer's graph take, and a
fifth more. The coordinator decides; this says what it will very likely find.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING, Literal

from app.pool.memory_parts import memory_parts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from app.models.catalogue import CatalogueModel
    from engine.domain import NodeId
    from engine.messages.pool_status import PoolStatus

Verdict = Literal["here", "pool", "short", "unknown"]

_COPY = 1.09  # of the weights that are multiplied with
_PROCESS_BYTES = 124 * 1024 * 1024
_LAYER_BYTES = 2 * 1024 * 1024
_HEADROOM = 1.2
_CONTEXT_TOKENS = 8192
_USERS = 4
_MAX_PCS = 16  # looked at, the roomiest first


@dataclass(frozen=True, slots=True)
class Fit:
    """What becomes of one model.

    Attributes:
        verdict: On this PC, on several of the pool, or not; unknown before the pool was seen.
        node_ids: Which PCs would hold it, the roomiest first.
        needed_bytes: In all, by those PCs; by this PC alone where it is short.
        short_bytes: What one more PC would have to lend; 0 where it fits.
    """

    verdict: Verdict
    node_ids: tuple[NodeId, ...] = ()
    needed_bytes: int = 0
    short_bytes: int = 0


@dataclass(frozen=True, slots=True)
class _Parts:
    """Bytes of a model's parts, without headroom."""

    layer: float
    num_layers: int
    embedding: float
    head: float

    @property
    def whole(self) -> float:
        return self.layer * self.num_layers + self.embedding + self.head


def fit(model: CatalogueModel, status: PoolStatus | None) -> Fit:
    """Return what becomes of a model.

    Args:
        model: Which.
        status: The pool as it is now; None before it was seen.
    """
    if status is None or not any(node.report for node in status.nodes):
        return Fit("unknown")
    parts = _parts(model)
    room = usable_bytes(status)
    own = next((node.node_id for node in status.nodes if node.is_asked), None)
    if own is not None and own in room and _room(room[own]) >= parts.whole:
        return Fit("here", (own,), _with_headroom(parts.whole, 1))
    roomiest = sorted(room, key=lambda node_id: -room[node_id])[:_MAX_PCS]
    capacities = [_room(room[node_id]) for node_id in roomiest]
    for count in range(1, len(roomiest) + 1):
        if _holds(parts, capacities[:count]):
            return Fit("pool", tuple(roomiest[:count]), _with_headroom(parts.whole, count))
    missing = _missing(parts, capacities)
    return Fit("short", (), _with_headroom(parts.whole, 1), _with_headroom(missing, 1))


def usable_bytes(status: PoolStatus) -> dict[NodeId, int]:
    """Return what each PC that is there may give to Daisy in all.

    Args:
        status: The pool as it is now.
    """
    return {
        node.node_id: memory_parts(node.report, node.memory_reserved_bytes).lent
        for node in status.nodes
        if node.report is not None and node.state in {"online", "silent"} and node.report.devices
    }


def _parts(model: CatalogueModel) -> _Parts:
    kv_tokens = _CONTEXT_TOKENS * _USERS
    # 8-bit keys with a scale for each block's channel, 8-bit values with one for each token.
    kv = model.num_kv_heads * (1.25 * model.head_size + model.head_size + 8) * kv_tokens
    return _Parts(
        layer=model.layer_bytes * (1 + _COPY) + kv + _LAYER_BYTES,
        num_layers=model.num_layers,
        embedding=model.table_bytes,
        head=model.table_bytes * (1 + _COPY),
    )


def _room(usable: float) -> float:
    return usable / _HEADROOM - _PROCESS_BYTES


def _with_headroom(num_bytes: float, stages: int) -> int:
    return round((num_bytes + stages * _PROCESS_BYTES) * _HEADROOM)


def _holds(parts: _Parts, capacities: Sequence[float]) -> bool:
    """Return whether PCs hold the whole, one of them first and one last in the chain."""
    return _most_layers(parts, capacities) >= parts.num_layers


def _most_layers(parts: _Parts, capacities: Sequence[float]) -> int:
    """Return how many layers PCs hold beside embedding and head; negative if not even those."""
    if len(capacities) < 2:
        rest = sum(capacities) - parts.embedding - parts.head
        return int(rest // parts.layer) if capacities else -1
    plain = [max(0, int(capacity // parts.layer)) for capacity in capacities]
    most = -1
    for first, last in permutations(range(len(capacities)), 2):
        at_first = int((capacities[first] - parts.embedding) // parts.layer)
        at_last = int((capacities[last] - parts.head) // parts.layer)
        if at_first >= 1 and at_last >= 1:
            most = max(most, sum(plain) - plain[first] - plain[last] + at_first + at_last)
    return most


def _missing(parts: _Parts, capacities: Sequence[float]) -> float:
    """Return what one more PC would have to hold: some layers, and an end where that helps."""
    useful = [capacity for capacity in capacities if capacity >= parts.layer]
    if not useful:
        return parts.whole
    low, high = 0.0, parts.whole
    for _ in range(40):
        middle = (low + high) / 2
        enough = any(_holds(parts, [*useful[:count], middle]) for count in range(len(useful) + 1))
        low, high = (low, middle) if enough else (middle, high)
    return high

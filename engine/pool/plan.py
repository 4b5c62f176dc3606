"""What is known of each PC, and a plan: who runs which layers, and why; pure data.

A plan explains itself: every PC has a row, with its memory and its layers, or with the reason it
has none and what would help.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import msgspec

from engine.domain import LayerRange, NodeId
from engine.pool.sentences import sentence
from engine.pool.stage_memory import StageMemory, capacity_for

if TYPE_CHECKING:
    from collections.abc import Iterable

GIB = 1024**3

Basis = Literal["memory", "time"]
Role = Literal["stage", "standby", "left out"]


class Exclusion(msgspec.Struct, frozen=True):
    """Why a PC may not be used, and what would change that; two sentences for people."""

    reason: str  # "It is paused by its owner."
    remedy: str  # "Resume it in its tray."


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What one PC says of itself, and what was measured on it.

    Attributes:
        node_id: Stable.
        name: For people; two PCs may have the same.
        total_bytes: RAM, once: an integrated GPU has no memory of its own.
        free_bytes: What could be had now without paging, without what is lent.
        lent_bytes: What its stages hold already; a new placement gets it back.
        cap_bytes: The most its owner lends; None if that is not limited.
        reserve_bytes: Stays free for the owner's own programs.
        devices: That can hold a stage, the better ones first.
        layer_ms: One token through an average layer of this model; None if not measured.
        link_ms: To send one token's hidden states to each other PC, as far as measured.
        on_battery: PCs on mains come first, all else being equal.
        exclusions: Why it may not be used; none if it may.
    """

    node_id: NodeId
    name: str
    total_bytes: int
    free_bytes: int
    lent_bytes: int = 0
    cap_bytes: int | None = None
    reserve_bytes: int = 0
    devices: tuple[str, ...] = ("CPU",)
    layer_ms: float | None = None
    link_ms: dict[NodeId, float] = {}
    on_battery: bool = False
    exclusions: tuple[Exclusion, ...] = ()

    @property
    def usable_bytes(self) -> int:
        """What stages may take: the owner's cap, or what is free without the reserve."""
        free = self.free_bytes + self.lent_bytes - self.reserve_bytes
        return max(0, free if self.cap_bytes is None else min(self.cap_bytes, free))

    @property
    def capacity_bytes(self) -> int:
        """What of it one stage's weights and KV may take."""
        return capacity_for(self.usable_bytes)

    @property
    def known_layer_ms(self) -> float | None:
        """The measured time if it is one; a peer may send anything."""
        known = self.layer_ms is not None and 0 < self.layer_ms < math.inf
        return self.layer_ms if known else None

    def link_ms_to(self, other: NodeId) -> float | None:
        """Return the measured time to another PC; 0 to itself, None if it isn't known."""
        if other == self.node_id:
            return 0.0
        measured = self.link_ms.get(other)
        return measured if measured is not None and 0 <= measured < math.inf else None


class PlannedStage(msgspec.Struct, frozen=True, kw_only=True):
    """One stage of a plan, in the order of the chain."""

    node_id: NodeId
    layers: LayerRange
    device: str
    memory: StageMemory
    compute_ms: float | None  # of one token; None where not measured


class PlanRow(msgspec.Struct, frozen=True, kw_only=True):
    """One PC of a plan."""

    node_id: NodeId
    name: str
    total_bytes: int
    free_bytes: int
    reserved_bytes: int
    lent_bytes: int
    usable_bytes: int
    role: Role
    layers: tuple[LayerRange, ...]  # two where the first and the last stage are on one PC
    memory: StageMemory  # of its stages together
    reason: str  # why it has these layers, or none
    remedy: str  # what would help; empty where nothing need


class Expectation(msgspec.Struct, frozen=True, kw_only=True):
    """How fast a plan is, one row of one token a stage; speculation and batches only add."""

    slowest_node: NodeId
    slowest_ms: float  # what its stages compute for one token, and send onward
    circuit_ms: float  # of one token through all stages, and back to the head

    @property
    def reply_tokens_per_s(self) -> float:
        """Of one reply that runs alone."""
        return 1000 / self.circuit_ms

    @property
    def pool_tokens_per_s(self) -> float:
        """Of all replies together, when there are enough to keep every stage busy."""
        return 1000 / self.slowest_ms


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Who runs what, and why."""

    model_name: str
    num_layers: int
    context_tokens: int
    max_sequences: int
    basis: Basis  # what the layers were divided by
    stages: tuple[PlannedStage, ...]
    rows: tuple[PlanRow, ...]  # one for each PC, those with stages first
    expected: Expectation | None  # None where a time of the chain isn't known
    reason: str  # why so many PCs

    @property
    def node_ids(self) -> frozenset[NodeId]:
        """Of the PCs that have a stage."""
        return frozenset(stage.node_id for stage in self.stages)

    @property
    def chain(self) -> tuple[tuple[NodeId, LayerRange, str], ...]:
        """What makes two plans the same placement: PC, layers and device of each stage."""
        return tuple((s.node_id, s.layers, s.device) for s in self.stages)


def in_gib(num_bytes: int) -> str:
    """Return bytes as people read them.

    Args:
        num_bytes: 0 or more.
    """
    return f"{num_bytes / GIB:.1f} GiB"


def gib_option(num_bytes: int) -> str:
    """Return at least so many bytes as ``daisy node --memory`` takes them: ``0.7GiB``.

    Args:
        num_bytes: 0 or more.
    """
    return f"{-(-num_bytes * 10 // GIB) / 10:.1f}GiB"


def plan_rows(
    nodes: Iterable[NodeFacts], stages: tuple[PlannedStage, ...], smallest_bytes: int
) -> tuple[PlanRow, ...]:
    """Return a row for each PC: those with stages in the order of the chain, then the others.

    Args:
        nodes: All of them.
        stages: Of the plan.
        smallest_bytes: Memory a PC must give to hold the smallest stage of the model.
    """
    order = {stage.node_id: number for number, stage in reversed(list(enumerate(stages)))}
    ordered = sorted(nodes, key=lambda n: (order.get(n.node_id, len(stages)), n.node_id))
    return tuple(_row(node, stages, smallest_bytes) for node in ordered)


def why_unusable(node: NodeFacts, smallest_bytes: int) -> Exclusion | None:
    """Return why a PC can't have even the smallest stage; None if it can.

    Args:
        node: The PC.
        smallest_bytes: Memory it must give to hold the smallest stage of the model.
    """
    if node.exclusions:
        return Exclusion(
            " ".join(exclusion.reason for exclusion in node.exclusions),
            " ".join(exclusion.remedy for exclusion in node.exclusions),
        )
    if not node.devices:
        return Exclusion(sentence("no_device"), sentence("no_device_remedy"))
    missing = smallest_bytes - node.usable_bytes
    if missing <= 0:
        return None
    reason = sentence("small", usable=in_gib(node.usable_bytes), needed=in_gib(smallest_bytes))
    is_capped = node.cap_bytes is not None and node.cap_bytes == node.usable_bytes
    if is_capped:
        return Exclusion(reason, sentence("limit_remedy", missing=in_gib(missing)))
    return Exclusion(reason, sentence("programs_remedy", missing=in_gib(missing)))


def _row(node: NodeFacts, stages: tuple[PlannedStage, ...], smallest_bytes: int) -> PlanRow:
    own = [stage for stage in stages if stage.node_id == node.node_id]
    exclusion = why_unusable(node, smallest_bytes)
    if own:
        role: Role = "stage"
        reason, remedy = sentence("room"), ""
    elif exclusion is None:
        # Without a plan nobody has any layers yet.
        role, reason, remedy = "standby", sentence("standby" if stages else "waiting"), ""
    else:
        role, reason, remedy = "left out", exclusion.reason, exclusion.remedy
    return PlanRow(
        node_id=node.node_id,
        name=node.name,
        total_bytes=node.total_bytes,
        free_bytes=node.free_bytes,
        reserved_bytes=node.reserve_bytes,
        lent_bytes=node.lent_bytes,
        usable_bytes=node.usable_bytes,
        role=role,
        layers=tuple(stage.layers for stage in own),
        memory=sum((stage.memory for stage in own), StageMemory()),
        reason=reason,
        remedy=remedy,
    )

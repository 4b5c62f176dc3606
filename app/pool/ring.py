"""What the picture and the table show of the pool: PCs in the order of the chain; pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from app.pool.forecast import layer_work, tokens_per_s
from app.pool.memory_parts import MemoryParts, memory_parts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from engine.domain import LayerRange, NodeId
    from engine.messages.deployment import Deployment, PlanLine, Trouble
    from engine.messages.pool import NodeReport
    from engine.messages.pool_status import NodeStatus, PoolStatus

# "stage" has layers; "standby" could; "left out" can't; "present" where nothing is to run.
Role = Literal["stage", "standby", "left out", "present", "offline"]
LinkKind = Literal["wired", "wireless"]

BUSY_PHASES = frozenset({"planning", "splitting", "loading", "warming"})
_HERE = frozenset({"online", "silent"})
_SHORT_ID = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class PcFacts:
    """One PC.

    Attributes:
        name: As its owner calls it; cleaned.
        is_here: It is the PC the window is on.
        takes_questions: It holds the first layers.
        state: online, silent, offline, gone.
        devices: Names of what can run a stage, the better ones first.
        layers: One range; two where it holds both ends of the chain.
        is_loaded: Its layers are in memory and belong to the placement that is shown.
        stage_ms: One token through its layers; None before it was measured.
        sets_the_pace: Its stage is the slowest of those measured, of two at least.
        needed_bytes: By its layers, as the plan counted; 0 without.
        reason: Why it has these layers, or none; the engine's sentence.
        remedy: What would help; the engine's sentence.
    """

    node_id: NodeId
    name: str
    role: Role
    state: str
    is_here: bool = False
    is_coordinator: bool = False
    takes_questions: bool = False
    hears_us: bool = True
    devices: tuple[str, ...] = ()
    layers: tuple[LayerRange, ...] = ()
    is_loaded: bool = False
    memory: MemoryParts | None = None
    stage_ms: float | None = None
    layer_ms: float | None = None
    sets_the_pace: bool = False
    on_battery: bool = False
    link_kind: str | None = None
    active_requests: int = 0
    needed_bytes: int = 0
    reason: str = ""
    remedy: str = ""
    notes: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    heard_ago_s: float = 0.0


@dataclass(frozen=True, slots=True)
class LinkFacts:
    """The way from one PC of the chain to the next, and back.

    Attributes:
        kind: wireless if either end is; None where neither tells.
        round_trip_ms: As either measured it; None before.
    """

    sender: NodeId
    receiver: NodeId
    kind: LinkKind | None
    round_trip_ms: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ring:
    """The pool, as the picture shows it.

    Attributes:
        petals: In the order of the chain; without a chain, everyone who is there.
        outside: Those that have no part, with their reasons.
        links: From each petal to the next, the last one's back to the first; none without a chain.
        model_name: Of what is to run; empty for nothing.
        has_int8_links: Its hidden states are sent in int8, which changes answers slightly.
        num_layers: Of that model.
        phase: Of the record; "unloaded" where there is none.
        is_plan: The placement is being made: shown dimmed.
        is_running: The pool answers.
        forecast: Tokens a second of one answer alone, from what was measured; None before.
        reason: Why the placement is as it is; the engine's sentence.
        trouble: What went wrong last.
    """

    petals: tuple[PcFacts, ...] = ()
    outside: tuple[PcFacts, ...] = ()
    links: tuple[LinkFacts, ...] = ()
    model_name: str = ""
    has_int8_links: bool = False
    num_layers: int = 0
    phase: str = "unloaded"
    is_plan: bool = False
    is_running: bool = False
    forecast: float | None = None
    reason: str = ""
    trouble: Trouble | None = None

    @property
    def pcs(self) -> tuple[PcFacts, ...]:
        """Everyone, in the order in which they are read out."""
        return (*self.petals, *self.outside)

    def pc(self, node_id: NodeId) -> PcFacts | None:
        """Return the PC of that id; None if there is none."""
        return next((pc for pc in self.pcs if pc.node_id == node_id), None)


def ring_of(status: PoolStatus) -> Ring:
    """Return what is shown of a pool.

    Args:
        status: As the node of this PC told it.
    """
    record = status.deployment
    phase = "unloaded" if record is None or record.wish is None else record.phase
    shares = _shares(record)
    plan = {line.node_id: line for line in record.plan} if record is not None else {}
    nodes = {node.node_id: node for node in status.nodes}
    chain = list(dict.fromkeys(node_id for node_id, _ in shares))
    pcs = {
        node_id: _pc(node_id, nodes.get(node_id), plan.get(node_id), record, shares)
        for node_id in dict.fromkeys((*chain, *nodes, *plan))
    }
    petals = [pcs[node_id] for node_id in chain] or [
        pc for pc in pcs.values() if pc.role in {"present", "standby"}
    ]
    inside = {pc.node_id for pc in petals}
    links = _links(shares, nodes)
    model = record.wish.model if record is not None and record.wish is not None else None
    return Ring(
        petals=_paced(petals),
        outside=tuple(sorted(_outside(pcs.values(), inside), key=_reading)),
        links=links,
        model_name="" if model is None else model.name,
        has_int8_links=record is not None
        and record.wish is not None
        and record.wish.link_precision == "int8",
        num_layers=0 if model is None else model.num_layers,
        phase=phase,
        is_plan=phase in BUSY_PHASES,
        is_running=phase == "ready",
        forecast=tokens_per_s(
            [pc.stage_ms for pc in petals], [link.round_trip_ms for link in links]
        )
        if shares
        else None,
        reason="" if record is None else record.reason,
        trouble=None if record is None else record.trouble,
    )


def short_id(node_id: str) -> str:
    """Return an id as short as it is shown."""
    return node_id[:_SHORT_ID]


def _shares(record: Deployment | None) -> tuple[tuple[NodeId, LayerRange], ...]:
    """Return who holds what, or is to, in the order of the chain."""
    if record is None or record.wish is None:
        return ()
    if record.stages:
        return tuple((share.node_id, share.layers) for share in record.stages)
    planned = [(line.node_id, line.layers) for line in record.plan if line.layers is not None]
    return tuple(sorted(planned, key=lambda pair: pair[1]))


def _pc(
    node_id: NodeId,
    node: NodeStatus | None,
    line: PlanLine | None,
    record: Deployment | None,
    shares: tuple[tuple[NodeId, LayerRange], ...],
) -> PcFacts:
    layers = tuple(own for holder, own in shares if holder == node_id)
    report = None if node is None else node.report
    pc = PcFacts(
        node_id=node_id,
        name=_name(node_id, report, line),
        role=_role(node, line, has_layers=bool(layers)),
        state=("gone" if layers else "offline") if node is None else node.state,
        layers=layers,
        takes_questions=bool(shares) and shares[0][0] == node_id,
        needed_bytes=0 if line is None else line.needed_bytes,
        reason="" if line is None else line.reason,
        remedy="" if line is None else line.remedy,
    )
    if node is None:
        return pc
    pc = replace(
        pc,
        is_here=node.is_asked,
        is_coordinator=node.is_coordinator,
        hears_us=node.hears_us,
        notes=node.notes,
        addresses=node.addresses,
        heard_ago_s=node.heard_ago_s,
    )
    return pc if report is None else _reported(pc, report, node.memory_reserved_bytes, record)


def _reported(
    pc: PcFacts, report: NodeReport, reserved_bytes: int, record: Deployment | None
) -> PcFacts:
    """Return a PC with what it says of itself."""
    is_loaded = bool(
        pc.layers and record is not None and record.epoch and report.epoch == record.epoch
    )
    stage_ms = None
    if report.layer_ms is not None and record is not None and record.wish is not None:
        stage_ms = report.layer_ms * layer_work(record.wish.model, pc.layers) or None
    return replace(
        pc,
        devices=report.devices,
        is_loaded=is_loaded and pc.state in _HERE,
        memory=memory_parts(report, reserved_bytes),
        stage_ms=stage_ms,
        layer_ms=report.layer_ms,
        on_battery=report.on_battery,
        link_kind=report.link_kind,
        active_requests=report.active_requests,
    )


def _name(node_id: NodeId, report: NodeReport | None, line: PlanLine | None) -> str:
    for name in (report.name if report else "", line.name if line else ""):
        if name.strip():
            return name
    return f"PC {short_id(node_id)}"


def _role(node: NodeStatus | None, line: PlanLine | None, *, has_layers: bool) -> Role:
    if has_layers:
        return "stage"
    if node is None or node.state not in _HERE:
        return "offline"
    if line is None:
        return "present"
    return "left out" if line.role == "left out" else "standby"


def _outside(pcs: Iterable[PcFacts], inside: set[NodeId]) -> list[PcFacts]:
    """Return those that have no part; who left on purpose is no longer of the pool."""
    return [pc for pc in pcs if pc.node_id not in inside and pc.state != "gone"]


def _reading(pc: PcFacts) -> tuple[int, str]:
    """Return what those outside are sorted by: the ones that could help first."""
    return (["present", "standby", "left out", "offline", "stage"].index(pc.role), pc.name)


def _paced(petals: list[PcFacts]) -> tuple[PcFacts, ...]:
    measured = [pc for pc in petals if pc.stage_ms is not None]
    if len(measured) < 2:
        return tuple(petals)
    slowest = max(measured, key=lambda pc: pc.stage_ms or 0.0).node_id
    return tuple(replace(pc, sets_the_pace=pc.node_id == slowest) for pc in petals)


def _links(
    shares: tuple[tuple[NodeId, LayerRange], ...], nodes: dict[NodeId, NodeStatus]
) -> tuple[LinkFacts, ...]:
    chain = [node_id for node_id, _ in shares]
    if len(set(chain)) < 2:
        return ()
    ways = [(a, b) for a, b in pairwise([*chain, chain[0]]) if a != b]
    return tuple(_link(a, b, nodes) for a, b in ways)


def _link(sender: NodeId, receiver: NodeId, nodes: dict[NodeId, NodeStatus]) -> LinkFacts:
    ends = [nodes.get(sender), nodes.get(receiver)]
    kinds = {end.report.link_kind for end in ends if end is not None and end.report is not None}
    kind: LinkKind | None = None
    if "wireless" in kinds:
        kind = "wireless"
    elif kinds == {"wired"}:
        kind = "wired"
    return LinkFacts(sender, receiver, kind, _round_trip_ms(ends))


def _round_trip_ms(ends: list[NodeStatus | None]) -> float | None:
    """Return the time between two PCs as one of them measured it, the sender's word first."""
    known = [end for end in ends if end is not None]
    if len(known) < 2:
        return None
    for own, other in (known, reversed(known)):
        found = next(_told(own, other.node_id), None)
        if found is not None:
            return found
        if other.is_asked and own.round_trip_ms is not None:
            return own.round_trip_ms
    return None


def _told(node: NodeStatus, other: NodeId) -> Iterator[float]:
    """Yield what a node says of the way to another."""
    if node.report is not None:
        for neighbour in node.report.neighbours:
            if neighbour.node_id == other and neighbour.round_trip_ms is not None:
                yield neighbour.round_trip_ms

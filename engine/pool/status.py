"""The pool as one node sees it, for ``daisy status`` and for the window."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from engine.messages.pool_status import AdapterStatus, NodeStatus, PoolStatus
from engine.pool.announcement import clean_shown_name, short_id
from engine.pool.membership import Lease
from engine.pool.node_seen import reserve_of
from engine.pool.pool_view import view
from engine.pool.sentences import sentence

if TYPE_CHECKING:
    from engine.domain import NodeId
    from engine.messages.deployment import Deployment, NodeProgress
    from engine.messages.pool import NodeReport
    from engine.pool.adapters import RankedAdapters
    from engine.pool.dialling import Target
    from engine.pool.mesh import Mesh
    from engine.pool.pool_view import Mismatch, NodeView, PoolView

_MISMATCHES = {
    "version of Daisy": "note_version",
    "protocol version": "note_protocol",
    "shard format": "note_shard_format",
}


def pool_status(
    mesh: Mesh,
    own_report: NodeReport,
    port: int,
    now_s: float,
    deployment: Deployment | None = None,
    progress: tuple[NodeProgress, ...] = (),
) -> PoolStatus:
    """Return what is known now.

    Args:
        mesh: This node's.
        own_report: What this node is.
        port: Where this node listens, on every address.
        now_s: On the loop's clock.
        deployment: What the pool is to run, as this node knows it; None for never anything.
        progress: Of the nodes that work on it.
    """
    election = mesh.participant.election
    seen = view(mesh.participant.membership, now_s)
    own = NodeStatus(
        node_id=own_report.node_id,
        is_asked=True,
        is_coordinator=election.is_in_office,
        state="online",
        hears_us=True,
        heard_ago_s=0.0,
        addresses=tuple(f"{host}:{port}" for host in mesh.discovery.adapters.addresses),
        round_trip_ms=None,
        hears=seen.hears[own_report.node_id],
        report=_cleaned(own_report),
        notes=tuple(mesh.folder.notes),
        memory_reserved_bytes=reserve_of(own_report.memory_total_bytes),
    )
    trips_ms = {other.node_id: other.round_trip_ms for other in own_report.neighbours}
    since_s = mesh.coordinator_since_s
    return PoolStatus(
        coordinator=election.coordinator,
        term=None if election.accepted is None else str(election.accepted),
        coordinator_since_s=None if since_s is None else now_s - since_s,
        nodes=(own, *(_other(node, seen, mesh, trips_ms) for node in seen.nodes)),
        notes=_notes(mesh, seen),
        deployment=deployment,
        progress=progress,
        adapters=adapter_lines(mesh.discovery.adapters),
    )


def adapter_lines(adapters: RankedAdapters) -> tuple[AdapterStatus, ...]:
    """Return a PC's adapters as people are shown them.

    Args:
        adapters: As they were seen last.
    """
    used = [
        AdapterStatus(
            name=adapter.name,
            addresses=adapter.addresses,
            is_used=True,
            link=None if adapter.link == "unknown" else adapter.link,
        )
        for adapter in adapters.used
    ]
    ignored = [
        AdapterStatus(
            name=adapter.name, addresses=adapter.addresses, is_used=False, reason=adapter.reason
        )
        for adapter in adapters.ignored
    ]
    return (*used, *ignored)


def _other(
    node: NodeView, seen: PoolView, mesh: Mesh, trips_ms: dict[NodeId, float | None]
) -> NodeStatus:
    beat = node.heartbeat
    report = mesh.reports().get(beat.node_id)
    notes = [*_absence(node, mesh), *(_mismatch(mismatch) for mismatch in node.mismatches)]
    if node.clones:
        notes.append(sentence("note_clone"))
    return NodeStatus(
        node_id=beat.node_id,
        is_asked=False,
        is_coordinator=mesh.participant.election.coordinator == beat.node_id,
        state=node.lease.value,
        hears_us=node.hears_us,
        heard_ago_s=node.heard_ago_s,
        addresses=tuple(str(way.address) for way in node.ways),
        round_trip_ms=trips_ms.get(beat.node_id),
        hears=seen.hears.get(beat.node_id, ()),
        report=None if report is None else _cleaned(_as_of_now(report, node.lease)),
        notes=tuple(notes),
        memory_reserved_bytes=0 if report is None else reserve_of(report.memory_total_bytes),
    )


def _cleaned(report: NodeReport) -> NodeReport:
    return replace(report, name=clean_shown_name(report.name, report.node_id))


def _as_of_now(report: NodeReport, lease: Lease) -> NodeReport:
    """Return a report without what ends with the node's process, where that may have ended."""
    if lease in {Lease.ONLINE, Lease.SILENT}:  # one heartbeat that is late says nothing
        return report
    return replace(report, memory_lent_bytes=0, layers=None, model=None, epoch=0, active_requests=0)


def _absence(node: NodeView, mesh: Mesh) -> list[str]:
    """Return why a node is not there; nothing if it is."""
    match node.lease:
        case Lease.GONE:
            return [sentence("note_ended")]
        case Lease.OFFLINE if mesh.targets.is_refused(node.heartbeat.node_id):
            return [sentence("note_not_running")]
        case Lease.OFFLINE:
            return [sentence("note_lost")]
        case _:
            return []


def _notes(mesh: Mesh, seen: PoolView) -> tuple[str, ...]:
    """Return what is wrong with the network, and who can't take part."""
    discovery = mesh.discovery
    notes = []
    if not discovery.adapters.used and not mesh.reachable():
        notes.append(sentence("no_network"))
    if mesh.targets.unknown_at is not None and not mesh.reachable():
        notes.append(sentence("unknown_there"))
    if discovery.problem is not None:
        notes.append(discovery.problem)
    notes += [
        sentence("one_way", deaf=_called(link.unhearing, mesh), hearer=_called(link.hearer, mesh))
        for link in seen.one_way
    ]
    notes += [
        sentence("no_link", one=_called(a, mesh), other=_called(b, mesh)) for a, b in seen.no_link
    ]
    for stranger in seen.strangers:
        why = "; ".join(map(_mismatch, stranger.mismatches)) or "the pool is full"
        notes.append(sentence("stranger", pc=short_id(stranger.node_id), why=why))
    if seen.double is not None or mesh.announced.clones:
        notes.append(sentence("double"))
    unreached = [target for target in mesh.unreached() if not _is_explained(target, seen)]
    return (*notes, *dict.fromkeys(_why_unreached(target, mesh) for target in unreached))


def _is_explained(target: Target, seen: PoolView) -> bool:
    """Return whether it is said elsewhere why a node isn't reached: in its row, or in a note."""
    if target.node_id in {stranger.node_id for stranger in seen.strangers}:
        return True
    leases = {node.heartbeat.node_id: node.lease for node in seen.nodes}
    lease = None if target.node_id is None else leases.get(target.node_id)
    return lease is Lease.GONE or (lease is Lease.OFFLINE and target.is_refused)


def _called(node_id: NodeId, mesh: Mesh) -> str:
    """Return a node's name and short id; the id alone before it has told its name."""
    own = mesh.own_report()
    report = own if node_id == own.node_id else mesh.reports().get(node_id)
    name = None if report is None else clean_shown_name(report.name, node_id)
    return short_id(node_id) if name is None else f"{name} ({short_id(node_id)})"


def _mismatch(mismatch: Mismatch) -> str:
    return sentence(_MISMATCHES[mismatch.what], theirs=mismatch.theirs, ours=mismatch.ours)


def _why_unreached(target: Target, mesh: Mesh) -> str:
    if target.node_id is None:
        if target.is_refused:
            return sentence("not_at", address=str(target.address))
        return target.problem or ""
    name = _called(target.node_id, mesh)
    if target.is_untrusted:
        return sentence("untrusted", pc=name, address=str(target.address))
    if target.is_refused:
        return sentence("announced", pc=name, address=str(target.address))
    problem = target.problem or ""
    return sentence("no_way", pc=name, address=str(target.address), problem=problem).rstrip()

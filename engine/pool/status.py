"""The pool as one node sees it, for ``daisy status`` and for the window."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from engine.messages.pool import NodeStatus, PoolStatus
from engine.pool.announcement import clean_shown_name, short_id
from engine.pool.pool_view import view

if TYPE_CHECKING:
    from engine.messages.pool import NodeReport
    from engine.pool.mesh import Mesh
    from engine.pool.pool_view import NodeView, PoolView


def pool_status(mesh: Mesh, own_report: NodeReport, port: int, now_s: float) -> PoolStatus:
    """Return what is known now.

    Args:
        mesh: This node's.
        own_report: What this node is.
        port: Where this node listens, on every address.
        now_s: On the loop's clock.
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
        notes=(),
    )
    since_s = mesh.coordinator_since_s
    return PoolStatus(
        coordinator=election.coordinator,
        term=None if election.accepted is None else str(election.accepted),
        coordinator_since_s=None if since_s is None else now_s - since_s,
        nodes=(own, *(_other(node, seen, mesh) for node in seen.nodes)),
        notes=_notes(mesh, seen),
    )


def _other(node: NodeView, seen: PoolView, mesh: Mesh) -> NodeStatus:
    beat = node.heartbeat
    report = mesh.reports().get(beat.node_id)
    trip_s = mesh.round_trip_s(beat.node_id)
    notes = [f"its {m.what} is {m.theirs}, this PC's is {m.ours}" for m in node.mismatches]
    if node.clones:
        notes.append("another PC runs with the same identity")
    return NodeStatus(
        node_id=beat.node_id,
        is_asked=False,
        is_coordinator=mesh.participant.election.coordinator == beat.node_id,
        state=node.lease.value,
        hears_us=node.hears_us,
        heard_ago_s=node.heard_ago_s,
        addresses=tuple(str(way.address) for way in node.ways),
        round_trip_ms=None if trip_s is None else trip_s * 1e3,
        hears=seen.hears.get(beat.node_id, ()),
        report=None if report is None else _cleaned(report),
        notes=tuple(notes),
    )


def _cleaned(report: NodeReport) -> NodeReport:
    return replace(report, name=clean_shown_name(report.name, report.node_id))


def _notes(mesh: Mesh, seen: PoolView) -> tuple[str, ...]:
    notes = []
    if not mesh.discovery.adapters.used:
        notes.append("There is no network: this PC works alone.")
    if mesh.discovery.problem is not None:
        notes.append(mesh.discovery.problem)
    notes += [
        f"{short_id(link.unhearing)} does not hear {short_id(link.hearer)}: "
        "a firewall stands between them, or the network is one-way."
        for link in seen.one_way
    ]
    notes += [f"{short_id(a)} and {short_id(b)} do not hear each other." for a, b in seen.no_link]
    notes += [
        f"{short_id(stranger.node_id)} can't take part: "
        + (
            "; ".join(
                f"its {m.what} is {m.theirs}, this PC's {m.ours}" for m in stranger.mismatches
            )
            or "the pool is full"
        )
        + "."
        for stranger in seen.strangers
    ]
    if seen.double is not None or mesh.clone_run_ids:
        notes.append("Another PC runs with a copy of this PC's identity.")
    return (*notes, *mesh.problems)

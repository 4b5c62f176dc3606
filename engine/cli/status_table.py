"""The pool as one node sees it, as a person is shown it; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.cli.amounts import duration, memory
from engine.cli.load_view import LoadView
from engine.cli.plan_table import INT8_LINKS, NONE, short
from engine.cli.shown_text import printable, table
from engine.messages.pool_control import DeploymentReport

if TYPE_CHECKING:
    from engine.domain import NodeId
    from engine.messages.pool import NodeReport
    from engine.messages.pool_status import NodeStatus, PoolStatus

_HEADER = (
    *("PC", "id", "state", "free", "of", "keeps", "lends", "lent"),
    *("layers", "ms/layer", "device", "link", "away"),
)
_NUMBERS = (3, 4, 5, 6, 7, 8, 9, 12)  # to the right
_LEGEND = (
    "keeps: stays free for that PC's own programs.  lends: at most (daisy node --memory), "
    "or paused (daisy lend).  lent: taken now.",
    "away: there and back.  silent: not heard just now.  offline: not heard for long.  "
    "gone: ended.",
)
_PHASES = {"planning": "is being planned", "splitting": "is being cut", "loading": "is loading"}
_PHASES |= {"warming": "is warming up", "ready": "is ready", "failed": "could not be loaded"}


def status_lines(status: PoolStatus) -> list[str]:
    """Return the table a person is shown.

    Args:
        status: As a node told it.
    """
    lines = [_coordinator_line(status), *_model_lines(status), ""]
    lines += table([_HEADER, *map(_row, status.nodes)], right=_NUMBERS)
    lines += ["", *_LEGEND]
    notes = [
        f"{_name(node)} ({short(node.node_id)}): {printable(note)}"
        for node in status.nodes
        for note in _node_notes(node)
    ]
    notes += [f"Note: {printable(note)}" for note in status.notes]
    return [*lines, "", *notes] if notes else lines


def _coordinator_line(status: PoolStatus) -> str:
    if status.coordinator is None:
        return "Coordinator: none yet"
    since_s = status.coordinator_since_s
    return f"Coordinator: {_called(status, status.coordinator)}" + (
        "" if since_s is None else f", for {duration(max(0.0, since_s))}"
    )


def _model_lines(status: PoolStatus) -> list[str]:
    """Return what is to run, how far it is, and what went wrong last."""
    record = status.deployment
    if record is None or record.wish is None:
        return ["Model: none. Load one: daisy load MODEL"]
    wish = record.wish
    how = f"{wish.context_tokens} tokens, {wish.max_sequences} at once, {wish.kind}, {wish.mode}"
    if wish.is_private:
        how += f", private to {_called(status, wish.asked_on)}"
    if wish.link_precision == "int8":
        how += f", {INT8_LINKS}"
    if not wish.speculate:
        how += ", nothing guessed ahead"
    lines = [f"Model: {printable(wish.model.name)} {_PHASES.get(record.phase, record.phase)}"]
    lines[0] += f" ({how})"
    if record.phase != "ready":
        lines += [f"  {line}" for line in _progress_lines(status)]
    if record.trouble is not None:
        lines.append(f"Trouble: {printable(f'{record.trouble.what} {record.trouble.advice}')}")
    return lines


def _progress_lines(status: PoolStatus) -> list[str]:
    names = {node.node_id: _name(node) for node in status.nodes if node.report is not None}
    view = LoadView(names, 0.0)
    report = DeploymentReport(deployment=status.deployment, progress=status.progress)
    view.see(report, 0.0, is_recorded=True)
    return view.node_lines(0.0)


def _row(node: NodeStatus) -> tuple[str, ...]:
    mark = " (this PC)" if node.is_asked else ""
    trip_ms = node.round_trip_ms
    return (
        f"{_name(node)}{mark}",
        short(node.node_id),
        printable(node.state),
        *_report_cells(node.report, node.memory_reserved_bytes),
        NONE if trip_ms is None else f"{trip_ms:.1f} ms",
    )


def _report_cells(report: NodeReport | None, reserved: int) -> tuple[str, ...]:
    if report is None:
        return ("?",) * (len(_HEADER) - 4)
    cap, lent = report.memory_cap_bytes, report.memory_lent_bytes
    return (
        memory(report.memory_free_bytes),
        memory(report.memory_total_bytes),
        memory(reserved) if reserved else NONE,
        "paused" if not report.is_lending else "all" if cap is None else memory(cap),
        memory(lent) if lent else NONE,
        NONE if report.layers is None else str(report.layers),
        NONE if report.layer_ms is None else f"{report.layer_ms:.2f}",
        printable(", ".join(report.devices)) or NONE,
        printable(report.link_kind or NONE),
    )


def _node_notes(node: NodeStatus) -> list[str]:
    notes = list(node.notes)
    if node.state == "online" and not node.is_asked and not node.hears_us:
        notes.append("it does not hear this PC")
    if node.report is not None and node.report.on_battery:
        notes.append("it runs on its battery")
    return notes


def _called(status: PoolStatus, node_id: NodeId) -> str:
    name = next((_name(n) for n in status.nodes if n.node_id == node_id), "unknown")
    return f"{name} ({short(node_id)})"


def _name(node: NodeStatus) -> str:
    return "?" if node.report is None else printable(node.report.name)

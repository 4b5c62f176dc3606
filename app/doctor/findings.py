"""What is found in the pool as this PC's node sees it; pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Literal

from app.pool.ring import short_id

if TYPE_CHECKING:
    from engine.domain import NodeId
    from engine.messages.pool_status import NodeStatus, PoolStatus

Severity = Literal["good", "hint", "wrong"]
_HERE = frozenset({"online", "silent"})


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found.

    Attributes:
        severity: Shown as a shape and a word, never by colour alone.
        key: Of its sentence; ``{key}_advice`` is the sentence of what to do.
        values: Of both sentences' fields.
        detail: The engine's own sentence, where this stands for one of its notes.
    """

    severity: Severity
    key: str
    values: dict[str, object] = field(default_factory=dict)
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Hearing:
    """Who hears whom: ``cells[row][column]`` tells whether the row's PC hears the column's.

    Attributes:
        names: Of rows and columns.
        cells: None for a PC and itself.
    """

    names: tuple[str, ...]
    cells: tuple[tuple[bool | None, ...], ...]


def hearing_of(status: PoolStatus) -> Hearing:
    """Return who hears whom, of the PCs that are there.

    Args:
        status: As this PC's node told it.
    """
    nodes = _here(status)
    return Hearing(
        names=tuple(name_of(node) for node in nodes),
        cells=tuple(
            tuple(None if one is other else other.node_id in one.hears for other in nodes)
            for one in nodes
        ),
    )


def findings_of(status: PoolStatus | None) -> tuple[Finding, ...]:
    """Return what is found, the wrong things first.

    Args:
        status: As this PC's node told it; None where no node answers.
    """
    if status is None:
        return (Finding("wrong", "doctor.no_node"),)
    found = [
        *_about_links(status),
        *_about_nodes(status),
        *_about_network(status),
    ]
    if not any(one.severity == "wrong" for one in found):
        found.append(Finding("good", "doctor.all_well", {"n": len(_here(status))}))
    order: dict[Severity, int] = {"wrong": 0, "hint": 1, "good": 2}
    return tuple(sorted(found, key=lambda one: order[one.severity]))


def name_of(node: NodeStatus) -> str:
    """Return a PC's name as it is shown.

    Args:
        node: The PC.
    """
    name = node.report.name if node.report is not None else ""
    return name if name.strip() else f"PC {short_id(node.node_id)}"


def one_way_links(status: PoolStatus) -> tuple[tuple[NodeStatus, NodeStatus], ...]:
    """Return pairs of which the first hears the second and is not heard by it.

    Args:
        status: As this PC's node told it.
    """
    pairs = []
    for one, other in combinations(_here(status), 2):
        hears, is_heard = other.node_id in one.hears, one.node_id in other.hears
        if hears and not is_heard:
            pairs.append((one, other))
        elif is_heard and not hears:
            pairs.append((other, one))
    return tuple(pairs)


def _about_links(status: PoolStatus) -> list[Finding]:
    found = [
        Finding("wrong", "doctor.one_way", {"hearer": name_of(a), "deaf": name_of(b)})
        for a, b in one_way_links(status)
    ]
    found += [
        Finding("wrong", "doctor.no_link", {"one": name_of(one), "other": name_of(other)})
        for one, other in combinations(_here(status), 2)
        if other.node_id not in one.hears and one.node_id not in other.hears
    ]
    return found


def _about_nodes(status: PoolStatus) -> list[Finding]:
    found = []
    for node in status.nodes:
        values: dict[str, object] = {"pc": name_of(node)}
        found += [Finding("wrong", "doctor.node_note", values, note) for note in node.notes]
        if node.state == "silent":
            found.append(Finding("hint", "doctor.silent", values))
        elif node.state == "offline":
            found.append(Finding("hint", "doctor.offline", values))
        report = node.report
        if report is None or node.state not in _HERE:
            continue
        if report.on_battery:
            found.append(Finding("hint", "doctor.on_battery", values))
        if report.link_kind == "wireless":
            found.append(Finding("hint", "doctor.wireless", values))
        if not report.devices:
            found.append(Finding("wrong", "doctor.no_device", values))
    return found


def _about_network(status: PoolStatus) -> list[Finding]:
    pair_ids = _named_in_links(status)
    found = [
        Finding("wrong", "doctor.pool_note", {}, note)
        for note in status.notes
        if not _tells_of_links(note, pair_ids)
    ]
    own = next((node for node in status.nodes if node.is_asked), None)
    if own is not None and not own.addresses:
        found.append(Finding("wrong", "doctor.no_adapter"))
    if len(_here(status)) == 1:
        found.append(Finding("hint", "doctor.alone"))
    if status.coordinator is None:
        found.append(Finding("hint", "doctor.no_coordinator"))
    return found


def _named_in_links(status: PoolStatus) -> list[tuple[str, str]]:
    return [
        (short_id(one.node_id), short_id(other.node_id))
        for one, other in combinations(_here(status), 2)
    ]


def _tells_of_links(note: str, pairs: list[tuple[str, str]]) -> bool:
    """Return whether a note of the engine is one of the links told by name already."""
    return "not hear" in note and any(one in note and other in note for one, other in pairs)


def _here(status: PoolStatus) -> tuple[NodeStatus, ...]:
    return tuple(node for node in status.nodes if node.state in _HERE)


def known_ids(status: PoolStatus) -> dict[NodeId, str]:
    """Return the PCs' names by id.

    Args:
        status: As this PC's node told it.
    """
    return {node.node_id: name_of(node) for node in status.nodes}

"""What is found in the pool as one node sees it, and in what was tried there; pure.

A finding is a code and the fields of its sentences; whoever shows it has the words.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Literal

from engine.pool.announcement import clean_shown_name
from engine.pool.sentences import recognised

if TYPE_CHECKING:
    from engine.messages.deployment import Trouble
    from engine.messages.doctor_control import DevicesTried, DeviceTried, NetworkTried
    from engine.messages.pool_status import NodeStatus, PoolStatus

Severity = Literal["good", "hint", "wrong"]
_HERE = frozenset({"online", "silent"})
_ORDER: dict[Severity, int] = {"wrong": 0, "hint": 1, "good": 2}
_TOLD_AS_FINDINGS = frozenset({"one_way", "no_link"})  # of the node's notes


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found.

    Attributes:
        severity: Shown as a shape and a word, never by colour alone.
        code: Of its sentence and of the advice that goes with it.
        fields: Of both.
        note: The node's own sentence, where this stands for one of its notes.
        trouble: What failed, where something that was tried did.
        firewall: Of which kind the one is that may be in the way; None where none may be.
    """

    severity: Severity
    code: str
    fields: dict[str, str] = field(default_factory=dict)
    note: str = ""
    trouble: Trouble | None = None
    firewall: str | None = None


@dataclass(frozen=True, slots=True)
class Hearing:
    """Who hears whom: ``cells[row][column]`` tells whether the row's PC hears the column's.

    Attributes:
        names: Of rows and columns.
        cells: None for a PC and itself.
    """

    names: tuple[str, ...]
    cells: tuple[tuple[bool | None, ...], ...]


@dataclass(frozen=True, slots=True)
class Tried:
    """What was tried on the asked PC; None for what wasn't yet.

    Attributes:
        network: Whether it hears itself.
        devices: One token on each.
        troubles: Why something could not be tried.
    """

    network: NetworkTried | None = None
    devices: DevicesTried | None = None
    troubles: tuple[Trouble, ...] = ()


def hearing_of(status: PoolStatus) -> Hearing:
    """Return who hears whom, of the PCs that are there.

    Args:
        status: As the node told it.
    """
    nodes = _here(status)
    return Hearing(
        names=tuple(name_of(node) for node in nodes),
        cells=tuple(
            tuple(None if one is other else other.node_id in one.hears for other in nodes)
            for one in nodes
        ),
    )


def findings_of(status: PoolStatus | None, tried: Tried | None = None) -> tuple[Finding, ...]:
    """Return what is found, the wrong things first.

    Args:
        status: As the asked PC's node told it; None where no node answers.
        tried: What was tried there.
    """
    tried = tried or Tried()
    found = [Finding("wrong", "not_tried", trouble=one) for one in tried.troubles]
    found += _about_devices(tried)
    if status is None:
        found.insert(0, Finding("wrong", "no_node"))
    else:
        found += [
            *_about_links(status, tried.network),
            *_about_nodes(status),
            *_about_network(status, tried.network),
            *_about_adapters(tried.network),
        ]
        if not any(one.severity == "wrong" for one in found):
            code = "all_well" if len(_here(status)) > 1 else "this_pc_well"
            found.append(Finding("good", code, {"n": str(len(_here(status)))}))
    return tuple(sorted(found, key=lambda one: _ORDER[one.severity]))


def name_of(node: NodeStatus) -> str:
    """Return a PC's name as it is shown.

    Args:
        node: The PC.
    """
    name = "" if node.report is None else node.report.name
    return clean_shown_name(name, node.node_id)


def one_way_links(status: PoolStatus) -> tuple[tuple[NodeStatus, NodeStatus], ...]:
    """Return pairs of which the first hears the second and is not heard by it.

    Args:
        status: As the node told it.
    """
    pairs = []
    for one, other in combinations(_here(status), 2):
        hears, is_heard = other.node_id in one.hears, one.node_id in other.hears
        if hears and not is_heard:
            pairs.append((one, other))
        elif is_heard and not hears:
            pairs.append((other, one))
    return tuple(pairs)


# ---- what is found of what -----------------------------------------------------------------------


def _about_links(status: PoolStatus, network: NetworkTried | None) -> list[Finding]:
    found = [
        Finding(
            "wrong",
            "one_way",
            {"hearer": name_of(a), "deaf": name_of(b)},
            firewall=_firewall(network) if b.is_asked else None,
        )
        for a, b in one_way_links(status)
    ]
    found += [
        Finding("wrong", "no_link", {"one": name_of(one), "other": name_of(other)})
        for one, other in combinations(_here(status), 2)
        if other.node_id not in one.hears and one.node_id not in other.hears
    ]
    return found


def _about_nodes(status: PoolStatus) -> list[Finding]:
    found = []
    for node in status.nodes:
        fields = {"pc": name_of(node)}
        found += [Finding("wrong", "node_note", fields, note) for note in _own_notes(node)]
        found += [Finding("hint", code, fields) for code in _oddities(node)]
        is_here = node.report is not None and node.state in _HERE
        if is_here and node.report is not None and not node.report.devices:
            found.append(Finding("wrong", "no_device", fields))
    return found


def _own_notes(node: NodeStatus) -> tuple[str, ...]:
    """Return what is wrong with a PC; why one that is away is away is no fault."""
    return node.notes if node.state in _HERE else ()


def _oddities(node: NodeStatus) -> list[str]:
    codes = [node.state] if node.state in {"silent", "offline"} else []
    report = node.report
    if report is not None and node.state in _HERE:
        codes += ["on_battery"] if report.on_battery else []
        codes += ["wireless"] if report.link_kind == "wireless" else []
    return codes


def _about_network(status: PoolStatus, network: NetworkTried | None) -> list[Finding]:
    found = [
        Finding("wrong", "pool_note", {}, note)
        for note in status.notes
        if not _is_told_as_finding(note)
    ]
    own = next((node for node in status.nodes if node.is_asked), None)
    if own is not None and not own.addresses:
        found.append(Finding("wrong", "no_adapter"))
    if len(_here(status)) == 1:
        is_heard = network is not None and any(a.heard_ms is not None for a in network.adapters)
        code = "alone_but_heard" if is_heard else "alone"
        found.append(Finding("hint", code, firewall=_firewall(network)))
    if status.coordinator is None:
        found.append(Finding("hint", "no_coordinator"))
    return found


def _about_adapters(network: NetworkTried | None) -> list[Finding]:
    if network is None:
        return []
    found = []
    for one in network.adapters:
        fields = {"adapter": one.name, "address": one.address}
        if one.problem:
            found.append(Finding("wrong", "adapter_failed", fields, one.problem))
        elif one.heard_ms is None:
            found.append(
                Finding("wrong", "not_heard", fields, firewall=_firewall(network) or "unknown")
            )
    if network.firewall.is_public:
        found.append(Finding("wrong", "public_network"))
    return found


def _about_devices(tried: Tried) -> list[Finding]:
    devices: tuple[DeviceTried, ...] = () if tried.devices is None else tried.devices.devices
    return [
        Finding("wrong", "device_failed", {"device": one.name}, trouble=one.trouble)
        for one in devices
        if one.trouble is not None
    ]


def _firewall(network: NetworkTried | None) -> str | None:
    """Return which firewall may be in the way; None where it is known to be off, or not known."""
    if network is None or network.firewall.is_on is False:
        return None
    return network.firewall.kind


def _is_told_as_finding(note: str) -> bool:
    """Return whether a note of the node is one of the links that are told by name already."""
    said = recognised(note)
    return bool(said) and said is not None and {one.code for one in said} <= _TOLD_AS_FINDINGS


def _here(status: PoolStatus) -> tuple[NodeStatus, ...]:
    return tuple(node for node in status.nodes if node.state in _HERE)

"""A plan, and who runs what in the end, as a person is shown them; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.cli.amounts import memory
from engine.cli.shown_text import printable, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.domain import NodeId
    from engine.messages.deployment import Deployment, PlanLine

NONE = "-"
_HEADER = ("PC", "role", "layers", "may give", "needs", "why")
_SHORT_ID = 6
# What a person is told of a placement that gives other tokens than its mode alone would.
INT8_LINKS = "int8 between PCs: answers differ slightly"


def short(node_id: NodeId) -> str:
    """Return an id as short as it is shown."""
    return printable(node_id[:_SHORT_ID])


def plan_lines(plan: Sequence[PlanLine]) -> list[str]:
    """Return a plan as a table: every PC, with its share, or why it has none and what would help.

    Args:
        plan: As the coordinator made it.
    """
    # Nobody stands by where nobody has layers: each of them is needed.
    has_stages = any(line.role == "stage" for line in plan)
    rows = [
        (
            printable(line.name) or short(line.node_id),
            line.role if has_stages or line.role != "standby" else "ready",
            " and ".join(str(part) for part in (line.layers, line.last_layers) if part) or NONE,
            memory(line.usable_bytes),
            memory(line.needed_bytes) if line.needed_bytes else NONE,
            printable(f"{line.reason} {line.remedy}".strip()),
        )
        for line in plan
    ]
    return table([_HEADER, *rows], right=(2, 3, 4)) if rows else []


def names_of(plan: Sequence[PlanLine]) -> dict[NodeId, str]:
    """Return the names of a plan's PCs.

    Args:
        plan: As the coordinator made it.
    """
    return {line.node_id: printable(line.name) for line in plan if line.name}


def stage_lines(record: Deployment) -> list[str]:
    """Return who runs what, one line for each stage.

    Args:
        record: Of a placement.
    """
    names = names_of(record.plan)
    rows = [
        (
            f"  {names.get(stage.node_id, short(stage.node_id))}",
            f"layers {stage.layers}",
            "takes the questions" if number == 0 else "",
        )
        for number, stage in enumerate(record.stages)
    ]
    lines = table(rows)
    if record.wish is not None and record.wish.link_precision == "int8":
        lines.append(f"  {INT8_LINKS}")
    return lines

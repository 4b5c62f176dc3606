"""What nodes report, as the placement takes it; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.pool.announcement import clean_shown_name
from engine.pool.plan import Exclusion, NodeFacts
from engine.pool.sentences import sentence

if TYPE_CHECKING:
    from engine.messages.pool import NodeReport

RESERVE_BYTES = 512 * 1024 * 1024  # of each PC's memory, for its owner's next click
NOT_LENT = Exclusion(sentence("not_lent"), sentence("not_lent_remedy"))
RESERVE_DIVISOR = 20  # or a twentieth of it, where that is less


def reserve_of(total_bytes: int) -> int:
    """Return what of a PC's memory is left alone.

    Args:
        total_bytes: Of the PC.
    """
    return min(RESERVE_BYTES, total_bytes // RESERVE_DIVISOR)


def facts_of(report: NodeReport, link_ms: dict[str, float] | None = None) -> NodeFacts:
    """Return a report as the placement takes it.

    Args:
        report: Of a node, in its own words.
        link_ms: From it to others, as far as measured.
    """
    return NodeFacts(
        node_id=report.node_id,
        name=clean_shown_name(report.name, report.node_id),
        total_bytes=report.memory_total_bytes,
        free_bytes=report.memory_free_bytes,
        lent_bytes=report.memory_lent_bytes,
        cap_bytes=report.memory_cap_bytes,
        reserve_bytes=reserve_of(report.memory_total_bytes),
        devices=report.devices,
        layer_ms=report.layer_ms,
        link_ms={} if link_ms is None else dict(link_ms),  # type: ignore[arg-type]
        on_battery=report.on_battery,
        exclusions=() if report.is_lending else (NOT_LENT,),
    )

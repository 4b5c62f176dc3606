"""One PC's memory in the parts a person cares for; pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.messages.pool import NodeReport


@dataclass(frozen=True, slots=True)
class MemoryParts:
    """Bytes of one PC; the four parts make up the whole.

    Attributes:
        system: Held by the system and other programs.
        used: Held by Daisy's layers.
        lendable: What Daisy may still take, by the owner's limit and what is free.
        kept: Free, and left alone.
    """

    system: int
    used: int
    lendable: int
    kept: int

    @property
    def total(self) -> int:
        """Of the PC."""
        return self.system + self.used + self.lendable + self.kept

    @property
    def lent(self) -> int:
        """What Daisy may have in all: what it holds, and what it may still take."""
        return self.used + self.lendable

    @property
    def free(self) -> int:
        """What nobody holds."""
        return self.lendable + self.kept


def memory_parts(report: NodeReport, reserved_bytes: int) -> MemoryParts:
    """Return the parts of a PC's memory; what it tells is not trusted to add up.

    Args:
        report: As the PC told it.
        reserved_bytes: Left alone, whatever its owner lends.
    """
    total = max(0, report.memory_total_bytes)
    used = min(total, max(0, report.memory_lent_bytes))
    free = min(total - used, max(0, report.memory_free_bytes))
    may_have = max(0, free + used - max(0, reserved_bytes))
    if report.memory_cap_bytes is not None:
        may_have = min(may_have, max(0, report.memory_cap_bytes))
    if not report.is_lending:
        may_have = 0
    lendable = min(free, max(0, may_have - used))
    return MemoryParts(
        system=total - used - free, used=used, lendable=lendable, kept=free - lendable
    )

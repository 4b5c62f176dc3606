"""What a head's scheduler must keep to, as the placement allows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.scheduler.limits import PrefixReuse, SchedulerLimits
from engine.scheduler.row_costs import RowCosts

if TYPE_CHECKING:
    from engine.messages.chain import Placement

MAX_BLOCK_TOKENS = 32  # the larger of the devices' KV block sizes; a smaller one wastes less


def limits_of(
    placement: Placement, vocab_size: int, row_costs: RowCosts | None = None
) -> SchedulerLimits:
    """Return what the stages of a placement allow; they round up to whole blocks as well.

    Args:
        placement: Who runs what.
        vocab_size: Of the model.
        row_costs: As the first stage measured them; None where it did not. They do not count
            where an NPU is in the chain: it takes the first chunk of a prompt whole, in one call,
            and what comes behind it in calls of a few rows.
    """
    blocks = -(-placement.context_tokens // MAX_BLOCK_TOKENS)
    return SchedulerLimits(
        max_tokens=blocks * MAX_BLOCK_TOKENS * placement.max_sequences,
        block_tokens=MAX_BLOCK_TOKENS,
        max_sequences=placement.max_sequences,
        num_stages=len(placement.stages),
        # The chunks of one long prompt follow each other down the chain, which keeps their order.
        max_chunks_in_flight=len(placement.stages),
        vocab_size=vocab_size,
        prefix_reuse=_prefix_reuse(placement),
        row_costs=row_costs if row_costs is not None and not _has_npu(placement) else RowCosts(),
    )


def _prefix_reuse(placement: Placement) -> PrefixReuse:
    """Return what all stages of a placement can do; one that can do less decides."""
    if _has_npu(placement):
        return PrefixReuse.NONE  # one cache, which NPUW keeps to itself
    if any(place.kind == "stateful" for place in placement.stages):
        return PrefixReuse.TAKEN_OVER
    return PrefixReuse.SHARED


def _has_npu(placement: Placement) -> bool:
    return any(place.device.startswith("NPU") for place in placement.stages)

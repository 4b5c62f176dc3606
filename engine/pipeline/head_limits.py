"""What a head's scheduler must keep to, as the placement allows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.scheduler.limits import PrefixReuse, SchedulerLimits

if TYPE_CHECKING:
    from engine.messages.chain import Placement

MAX_BLOCK_TOKENS = 32  # the larger of the devices' KV block sizes; a smaller one wastes less


def limits_of(placement: Placement, vocab_size: int) -> SchedulerLimits:
    """Return what the stages of a placement allow; they round up to whole blocks as well.

    Args:
        placement: Who runs what.
        vocab_size: Of the model.
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
    )


def _prefix_reuse(placement: Placement) -> PrefixReuse:
    """Return what all stages of a placement can do; one that can do less decides."""
    if any(place.device.startswith("NPU") for place in placement.stages):
        return PrefixReuse.NONE  # one cache, which NPUW keeps to itself
    if any(place.kind == "stateful" for place in placement.stages):
        return PrefixReuse.TAKEN_OVER
    return PrefixReuse.SHARED

"""The stage protocol: one loaded shard, seen from whoever feeds it.

Knows no device, no process and no clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from engine.domain import LayerRange

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from engine.domain import MicroBatch, SequenceId

StageKind = Literal["paged", "stateful"]
ComputeMode = Literal["exact", "fast"]


class StageDescription(msgspec.Struct, frozen=True, kw_only=True):
    """What was loaded, and what was seen while loading it."""

    layers: LayerRange
    is_first: bool
    is_last: bool
    kind: StageKind
    mode: ComputeMode
    device: str
    hidden_size: int
    vocab_size: int
    num_fused_layers: int  # KV fusions counted in the runtime model; equals len(layers)
    block_tokens: int  # tokens of one KV block
    num_blocks: int  # KV blocks this stage may use
    block_bytes: int  # bytes of one KV block over all layers of the stage
    load_s: float  # reading and compiling
    golden_error: float | None  # relative RMS error of the golden step; None where not run
    notes: tuple[str, ...] = ()  # e.g. "precision f32: bf16 with one thread ends the process"


class KVUsage(msgspec.Struct, frozen=True):
    """How full the KV cache is; always ``used + free == total`` blocks."""

    used_blocks: int
    free_blocks: int
    used_bytes: int
    num_sequences: int


class Stage(Protocol):
    """One shard on one device."""

    @property
    def description(self) -> StageDescription:
        """What was loaded."""
        ...

    def run(self, batch: MicroBatch) -> NDArray[np.float32]:
        """Run this stage's layers once over one micro-batch.

        A sequence not seen before is opened by its first step, which has ``past_len`` 0. A
        ``past_len`` smaller than what is cached drops the rest first (a rewind).

        Args:
            batch: On the first stage ``hidden_states`` is None and ``token_ids`` are embedded;
                elsewhere ``hidden_states`` is ``[num_tokens, hidden_size]``.

        Returns:
            float32, C-contiguous. Hidden states ``[num_tokens, hidden_size]``; on the last stage
            logits ``[num_logits, vocab_size]``, steps in order, rows of a step in order of
            position; ``num_logits`` may be 0. Valid until the next call of ``run``.

        Raises:
            LocalProtocolError: ``past_len`` is beyond what is cached, or shapes do not agree.
            KVCacheFullError: A sequence needs a block and none is free; nothing was run.
            InferenceError: The device failed, or a NaN or infinity came out; the caches of every
                sequence in the batch are released.

        Thread: this stage's one inference thread. Cancellation: none; runs to its end.
        """
        ...

    def release(self, sequence_id: SequenceId) -> None:
        """Free what is kept for a sequence; nothing happens for one that is not known."""
        ...

    def kv_usage(self) -> KVUsage:
        """Count the KV blocks in use."""
        ...

"""The stage protocol: one loaded shard, seen from whoever feeds it.

Knows no device, no process and no clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from engine.domain import KeptPrefix, KVUsage, MicroBatch, SequenceId, StageDescription


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

    def begin_from(self, sequence_id: SequenceId, prefix: KeptPrefix) -> None:
        """Open a sequence with what is cached of another one, which has ended.

        Its first step has ``past_len`` ``prefix.num_tokens``. A paged stage shares the blocks; a
        stateful one hands the other's cache over whole. Where so much is not cached, or it is not
        of whole blocks, nothing happens, and that first step is refused.

        Thread: this stage's one inference thread.
        """
        ...

    def release(self, sequence_id: SequenceId) -> None:
        """Free what is kept for a sequence; nothing happens for one that is not known."""
        ...

    def kv_usage(self) -> KVUsage:
        """Count the KV blocks in use."""
        ...

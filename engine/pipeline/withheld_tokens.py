"""Token ids that stay on the PC with the first and the last stage, while their batch goes round.

Only the first stage embeds them and only the last one needs them again, for penalties and drafts.
Where both are on one PC, the others are sent zeros in their place: hidden states have to travel,
the text itself does not. Pure.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from engine.domain import MicroBatch
from engine.errors import RemoteProtocolError
from engine.messages.codec import decode, encode_micro_batch, peek_batch, peek_type
from engine.messages.control import MessageType

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from engine.domain import SequenceStep


class WithheldTokens:
    """Those of one placement's batches that are under way.

    Thread: the owner's only.
    """

    def __init__(self, epoch: int) -> None:
        """Begin with none.

        Args:
            epoch: Of the placement; frames of another are nobody's and left as they are.
        """
        self._epoch = epoch
        # By batch, in the order they left; each step's own.
        self._ids: dict[int, dict[SequenceStep, NDArray[np.int32]]] = {}

    def withhold(self, frame: bytes) -> bytes:
        """Return a frame as others may see it.

        Args:
            frame: For the next stage; a micro-batch is copied once, what else there is stays as
                it is.
        """
        batch = self._batch_in(frame)
        if batch is None:
            return frame
        ends = np.cumsum([step.num_tokens for step in batch.steps])
        parts = np.split(batch.token_ids.copy(), ends[:-1])
        self._ids[batch.batch_id] = dict(zip(batch.steps, parts, strict=True))
        hidden = replace(batch, token_ids=np.zeros_like(batch.token_ids))
        return encode_micro_batch(hidden, peek_batch(frame).compute_us)

    def restore(self, frame: bytes) -> bytes:
        """Return a frame that came round with its ids in place; those before it are forgotten.

        Args:
            frame: For the last stage; steps may have been left out on the way, which failed.

        Raises:
            RemoteProtocolError: No such batch is under way, or it has another step.
        """
        batch = self._batch_in(frame)
        if batch is None:
            return frame
        ids = self._ids.get(batch.batch_id)
        if ids is None or not all(step in ids for step in batch.steps):
            raise RemoteProtocolError(f"Batch {batch.batch_id} came round and did not leave so.")
        while next(iter(self._ids)) != batch.batch_id:  # they failed on the way: batches keep order
            del self._ids[next(iter(self._ids))]
        del self._ids[batch.batch_id]
        whole = replace(batch, token_ids=np.concatenate([ids[step] for step in batch.steps]))
        return encode_micro_batch(whole, peek_batch(frame).compute_us)

    def _batch_in(self, frame: bytes) -> MicroBatch | None:
        if peek_type(frame) is not MessageType.MICRO_BATCH:
            return None
        batch = decode(frame)
        return batch if isinstance(batch, MicroBatch) and batch.epoch == self._epoch else None

"""Frames of a chain, as short as they can be."""

from __future__ import annotations

import numpy as np

from engine.domain import MicroBatch, SampledRow, SampledTokens, SequenceId, SequenceStep
from engine.messages.chain import BatchFailed, CloseSequence, OpenSequence
from engine.messages.codec import (
    decode,
    encode_control,
    encode_micro_batch,
    encode_sampled_tokens,
)
from engine.sampling.parameters import SamplingParameters

EPOCH = 7


def batch(batch_id: int, epoch: int = EPOCH, num_tokens: int = 1, compute_us: int = 0) -> bytes:
    steps = (SequenceStep(SequenceId(1), 0, num_tokens, 1),)
    ids = np.full(num_tokens, 5, np.int32)
    return encode_micro_batch(MicroBatch(batch_id, epoch, steps, ids), compute_us)


def sampled(batch_id: int) -> bytes:
    return encode_sampled_tokens(
        SampledTokens(batch_id, EPOCH, (SampledRow(SequenceId(1), 1, (9,)),))
    )


def failed(batch_id: int) -> bytes:
    return encode_control(
        BatchFailed(
            epoch=EPOCH,
            batch_id=batch_id,
            stage_index=0,
            sequence_ids=(SequenceId(1),),
            code="inference",
            what="A NaN came out.",
            advice="Run it again.",
        )
    )


def opening(sequence: int, epoch: int = EPOCH) -> bytes:
    return encode_control(
        OpenSequence(
            epoch=epoch,
            sequence_id=SequenceId(sequence),
            num_prompt_tokens=1,
            sampling=SamplingParameters(),
        )
    )


def closing(sequence: int, epoch: int = EPOCH) -> bytes:
    return encode_control(CloseSequence(epoch=epoch, sequence_id=SequenceId(sequence)))


def shown(frame: bytes) -> str:
    """Return a frame in a few letters: ``batch 3``, ``open 1``, ``close 1``, ``tokens 3``."""
    message = decode(frame)
    match message:
        case MicroBatch():
            return f"batch {message.batch_id}"
        case SampledTokens():
            return f"tokens {message.batch_id}"
        case OpenSequence():
            return f"open {message.sequence_id}"
        case CloseSequence():
            return f"close {message.sequence_id}"
        case BatchFailed():
            return f"failed {message.batch_id}"
        case _:
            return type(message).__name__

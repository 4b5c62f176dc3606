"""What a stage process answers to each message, and the loop that asks it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from engine.domain import MicroBatch, SampledTokens
from engine.errors import DaisyError, RemoteProtocolError
from engine.messages.chain import BatchFailed, CloseSequence, OpenSequence
from engine.messages.codec import (
    Unknown,
    decode,
    encode_control,
    encode_micro_batch,
    encode_sampled_tokens,
    peek_batch,
)
from engine.messages.control import ErrorReport
from engine.messages.hidden_states import narrowed
from engine.messages.stage_control import (
    KVUsageReport,
    LoadShard,
    ReportKVUsage,
    ShardLoaded,
    Shutdown,
)
from engine.stages.loading import load_stage
from engine.stages.step_door import StepDoor, empty_row, without
from engine.stages.token_history import TokenHistory

if TYPE_CHECKING:
    from engine.domain import HiddenPrecision, SampledRow, SequenceId
    from engine.stages.process import FramePipe
    from engine.stages.stage import Stage

_UNKNOWN_STAGE_INDEX = 0  # the node knows its place in the chain and fills it in
_MAX_U32 = 2**32 - 1


class StageService:
    """A loaded stage and, on the last one, the tokens it draws from."""

    def __init__(self, stage: Stage, precision: HiddenPrecision = "f32") -> None:
        """Take a stage that is ready.

        Args:
            stage: Only this object calls it from now on.
            precision: What its hidden states are sent in, where they fit.
        """
        self._stage = stage
        self._precision = precision
        self._history = TokenHistory()
        self._door = StepDoor(knows_draws=stage.description.is_last)

    def answer(
        self,
        message: object,
        computed_before_us: int = 0,
    ) -> bytes | None:
        """Do what one message asks.

        Args:
            message: Decoded; its arrays are used up before this returns.
            computed_before_us: By the stages before this one, for the same micro-batch.

        Returns:
            The answer as one frame, or None where there is none.

        Raises:
            RemoteProtocolError: It is no message for a stage process.
        """
        match message:
            case MicroBatch():
                return self._run(message, computed_before_us)
            case OpenSequence():
                if message.prefix is not None:
                    self._stage.begin_from(message.sequence_id, message.prefix)
                self._history.open(message)
                self._door.forget(message.sequence_id)
                return None
            case CloseSequence():
                self._stage.release(message.sequence_id)
                self._history.close(message.sequence_id)
                self._door.forget(message.sequence_id)
                return None
            case ReportKVUsage():
                return encode_control(KVUsageReport(usage=self._stage.kv_usage()))
            case Unknown():
                return None
            case _:
                raise RemoteProtocolError(
                    f"{type(message).__name__} is no message for a stage process."
                )

    def _run(self, batch: MicroBatch, computed_before_us: int) -> bytes:
        dropped = self._door.dropped(batch)
        kept = without(batch, dropped)
        if kept is None:  # nothing is computed, and the stages behind have nothing to do
            return encode_sampled_tokens(self._drawn(batch, dropped, ()), computed_before_us)
        began = time.perf_counter()
        try:
            rows = self._stage.run(kept)
            own_us = int((time.perf_counter() - began) * 1e6)
            compute_us = min(computed_before_us + own_us, _MAX_U32)
            if not self._stage.description.is_last:
                self._door.advance(kept.steps, ())
                sent = narrowed(rows, self._precision)
                answer = MicroBatch(kept.batch_id, kept.epoch, kept.steps, kept.token_ids, *sent)
                return encode_micro_batch(answer, compute_us)
            drawn = self._history.draw(kept, rows)
            self._door.advance(kept.steps, drawn)
            return encode_sampled_tokens(self._drawn(batch, dropped, drawn), compute_us)
        except DaisyError as error:
            self._door.lose(kept.steps)
            failed = BatchFailed(
                epoch=batch.epoch,
                batch_id=batch.batch_id,
                stage_index=_UNKNOWN_STAGE_INDEX,
                sequence_ids=tuple(step.sequence_id for step in batch.steps),
                code=error.code,
                what=error.what,
                advice=error.advice,
            )
            return encode_control(failed)

    def _drawn(
        self, batch: MicroBatch, dropped: frozenset[SequenceId], rows: tuple[SampledRow, ...]
    ) -> SampledTokens:
        """Return the answer to a batch: an empty row stands for each step that was dropped."""
        empty = (empty_row(step) for step in batch.steps if step.sequence_id in dropped)
        return SampledTokens(batch.batch_id, batch.epoch, (*rows, *empty))


def serve(pipe: FramePipe) -> None:
    """Load the shard the first message names, then answer messages until there are no more.

    An error that is not a batch's own is reported and ends the loop.

    Args:
        pipe: To the node.

    Raises:
        BrokenPipeError: The node is gone.
    """
    try:
        service = _load(pipe)
        while service is not None and _answer_next(service, pipe):
            pass
    except DaisyError as error:
        pipe.write(
            encode_control(ErrorReport(code=error.code, what=error.what, advice=error.advice))
        )


def _load(pipe: FramePipe) -> StageService | None:
    frame = pipe.read()
    if frame is None:
        return None
    request = decode(frame)
    if not isinstance(request, LoadShard):
        raise RemoteProtocolError(
            f"The first message to a stage process was {type(request).__name__}, not LoadShard."
        )
    stage = load_stage(request)
    pipe.write(encode_control(ShardLoaded(description=stage.description)))
    return StageService(stage, request.hidden_precision)


def _answer_next(service: StageService, pipe: FramePipe) -> bool:
    """Answer one message; return False when it was the last."""
    frame = pipe.read()
    if frame is None:
        return False
    message = decode(frame)
    if isinstance(message, Shutdown):
        return False
    before_us = peek_batch(frame).compute_us if isinstance(message, MicroBatch) else 0
    answer = service.answer(message, before_us)
    if answer is not None:
        pipe.write(answer)
    return True

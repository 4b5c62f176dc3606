"""The head: owns every request of a placement, from its text to its last token.

Three verbs: form a micro-batch, send it down the chain, take what comes back. Text is made from
ids here and streamed to whoever asked; a slow asker holds up nobody, since what it has not taken
yet is kept as one piece.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from engine.config import TOKEN_DEADLINE_S
from engine.domain import SequenceId
from engine.errors import (
    DaisyError,
    PeerTimeoutError,
    PipelineBrokenError,
    rebuilt,
)
from engine.messages.codec import encode_control, encode_micro_batch, peek_batch
from engine.messages.control import (
    Accepted,
    BatchFailed,
    CloseSequence,
    Finished,
    OpenSequence,
    TextDelta,
)
from engine.scheduler.limits import SchedulerLimits
from engine.scheduler.request import Sequence, check_max_tokens
from engine.scheduler.scheduler import Scheduler

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from engine.domain import SampledTokens
    from engine.messages.control import Generate, Placement, StageFailed
    from engine.messages.message import Message
    from engine.pipeline.chat_text import ChatText
    from engine.pipeline.reply import Reply
    from engine.sampling.parameters import SamplingParameters

    Submit = Callable[[bytes], Awaitable[None]]
    SendToAsker = Callable[[Message], Awaitable[None]]

MAX_BLOCK_TOKENS = 32  # the larger of the devices' KV block sizes; a smaller one wastes less


@dataclass(slots=True)
class _Live:
    """One request while it runs."""

    request: Generate
    key: str
    reply: Reply
    opening: OpenSequence
    num_prompt_tokens: int
    accepted_s: float
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    failure: DaisyError | None = None
    first_token_s: float | None = None
    last_token_s: float | None = None
    decode_compute_us: list[int] = field(default_factory=list)


class Head:
    """Runs the requests of one placement.

    Thread: the node's loop.
    """

    def __init__(self, text: ChatText, placement: Placement, submit: Submit) -> None:
        """Begin with no requests.

        Args:
            text: The model's text side.
            placement: What this head feeds.
            submit: Hands a frame to the first stage.
        """
        self._text = text
        self._placement = placement
        self._submit = submit
        self._scheduler = Scheduler(_limits(placement), placement.epoch)
        self._live: dict[SequenceId, _Live] = {}
        self._by_key: dict[str, SequenceId | None] = {}  # None while its prompt is made
        self._cancelled: set[str] = set()  # of those
        self._outgoing: deque[CloseSequence] = deque()
        self._untold: deque[tuple[_Live, tuple[int, ...]]] = deque()
        self._wake = asyncio.Event()
        self._num_sequences = 0
        self._heard_s = time.monotonic()  # of the chain, whatever it computed
        self._broken: DaisyError | None = None

    # ---- a request's own task -----------------------------------------------------------------

    async def answer(self, request: Generate, send: SendToAsker, key: str | None = None) -> None:
        """Answer one request, streaming to the asker until the answer has ended.

        Args:
            request: What is asked.
            send: Reaches the asker; may be slow.
            key: Names the request in ``cancel``, unlike any other that is running; its
                ``request_id`` if left out, which is unique on one connection only.

        Raises:
            UsageError: The request is wrong, or too long for the context.
            ChatTemplateError: The model has no template, or it fails.
            RequestError: The chain broke.
            StageError: A stage could not compute it.

        Cancellation: closes the sequence on every stage.
        """
        accepted_s = time.monotonic()
        self._refuse_if_broken()
        request.sampling.checked()
        now = datetime.now().astimezone()
        key = request.request_id if key is None else key
        self._by_key[key] = None
        try:
            prompt_ids = await asyncio.to_thread(self._text.prompt_ids, request, now)
            live = self._queued(request, key, prompt_ids, accepted_s)
            try:
                await send(
                    Accepted(
                        request_id=request.request_id,
                        prompt_tokens=len(prompt_ids),
                        seed=live.opening.sampling.seed,
                    )
                )
                self._wake.set()
                await self._stream(live, send)
            finally:
                self._close(live)
        finally:
            self._by_key.pop(key, None)
            self._cancelled.discard(key)

    def _queued(
        self, request: Generate, key: str, prompt_ids: list[int], accepted_s: float
    ) -> _Live:
        max_tokens = check_max_tokens(
            request.max_tokens, len(prompt_ids), self._placement.context_tokens
        )
        self._refuse_if_broken()
        sequence_id = self._next_id()
        live = _Live(
            request=request,
            key=key,
            reply=self._text.new_reply(request, prompt_ids, max_tokens),
            opening=OpenSequence(
                epoch=self._placement.epoch,
                sequence_id=sequence_id,
                num_prompt_tokens=len(prompt_ids),
                sampling=self._seeded(request),
            ),
            num_prompt_tokens=len(prompt_ids),
            accepted_s=accepted_s,
        )
        self._scheduler.add(Sequence(sequence_id, prompt_ids, max_tokens))
        self._live[sequence_id] = live
        self._by_key[key] = sequence_id
        if key in self._cancelled:
            self.cancel(key)
        return live

    async def _stream(self, live: _Live, send: SendToAsker) -> None:
        number = 0
        request_id = live.request.request_id
        while True:
            await self._changed(live)
            live.changed.clear()
            text, ids = live.reply.take()
            if ids:
                delta = TextDelta(request_id=request_id, number=number, text=text, token_ids=ids)
                await send(delta)
                number += 1
            if live.failure is not None:
                raise live.failure
            if live.reply.finish_reason is not None and not live.changed.is_set():
                await send(self._finished(live))
                return

    async def _changed(self, live: _Live) -> None:
        """Wait for something new to tell; a chain that computes for others is no dead one.

        Raises:
            PeerTimeoutError: The chain has said nothing at all for too long.
        """
        waits_from_s = time.monotonic()
        while True:
            rest_s = max(waits_from_s, self._heard_s) + TOKEN_DEADLINE_S - time.monotonic()
            if rest_s <= 0:
                raise PeerTimeoutError(
                    f"No token came for {TOKEN_DEADLINE_S:g} s.",
                    "A PC of the pool hangs; load the model again.",
                )
            try:
                async with asyncio.timeout(rest_s):
                    await live.changed.wait()
            except TimeoutError:
                continue
            return

    def _finished(self, live: _Live) -> Finished:
        first, last = live.first_token_s, live.last_token_s
        computed = live.decode_compute_us
        return Finished(
            request_id=live.request.request_id,
            finish_reason=live.reply.finish_reason or "cancelled",
            prompt_tokens=live.num_prompt_tokens,
            completion_tokens=live.reply.num_tokens,
            ttft_s=None if first is None else first - live.accepted_s,
            decode_s=0.0 if first is None or last is None else last - first,
            chain_compute_ms=sum(computed) / len(computed) / 1000 if computed else 0.0,
        )

    def cancel(self, key: str) -> None:
        """End a request where it is; its asker is told how far it came.

        Args:
            key: As given to ``answer``; nothing happens for one that is not running.
        """
        if key not in self._by_key:
            return
        sequence_id = self._by_key[key]
        if sequence_id is None:
            self._cancelled.add(key)
            return
        self._scheduler.cancel(sequence_id)
        self._live[sequence_id].reply.cancel()
        self._live[sequence_id].changed.set()

    # ---- what comes back ----------------------------------------------------------------------

    def on_sampled(self, tokens: SampledTokens, frame: bytes) -> None:
        """Take the last stage's answer to a micro-batch.

        Args:
            tokens: Decoded.
            frame: The same, undecoded: its header says how long the stages computed.

        Raises:
            RemoteProtocolError: It does not fit what was asked.
        """
        now_s = self._heard_s = time.monotonic()
        compute_us = peek_batch(frame).compute_us
        for sequence_id, token_ids in self._scheduler.apply(tokens):
            live = self._live.get(sequence_id)
            if live is None:
                continue
            if live.first_token_s is None:
                live.first_token_s = now_s
            else:
                live.decode_compute_us.append(compute_us)
            live.last_token_s = now_s
            if live.reply.ends_at(token_ids):
                self._scheduler.finish(sequence_id)
            self._untold.append((live, token_ids))
            if live.request.stop:
                self._tell()  # only its text says whether there is a next step
        self._wake.set()

    def on_failure(self, failure: BatchFailed | StageFailed) -> None:
        """Fail the requests of a micro-batch, or all of them when a stage is gone.

        Args:
            failure: As a stage reported it; of another epoch, it is ignored.
        """
        if failure.epoch != self._placement.epoch:
            return
        error = rebuilt(failure.code, failure.what, failure.advice)
        if isinstance(failure, BatchFailed):
            for sequence_id in self._scheduler.fail(failure.batch_id):
                self._fail(sequence_id, error)
            self._wake.set()
        else:
            self._break(error)

    def stop(self) -> None:
        """Fail what runs because the placement has ended."""
        self._break(PipelineBrokenError("The model was unloaded."))

    def _break(self, error: DaisyError) -> None:
        self._broken = self._broken or error
        for sequence_id in list(self._live):
            self._fail(sequence_id, error)

    def _fail(self, sequence_id: SequenceId, error: DaisyError) -> None:
        live = self._live.get(sequence_id)
        if live is not None:
            live.failure = live.failure or error
            live.changed.set()

    # ---- the loop -------------------------------------------------------------------------------

    async def run_loop(self) -> None:
        """Send micro-batches as long as there is something to compute.

        Cancellation: stops between frames.
        """
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._send_all()
            except DaisyError as error:
                self._break(error)
            self._tell()

    def _tell(self) -> None:
        """Make text of the new tokens; the stages are already at the next ones."""
        while self._untold:
            live, token_ids = self._untold.popleft()
            live.reply.push(token_ids)
            if live.reply.finish_reason is not None:
                self._scheduler.finish(live.opening.sequence_id)
            live.changed.set()

    async def _send_all(self) -> None:
        while self._outgoing:
            await self._submit(encode_control(self._outgoing.popleft()))
        while self._broken is None and (batch := self._scheduler.next_micro_batch()) is not None:
            # All of it before the first wait: a sequence may end meanwhile, and a stage must not
            # get a step of one that was never opened.
            frames: list[bytes] = [
                *(encode_control(self._closing(i)) for i in self._scheduler.take_preempted()),
                *(
                    encode_control(self._live[step.sequence_id].opening)
                    for step in batch.steps
                    if step.past_len == 0
                ),
                encode_micro_batch(batch),
            ]
            for frame in frames:
                await self._submit(frame)
            self._tell()

    def _close(self, live: _Live) -> None:
        sequence_id = live.opening.sequence_id
        self._scheduler.cancel(sequence_id)
        self._live.pop(sequence_id, None)
        self._outgoing.append(self._closing(sequence_id))
        self._wake.set()

    def _closing(self, sequence_id: SequenceId) -> CloseSequence:
        return CloseSequence(epoch=self._placement.epoch, sequence_id=sequence_id)

    def _next_id(self) -> SequenceId:
        self._num_sequences += 1
        return SequenceId(self._num_sequences)

    @staticmethod
    def _seeded(request: Generate) -> SamplingParameters:
        if request.seed_given:
            return request.sampling
        return msgspec.structs.replace(request.sampling, seed=secrets.randbits(63))

    def _refuse_if_broken(self) -> None:
        if self._broken is not None:
            raise self._broken


def _limits(placement: Placement) -> SchedulerLimits:
    """Return what the stages of a placement allow; they round up to whole blocks as well."""
    blocks = -(-placement.context_tokens // MAX_BLOCK_TOKENS)
    return SchedulerLimits(
        max_tokens=blocks * MAX_BLOCK_TOKENS * placement.max_sequences,
        block_tokens=MAX_BLOCK_TOKENS,
        max_sequences=placement.max_sequences,
        num_stages=len(placement.stages),
        # The chunks of one long prompt follow each other down the chain, which keeps their order.
        max_chunks_in_flight=len(placement.stages),
    )

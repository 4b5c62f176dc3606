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
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from engine.domain import SequenceId
from engine.errors import DaisyError, PipelineBrokenError, PlacementError, rebuilt
from engine.messages.chain import BatchFailed, CloseSequence, OpenSequence, StageFailed
from engine.messages.codec import encode_control, encode_micro_batch, peek_batch
from engine.messages.control import Accepted, Generate
from engine.pipeline.draft_desk import DraftDesk
from engine.pipeline.head_limits import limits_of
from engine.pipeline.live_request import LiveRequest
from engine.scheduler.cache_room import Closed, Opened
from engine.scheduler.queue_time import QueueTime
from engine.scheduler.request import Sequence, check_max_tokens
from engine.scheduler.scheduler import Scheduler

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from engine.domain import SampledTokens
    from engine.messages.chain import Placement
    from engine.messages.message import Message
    from engine.pipeline.chat_text import ChatText
    from engine.pipeline.draft_desk import Guessing
    from engine.pipeline.live_request import SendToAsker
    from engine.pipeline.reply import Reply
    from engine.sampling.parameters import SamplingParameters
    from engine.scheduler.load import SchedulerLoad
    from engine.scheduler.row_costs import RowCosts

    Submit = Callable[[bytes], Awaitable[None]]

_PROBE = Generate(request_id="probe", prompt="a", max_tokens=1, ignore_eos=True)


class _Prepared(NamedTuple):
    prompt_ids: list[int]
    max_tokens: int
    reply: Reply


class Head:
    """Runs the requests of one placement.

    Attributes:
        epoch: Of the placement.

    Thread: the node's loop.
    """

    def __init__(
        self,
        text: ChatText,
        placement: Placement,
        submit: Submit,
        on_broken: Callable[[StageFailed], None] | None = None,
        guessing: Guessing | None = None,
        row_costs: RowCosts | None = None,
    ) -> None:
        """Begin with no requests.

        Args:
            text: The model's text side.
            placement: What this head feeds.
            submit: Hands a frame to the first stage.
            on_broken: Told once, which stage broke the chain.
            guessing: Who guesses how answers go on; None for nobody.
            row_costs: As the first stage measured them; None where it did not.
        """
        self.epoch = placement.epoch
        self._text = text
        self._context_tokens = placement.context_tokens
        self._max_sequences = placement.max_sequences
        self._submit = submit
        self._on_broken = on_broken
        self._wake = asyncio.Event()
        self._desk = DraftDesk(guessing, len(placement.stages), self._wake.set)
        self._scheduler = Scheduler(
            limits_of(placement, text.vocab_size, row_costs),
            placement.epoch,
            self._desk.speculation,
        )
        self._live: dict[SequenceId, LiveRequest] = {}
        self._by_key: dict[str, LiveRequest | None] = {}  # None while its prompt is made
        self._cancelled: set[str] = set()  # of those
        self._untold: deque[tuple[LiveRequest, tuple[int, ...]]] = deque()
        self._num_sequences = 0
        self._queue_time = QueueTime()
        self._heard_s = time.monotonic()  # of the chain, whatever it computed
        self._broken: DaisyError | None = None

    @property
    def num_active(self) -> int:
        """Requests that run or wait for their turn."""
        return len(self._by_key)

    def load(self) -> SchedulerLoad:
        """Count what waits, runs, and is kept on the stages."""
        return self._scheduler.load()

    # ---- a request's own task -----------------------------------------------------------------

    async def answer(self, request: Generate, send: SendToAsker, key: str | None = None) -> None:
        """Answer one request, or go on with its answer, streaming until the answer has ended.

        Args:
            request: What is asked. Where ids are committed, the answer goes on behind them as if
                it had never stopped; their text is not sent again.
            send: Reaches the asker; may be slow.
            key: Names the request in ``cancel``, unlike any other that is running; its
                ``request_id`` if left out, which is unique on one connection only.

        Raises:
            UsageError: The request is wrong, or too long for the context.
            ChatTemplateError: The model has no template, or it fails.
            PlacementError: The request is meant for another placement.
            RequestError: The chain broke.
            StageError: A stage could not compute it.

        Cancellation: closes the sequence on every stage.
        """
        began_s = time.monotonic()
        self._refuse_if_broken()
        self._refuse_if_meant_for_another(request)
        request.sampling.checked()
        key = request.request_id if key is None else key
        self._by_key[key] = None
        try:
            prepared = await asyncio.to_thread(self._prepare, request, datetime.now().astimezone())
            await self._run(self._begun(request, prepared, began_s), prepared, send, key)
        finally:
            self._by_key.pop(key, None)
            self._cancelled.discard(key)

    async def probe(self) -> None:
        """Send one token round the whole chain and wait until it has come back.

        Raises:
            RequestError: The chain broke.
            StageError: A stage could not compute it.
            TransportError: A stage could not be reached, or said nothing.

        Cancellation: closes the sequence on every stage.
        """

        async def discard(_: Message) -> None: ...

        self._refuse_if_broken()
        prepared = await asyncio.to_thread(self._prepare, _PROBE, datetime.now().astimezone())
        one_id = prepared._replace(prompt_ids=prepared.prompt_ids[:1])
        await self._run(self._begun(_PROBE, one_id, time.monotonic()), one_id, discard)

    def _prepare(self, request: Generate, now: datetime) -> _Prepared:
        """Make ids of the prompt and begin the reply; in a thread, for both may be long."""
        prompt_ids = self._text.prompt_ids(request, now)
        max_tokens = check_max_tokens(request.max_tokens, len(prompt_ids), self._context_tokens)
        return _Prepared(
            prompt_ids, max_tokens, self._text.new_reply(request, prompt_ids, max_tokens)
        )

    def _begun(self, request: Generate, prepared: _Prepared, began_s: float) -> LiveRequest:
        self._refuse_if_broken()
        self._num_sequences += 1
        opening = OpenSequence(
            epoch=self.epoch,
            sequence_id=SequenceId(self._num_sequences),
            num_prompt_tokens=len(prepared.prompt_ids),  # the answer begins there, as ever
            sampling=_seeded(request),
        )
        return LiveRequest(request, prepared.reply, opening, began_s)

    async def _run(
        self, live: LiveRequest, prepared: _Prepared, send: SendToAsker, key: str | None = None
    ) -> None:
        if prepared.reply.finish_reason is None:  # else all of it is committed already
            self._queue(live, prepared, key)
        try:
            await send(
                Accepted(
                    request_id=live.request.request_id,
                    prompt_tokens=len(prepared.prompt_ids),
                    seed=live.opening.sampling.seed,
                )
            )
            self._wake.set()
            await live.stream(send, lambda: self._heard_s)
        finally:
            self._close(live)

    def _queue(self, live: LiveRequest, prepared: _Prepared, key: str | None) -> None:
        committed_ids = live.request.committed_ids
        live.sequence = Sequence(
            live.sequence_id,
            prepared.prompt_ids,
            prepared.max_tokens,
            committed_ids,
            reuses_prefix=live.request.reuse_prefix,
            speculates=live.request.speculate,
        )
        self._scheduler.add(live.sequence)
        self._live[live.sequence_id] = live
        if key is not None:
            self._by_key[key] = live
            if key in self._cancelled:
                self.cancel(key)

    def cancel(self, key: str) -> None:
        """End a request where it is; its asker is told how far it came.

        Args:
            key: As given to ``answer``; nothing happens for one that is not running.
        """
        if key not in self._by_key:
            return
        live = self._by_key[key]
        if live is None:
            self._cancelled.add(key)
            return
        self._scheduler.cancel(live.sequence_id)
        live.cancel()

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
        self._desk.answered(tokens, compute_us)
        for sequence_id, token_ids in self._scheduler.apply(tokens):
            live = self._live.get(sequence_id)
            if live is None:
                continue
            live.on_tokens(now_s, compute_us)
            if token_ids:
                self._desk.wrote(sequence_id, len(token_ids), now_s)
            if live.reply.ends_at(token_ids):
                self._scheduler.finish(sequence_id)
            self._untold.append((live, token_ids))
            if live.request.stop:
                self._tell()  # only its text says whether there is a next step
        self._note_progress(now_s)
        self._wake.set()

    def on_failure(self, failure: BatchFailed | StageFailed) -> None:
        """Fail the requests of a micro-batch, or all of them when a stage is gone.

        Args:
            failure: As a stage reported it; of another epoch, it is ignored.
        """
        if failure.epoch != self.epoch:
            return
        if isinstance(failure, StageFailed):
            self._break(rebuilt(failure.code, failure.what, failure.advice), failure)
            return
        error = rebuilt(failure.code, failure.what, failure.advice)
        for sequence_id in self._scheduler.fail(failure.batch_id):
            if sequence_id in self._live:
                self._live[sequence_id].fail(error)
        self._wake.set()

    def stop(self) -> None:
        """Fail what runs because the placement has ended; where it was placed anew, relays go on.

        Nobody is told that a stage broke the chain.
        """
        self._break(PipelineBrokenError("The PCs were given other parts of the model, or none."))

    def _break(self, error: DaisyError, failure: StageFailed | None = None) -> None:
        is_news = self._broken is None
        self._broken = self._broken or error
        for live in self._live.values():
            live.fail(error)
        if is_news and failure is not None and self._on_broken is not None:
            self._on_broken(failure)

    # ---- the loop -------------------------------------------------------------------------------

    async def run_loop(self) -> None:
        """Send micro-batches as long as there is something to compute.

        Cancellation: stops between frames.
        """
        async with asyncio.TaskGroup() as group:
            group.create_task(self._desk.run_loop(self._scheduler.drafts))
            await self._send_loop()

    async def _send_loop(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._send_all()
            except DaisyError as error:
                self._break(error, self._first_stage_failed(error))
            self._tell()

    def _tell(self) -> None:
        """Make text of the new tokens; the stages are already at the next ones."""
        while self._untold:
            live, token_ids = self._untold.popleft()
            live.push(token_ids)
            if live.reply.finish_reason is not None:
                self._scheduler.finish(live.sequence_id)

    async def _send_all(self) -> None:
        while True:
            held = await self._desk.ask(self._scheduler.drafts)
            # All of it before the first wait: a sequence may end meanwhile, and a stage must not
            # get a step of one that was never opened.
            is_whole = self._broken is None
            batch = self._scheduler.next_micro_batch(held) if is_whole else None
            frames = [encode_control(self._change(each)) for each in self._scheduler.take_changes()]
            if batch is not None:
                frames.append(encode_micro_batch(batch))
                self._desk.sent(batch)
            for frame in frames:
                await self._submit(frame)
            if batch is None:
                break
            self._tell()
        self._note_progress(time.monotonic())

    def _close(self, live: LiveRequest) -> None:
        if self._live.pop(live.sequence_id, None) is None:
            return  # it was never queued
        if live.running_s is not None:
            self._queue_time.ended(live.running_s)
        self._scheduler.cancel(live.sequence_id)
        self._desk.end(live.sequence_id)
        self._wake.set()

    def _note_progress(self, now_s: float) -> None:
        """Note how far those are that have no text yet."""
        for live in self._live.values():
            if not live.wants_progress(now_s):
                continue
            place, num_read = self._scheduler.standing(live.sequence_id)
            wait_s = self._queue_time.wait_s(place, self._max_sequences) if place else None
            live.on_progress(now_s, place, wait_s, num_read)

    def _change(self, change: Opened | Closed) -> OpenSequence | CloseSequence:
        """Return what the stages are told of a sequence."""
        if isinstance(change, Opened):
            return self._live[change.sequence_id].opened(change.prefix, time.monotonic())
        return CloseSequence(epoch=self.epoch, sequence_id=change.sequence_id)

    def _first_stage_failed(self, error: DaisyError) -> StageFailed:
        return StageFailed(
            epoch=self.epoch, stage_index=0, code=error.code, what=error.what, advice=error.advice
        )

    def _refuse_if_broken(self) -> None:
        if self._broken is not None:
            raise self._broken

    def _refuse_if_meant_for_another(self, request: Generate) -> None:
        if request.epoch not in {0, self.epoch}:
            raise PlacementError(
                f"The request is meant for placement {request.epoch}, and this PC is the head of "
                f"placement {self.epoch}.",
                "Ask the PC that is the head.",
            )


def _seeded(request: Generate) -> SamplingParameters:
    if request.seed_given:
        return request.sampling
    return msgspec.structs.replace(request.sampling, seed=secrets.randbits(63))

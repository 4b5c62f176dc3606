"""One request while it runs at the head: its reply, its times, and its stream to the asker."""

from __future__ import annotations

import asyncio
import functools
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from engine.config import TOKEN_DEADLINE_S
from engine.errors import PeerTimeoutError
from engine.messages.control import AnswerProgress, Finished, TextDelta

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from engine.domain import KeptPrefix, SequenceId
    from engine.errors import DaisyError
    from engine.messages.chain import OpenSequence
    from engine.messages.control import Generate
    from engine.messages.message import Message
    from engine.pipeline.reply import Reply
    from engine.scheduler.request import Sequence

    SendToAsker = Callable[[Message], Awaitable[None]]

PROGRESS_EVERY_S = 0.25  # nobody reads faster
_LAST_LOOK_AFTER_S = 0.05


@dataclass(slots=True)
class LiveRequest:
    """One request.

    Attributes:
        request: What is asked.
        reply: Its answer so far.
        opening: How its sequence begins on the stages.
        began_s: When it came.
        sequence: At the scheduler; None where nothing is left to compute.

    Thread: the node's loop.
    """

    request: Generate
    reply: Reply
    opening: OpenSequence
    began_s: float
    sequence: Sequence | None = field(default=None, init=False)
    _changed: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _failure: DaisyError | None = field(default=None, init=False)
    _cached_tokens: int | None = field(default=None, init=False)
    _first_token_s: float | None = field(default=None, init=False)
    _last_token_s: float | None = field(default=None, init=False)
    _decode_compute_us: list[int] = field(default_factory=list, init=False)
    _turn_s: float | None = field(default=None, init=False)
    _progress: AnswerProgress | None = field(default=None, init=False)
    _is_progress_told: bool = field(default=True, init=False)
    _progress_due_s: float = field(default=0.0, init=False)
    _waits_from_s: float | None = field(default=None, init=False)
    _watchdog: asyncio.TimerHandle | None = field(default=None, init=False)

    @property
    def sequence_id(self) -> SequenceId:
        """Of its sequence on the stages."""
        return self.opening.sequence_id

    @property
    def running_s(self) -> float | None:
        """From its turn to its last token; None where none came."""
        if self._turn_s is None or self._last_token_s is None:
            return None
        return self._last_token_s - self._turn_s

    def wants_progress(self, now_s: float) -> bool:
        """Whether its asker has no token yet, and would be told now how far it is.

        Args:
            now_s: Of the monotonic clock.
        """
        return self._first_token_s is None and now_s >= self._progress_due_s

    def on_progress(
        self, now_s: float, queue_place: int, wait_s: float | None, num_read: int
    ) -> None:
        """Note how far it is, where that is wanted; the asker is told what has changed.

        Args:
            now_s: Of the monotonic clock.
            queue_place: From 1; 0 once it has its turn.
            wait_s: Until its turn; None where nobody knows.
            num_read: Tokens that are computed.
        """
        last = self._progress
        told = (0, 0) if last is None else (last.queue_place, last.num_read)
        is_news = told != (queue_place, num_read)
        if is_news or queue_place:  # places are counted through: not for every pass
            self._progress_due_s = now_s + PROGRESS_EVERY_S
        if not is_news:
            return
        self._progress = AnswerProgress(
            request_id=self.request.request_id,
            queue_place=queue_place,
            wait_s=wait_s,
            num_read=num_read,
        )
        self._is_progress_told = False
        self._changed.set()

    def opened(self, prefix: KeptPrefix | None, now_s: float) -> OpenSequence:
        """Return how its sequence begins on the stages: it has its turn, at first or once more.

        Args:
            prefix: What it begins with; None for nothing.
            now_s: Of the monotonic clock.
        """
        if self._turn_s is None:
            self._turn_s = now_s
        if self._cached_tokens is None:
            num_tokens = 0 if prefix is None else prefix.num_tokens
            self._cached_tokens = min(num_tokens, self.opening.num_prompt_tokens)
        return msgspec.structs.replace(self.opening, prefix=prefix)

    def on_tokens(self, now_s: float, compute_us: int) -> None:
        """Note that tokens came.

        Args:
            now_s: Of the monotonic clock.
            compute_us: How long the stages computed for them.
        """
        if self._first_token_s is None:
            self._first_token_s = now_s
        else:
            self._decode_compute_us.append(compute_us)
        self._last_token_s = now_s

    def push(self, token_ids: tuple[int, ...]) -> None:
        """Make text of the next ids; there is something new to tell."""
        self.reply.push(token_ids)
        self._changed.set()

    def cancel(self) -> None:
        """End the answer where it is; what is final is still told."""
        self.reply.cancel()
        self._changed.set()

    def fail(self, error: DaisyError) -> None:
        """End the answer for a reason; the first one stands."""
        self._failure = self._failure or error
        self._changed.set()

    async def stream(self, send: SendToAsker, heard_s: Callable[[], float]) -> None:
        """Tell the asker what comes, until the answer has ended.

        A slow asker gets what came meanwhile as one piece.

        Args:
            send: Reaches the asker; may be slow.
            heard_s: When the chain last said anything, for whichever request.

        Raises:
            DaisyError: What the request was failed with.
            PeerTimeoutError: The chain has said nothing at all for too long.

        Cancellation: stops between two messages.
        """
        self._watch(heard_s)
        try:
            await self._tell_all(send)
        finally:
            if self._watchdog is not None:
                self._watchdog.cancel()

    async def _tell_all(self, send: SendToAsker) -> None:
        number = self.request.next_number
        if self.reply.finish_reason is not None:
            self._changed.set()  # all of it is committed already
        while True:
            self._waits_from_s = time.monotonic()
            await self._changed.wait()
            self._waits_from_s = None
            self._changed.clear()
            if self._progress is not None and not self._is_progress_told:
                self._is_progress_told = True
                if self._first_token_s is None:
                    await send(self._progress)
            text, ids = self.reply.take()
            if ids or text:
                await send(
                    TextDelta(
                        request_id=self.request.request_id,
                        number=number,
                        text=text,
                        token_ids=ids,
                    )
                )
                number += 1
            if self._changed.is_set():
                continue
            if self.reply.finish_reason is not None:
                await send(self._finished())
                return
            if self._failure is not None:
                raise self._failure

    def _watch(self, heard_s: Callable[[], float], *, is_last_look: bool = False) -> None:
        """Fail the request once the chain has said nothing at all for too long.

        A chain that computes for others is no dead one, and a slow asker no silent chain. One timer
        for the whole answer, which looks what has come since: one for every token would cost more
        than the token's text.
        """
        now_s = time.monotonic()
        rest_s = max(self._waits_from_s or now_s, heard_s()) + TOKEN_DEADLINE_S - now_s
        if rest_s > 0.0:
            self._watchdog = asyncio.get_running_loop().call_later(rest_s, self._watch, heard_s)
            return
        if not is_last_look:
            # This PC may have been held up, and what came meanwhile lies in a socket.
            look = functools.partial(self._watch, heard_s, is_last_look=True)
            self._watchdog = asyncio.get_running_loop().call_later(_LAST_LOOK_AFTER_S, look)
            return
        self.fail(
            PeerTimeoutError(
                f"No token came for {TOKEN_DEADLINE_S:g} s.",
                "A PC of the pool hangs; load the model again.",
            )
        )

    def _finished(self) -> Finished:
        first, last = self._first_token_s, self._last_token_s
        computed = self._decode_compute_us
        return Finished(
            request_id=self.request.request_id,
            finish_reason=self.reply.finish_reason or "cancelled",
            prompt_tokens=self.opening.num_prompt_tokens,
            completion_tokens=self.reply.num_tokens,
            ttft_s=None if first is None else first - self.began_s,
            decode_s=0.0 if first is None or last is None else last - first,
            chain_compute_ms=sum(computed) / len(computed) / 1000 if computed else 0.0,
            cached_tokens=self._cached_tokens or 0,
            drafted_tokens=0 if self.sequence is None else self.sequence.num_drafted_tokens,
            accepted_tokens=0 if self.sequence is None else self.sequence.num_accepted_tokens,
        )

"""The asker's own node's part: it finds the head, and goes on where a placement breaks.

A request is tried on the placement that is ready. When that breaks, the asker is told, and the
request is sent to the head of the next one with what the asker has already; that head prefills it
and the same answer goes on. Whichever PC was lost, the head and the coordinator included, it is
the same few lines that mend it.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

import msgspec

from engine.errors import DaisyError, PipelineBrokenError, RequestCancelledError, first_of
from engine.messages.codec import encode_control
from engine.messages.control import Accepted, Cancel, TextDelta
from engine.messages.deployment import Deployment
from engine.pipeline.answer_so_far import AnswerSoFar
from engine.pipeline.asking import answer_events
from engine.pipeline.blame import is_loss, why_interrupted
from engine.pipeline.patience import Patience, Waits

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from engine.domain import NodeId
    from engine.messages.control import Generate
    from engine.messages.message import Message
    from engine.messages.pool import Term
    from engine.pipeline.head import Head
    from engine.pipeline.live_request import SendToAsker
    from engine.transport.connection import Connection

CANCEL_WITHIN_S = 1.0  # for a head to say how far a stopped answer came
SILENCE_S = 1.0  # of a head whose placement is no longer the pool's; then nothing more comes


class Route(Protocol):
    """What a relay needs to know of its node and pool."""

    def deployment(self) -> Deployment | None:
        """Return the pool's record; None where none is known."""
        ...

    async def changed_from(self, order: tuple[Term, int] | None) -> None:
        """Wait until the record's order is another one.

        Args:
            order: As last seen; None for no record.
        """
        ...

    def own_head(self) -> Head | None:
        """Return the head that runs on this node; None where none does."""
        ...

    async def connect_head(self, node_id: NodeId) -> Connection:
        """Open a connection for one request; the caller closes it.

        Args:
            node_id: Of the head's node.

        Raises:
            TransportError: It can't be reached.
        """
        ...


class _AskerGoneError(Exception):
    """The asker can't be told: not a failure of the chain, whatever its class."""

    def __init__(self, reason: DaisyError) -> None:
        super().__init__(reason.what)
        self.reason = reason


@dataclass(slots=True)
class _Call:
    """One request on its way.

    Attributes:
        send: Reaches the asker.
        so_far: What the asker has.
        patience: What is tried next.
        cancelled: The asker wants no more.
        wait: The wait it is in; cut short when it is cancelled.
        stop: Tells the head that the asker wants no more; None while there is none.
        was_accepted: The head that is tried has taken it.
        is_telling: The asker is being told.
        heard: That head said something, and the asker was told.
    """

    send: SendToAsker
    so_far: AnswerSoFar
    patience: Patience
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    wait: asyncio.Timeout | None = None
    stop: Callable[[], Awaitable[None]] | None = None
    was_accepted: bool = False
    is_telling: bool = False
    heard: asyncio.Event = field(default_factory=asyncio.Event)

    async def tell(self, messages: Iterable[Message]) -> None:
        """Tell the asker.

        Raises:
            _AskerGoneError: It can't be told.
        """
        self.is_telling = True
        try:
            for message in messages:
                await self.send(message)
        except DaisyError as error:
            raise _AskerGoneError(error) from error
        finally:
            self.is_telling = False


class Relay:
    """Sees each request of this node's askers to its end.

    Thread: the node's loop.
    """

    def __init__(self, route: Route, waits: Waits | None = None) -> None:
        """Begin with no requests.

        Args:
            route: To the heads.
            waits: How long to wait for what.
        """
        self._route = route
        self._waits = Waits() if waits is None else waits
        self._calls: dict[str, _Call] = {}

    @property
    def num_active(self) -> int:
        """Requests that have not ended."""
        return len(self._calls)

    async def answer(self, request: Generate, send: SendToAsker, key: str) -> None:
        """Answer one request, whatever becomes of the PCs meanwhile.

        Args:
            request: What is asked; an asker that lost its node says in it what it has already.
            send: Reaches the asker; may be slow.
            key: Names the request in ``cancel``, unlike any other of this node's askers.

        Raises:
            UsageError: The request is wrong, or too long for the context.
            ChatTemplateError: The model has no template, or it fails.
            PlacementError: No model is loaded, or it takes too long.
            RequestError: The model was unloaded or replaced, or the chain broke too often.
            DaisyError: What the asker's ``send`` raised, or nothing came to mend.

        Cancellation: closes the sequence on every stage.
        """
        began_s = _now_s()
        if request.asked_at is None:  # every head must read the same prompt
            now = datetime.now().astimezone().isoformat()
            request = msgspec.structs.replace(request, asked_at=now)
        call = _Call(send, AnswerSoFar(request, began_s), Patience(self._waits, began_s))
        self._calls[key] = call
        try:
            await self._answer(call, key)
        except _AskerGoneError as gone:
            raise gone.reason from gone
        finally:
            del self._calls[key]

    def cancel(self, key: str) -> None:
        """End a request where it is; its asker is told how far it came.

        Args:
            key: As given to ``answer``; nothing happens for one that is not running.
        """
        call = self._calls.get(key)
        if call is None:
            return
        call.cancelled.set()
        if call.wait is not None and not call.wait.expired():
            call.wait.reschedule(0.0)

    # ---- from placement to placement ----------------------------------------------------------

    async def _answer(self, call: _Call, key: str) -> None:
        while (record := await self._next_placement(call)) is not None:
            try:
                await self._try(call, record, key)
            except DaisyError as error:
                if call.cancelled.is_set() or call.so_far.is_finished:
                    break
                call.patience.failed(error, record.epoch, _now_s(), was_accepted=call.was_accepted)
                await self._tell_interrupted(call, error, record)
            else:
                return
        if not call.so_far.is_finished:
            await call.tell((call.so_far.cancelled(),))

    async def _tell_interrupted(self, call: _Call, error: DaisyError, tried: Deployment) -> None:
        """Tell the asker that no more comes for now, and which PC was lost.

        The record says it best, a moment later. Where another placement has to come, nothing is
        lost by waiting for that; where the same one goes on, ``reason_s`` at most.
        """
        if not call.so_far.is_coming:
            return
        until_s = _now_s() + (self._waits.reason_s if is_loss(error) else 0.0)
        while (
            (present := self._route.deployment()) is not None
            and present.epoch == tried.epoch
            and _now_s() < until_s
            and not call.cancelled.is_set()
        ):
            await self._wait(call, present.order, until_s)
        what = why_interrupted(error, tried, present)
        await call.tell(call.so_far.interrupted(what, _now_s()))

    async def _next_placement(self, call: _Call) -> Deployment | None:
        """Wait for a placement to try; None when the asker wants no more.

        Raises:
            DaisyError: There is nothing to wait for.
        """
        while not call.cancelled.is_set():
            record = self._route.deployment()
            choice = call.patience.choose(record, _now_s(), has_begun=call.so_far.has_begun)
            if isinstance(choice, Deployment):
                return choice
            await self._wait(call, None if record is None else record.order, choice)
        return None

    async def _wait(self, call: _Call, order: tuple[Term, int] | None, until_s: float) -> None:
        """Wait for a change of the record, but not for ever and not for an asker that is gone."""
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(until_s) as call.wait:
                    await self._route.changed_from(order)
        finally:
            call.wait = None

    async def _try(self, call: _Call, record: Deployment, key: str) -> None:
        """Have one placement answer, until it has, or it or the asker is gone.

        Raises:
            DaisyError: It could not, or not to the end.
        """
        call.was_accepted, call.stop = False, None
        try:
            async with asyncio.TaskGroup() as group:
                watches = [
                    group.create_task(self._watch_record(call, record.epoch)),
                    group.create_task(_watch_cancel(call)),
                ]
                await self._ask_head(call, record, key)
                for watch in watches:
                    watch.cancel()
        except BaseExceptionGroup as failures:
            error = first_of(failures)
            raise error from failures

    async def _ask_head(self, call: _Call, record: Deployment, key: str) -> None:
        async def take(message: Message) -> None:
            if isinstance(message, Accepted):
                call.was_accepted = True
                call.patience.bind(record)
            elif isinstance(message, TextDelta):
                call.patience.progressed()
            await call.tell(call.so_far.take(message, _now_s()))
            call.heard.set()

        request = call.so_far.request_for(record.epoch)
        head = self._route.own_head()
        if head is not None and head.epoch == record.epoch:

            async def stop() -> None:
                head.cancel(key)

            call.stop = stop
            await head.answer(request, take, key)
        elif record.head is not None:
            await self._ask_far_head(call, record.head, request, take)

    async def _ask_far_head(
        self, call: _Call, node_id: NodeId, request: Generate, take: SendToAsker
    ) -> None:
        connection = await self._route.connect_head(node_id)

        async def stop() -> None:
            await connection.send(encode_control(Cancel(request_id=request.request_id)))

        try:
            await connection.send(encode_control(request))
            call.stop = stop
            async with aclosing(answer_events(connection, request.request_id)) as events:
                async for event in events:
                    await take(event)
        except BaseException:
            connection.abort()  # a goodbye may take a second, and the next head waits for us
            raise
        await connection.close("The answer is complete.")

    async def _watch_record(self, call: _Call, epoch: int) -> None:
        """Give a placement up that is no longer the pool's, once its head says nothing more.

        A head that vanished without a word would otherwise hold the answer up for as long as
        its connection is given.

        Raises:
            PipelineBrokenError: It is so.
        """
        while (record := self._route.deployment()) is not None and record.epoch == epoch:
            await self._route.changed_from(record.order)
        while not await _is_silent(call):
            pass
        raise PipelineBrokenError("A PC that held part of the model went away.")


async def _is_silent(call: _Call) -> bool:
    """Wait for the head's next message; return whether it says nothing. A slow asker is not it."""
    call.heard.clear()
    try:
        async with asyncio.timeout(SILENCE_S):
            await call.heard.wait()
    except TimeoutError:
        return not call.is_telling
    return False


async def _watch_cancel(call: _Call) -> None:
    """Pass on that the asker wants no more, and don't wait long for what the head says to it.

    Raises:
        RequestCancelledError: The head is not reached yet, or says nothing.
    """
    await call.cancelled.wait()
    if call.stop is not None:
        await call.stop()
        await asyncio.sleep(CANCEL_WITHIN_S)
    raise RequestCancelledError("The head did not say how far the answer came.")


def _now_s() -> float:
    return asyncio.get_running_loop().time()

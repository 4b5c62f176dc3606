"""The requests of one connection: begun, cancelled, and ended with it."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.errors import (
    DaisyError,
    PlacementError,
    RemoteProtocolError,
    RequestError,
    TransportError,
)
from engine.messages.codec import encode_control
from engine.messages.control import ErrorReport

if TYPE_CHECKING:
    from engine.messages.control import Cancel, Generate
    from engine.messages.message import Message
    from engine.node.placements import Placements
    from engine.pipeline.relay import Relay
    from engine.transport.link import Link

_logger = logging.getLogger(__name__)


class _AskerGoneError(Exception):
    """The asker's connection ended: unlike one along the chain, nobody is left to be told."""


# Each holds its prompt, a megabyte at most, until it has its turn.
MAX_REQUESTS = 64  # of one connection at once
MAX_REQUESTS_OF_ALL = 512


@dataclass(slots=True)
class RequestCount:
    """How many requests a node has of all its connections.

    Attributes:
        num: Of those that are not answered yet.
    """

    num: int = 0


class Requests:
    """What was asked over one connection and is not answered yet.

    Thread: the node's loop.
    """

    def __init__(
        self,
        connection: Link,
        group: asyncio.TaskGroup,
        placements: Placements,
        relay: Relay | None,
        of_all: RequestCount | None = None,
    ) -> None:
        """Begin with none.

        Args:
            connection: To whoever asks.
            group: Parent of the requests' tasks.
            placements: Has the head, where it is here.
            relay: Follows an answer through the pool; None where the head must be here.
            of_all: The node's, shared by its connections; None for one that has no other.
        """
        self._connection = connection
        self._group = group
        self._placements = placements
        self._relay = relay
        self._of_all = of_all if of_all is not None else RequestCount()
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def begin(self, request: Generate) -> None:
        """Answer a request beside everything else, or say that there are too many.

        Args:
            request: As it came.

        Raises:
            RemoteProtocolError: One of that name runs already.

        Cancellation: safe; it is begun or not.
        """
        name = request.request_id
        if name in self._tasks:
            raise RemoteProtocolError(f"Two requests are called {name!r}.")
        if len(self._tasks) >= MAX_REQUESTS or self._of_all.num >= MAX_REQUESTS_OF_ALL:
            # Nothing more is read meanwhile: whoever does not listen is not asked what else it has.
            await self._turn_away(name)
            return
        task = self._group.create_task(self._answer(request))
        self._tasks[name] = task
        self._of_all.num += 1
        task.add_done_callback(lambda _: self._ended(name))

    def _ended(self, name: str) -> None:
        self._of_all.num -= 1
        self._tasks.pop(name, None)

    def cancel(self, message: Cancel) -> None:
        """End a request where it is; the asker is told how far it came.

        Args:
            message: Names it; nothing happens for one that is not running.
        """
        # The two may have come in one packet: a request's task takes its first step, in which it
        # makes itself known to the head, before what is put behind it here.
        asyncio.get_running_loop().call_soon(self._cancel, message.request_id)

    def _cancel(self, name: str) -> None:
        if name not in self._tasks:
            return
        key = self._key(name)
        if self._relay is not None:
            self._relay.cancel(key)
        elif self._placements.head is not None:
            self._placements.head.cancel(key)

    def end(self) -> None:
        """End all: whoever asked is gone."""
        for task in self._tasks.values():
            task.cancel()

    async def _answer(self, request: Generate) -> None:
        async def send(message: Message) -> None:
            try:
                await self._connection.send(encode_control(message))
            except TransportError as error:
                raise _AskerGoneError(error.what) from error

        key = self._key(request.request_id)
        try:
            if self._relay is not None:
                await self._relay.answer(request, send, key)
            elif self._placements.head is not None:
                await self._placements.head.answer(request, send, key)
            else:
                raise PlacementError(
                    "No model is loaded on this PC.", "Load one, or ask the PC that is the head."
                )
        except _AskerGoneError as error:
            _logger.info("request: the asker is gone, %s", error)
        except DaisyError as error:
            await self._report(error, request.request_id)

    async def _turn_away(self, name: str) -> None:
        error = RequestError(
            f"{len(self._tasks)} questions of yours and {self._of_all.num} in all wait for their "
            "answers already.",
            "Ask again when some of them are answered.",
        )
        await self._report(error, name)

    async def _report(self, error: DaisyError, request_id: str) -> None:
        report = ErrorReport(
            code=error.code, what=error.what, advice=error.advice, request_id=request_id
        )
        try:
            await self._connection.send(encode_control(report))
        except TransportError as lost:
            _logger.info("request: the asker is gone, %s", lost.what)

    def _key(self, request_id: str) -> str:
        """Name a request unlike those of every other connection."""
        return f"{self._connection.address}/{request_id}"

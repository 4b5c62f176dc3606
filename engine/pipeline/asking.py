"""Asking a node: one request, its events, and its end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from engine.errors import RemoteProtocolError, TransportError, rebuilt
from engine.messages.codec import decode, encode_control
from engine.messages.control import (
    Accepted,
    AnswerInterrupted,
    AnswerProgress,
    AnswerResumed,
    Cancel,
    ErrorReport,
    Finished,
    TextDelta,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator
    from typing import TypeAlias

    from engine.messages.control import Generate
    from engine.transport.link import Link

    AnswerEvent: TypeAlias = (
        Accepted | AnswerProgress | TextDelta | AnswerInterrupted | AnswerResumed | Finished
    )

CANCEL_DEADLINE_S = 2.0  # for the node to say how far a stopped answer came


async def ask(connection: Link, request: Generate) -> AsyncIterator[AnswerEvent]:
    """Send a request and give out what comes of it.

    Args:
        connection: To a node of the pool; one request at a time.
        request: What is asked.

    Yields:
        What the node says of it, ``Finished`` last.

    Raises:
        DaisyError: As the node reported it.
        TransportError: The connection ended.

    Cancellation: the request is cancelled, which frees every stage.
    """  # noqa: DOC501 - cancellation is passed on
    await connection.send(encode_control(request))
    is_running = True
    try:
        async for message in answer_events(connection, request.request_id):
            is_running = not isinstance(message, Finished)
            yield message
    except (asyncio.CancelledError, GeneratorExit):
        if is_running:
            await asyncio.shield(_cancel(connection, request.request_id))
        raise


async def answer_events(connection: Link, request_id: str) -> AsyncGenerator[AnswerEvent, None]:
    """Give out what comes of a request that was sent.

    Args:
        connection: Over which it was sent; nobody else receives from it.
        request_id: Its own.

    Yields:
        What the node says of it, ``Finished`` last.

    Raises:
        DaisyError: As the node reported it.
        TransportError: The connection ended.
        RemoteProtocolError: It said what no node says to an asker.

    Cancellation: safe.
    """  # noqa: DOC501 - rebuilt, and passed on
    while True:
        message = decode(await connection.receive())
        match message:
            case ErrorReport():
                raise rebuilt(message.code, message.what, message.advice)
            case (
                Accepted()
                | AnswerProgress()
                | TextDelta()
                | AnswerInterrupted()
                | AnswerResumed()
                | Finished()
            ):
                if message.request_id != request_id:
                    continue  # the rest of one that was cancelled
                yield message
                if isinstance(message, Finished):
                    return
            case _:
                raise RemoteProtocolError(f"The node sent {type(message).__name__} to an asker.")


async def _cancel(connection: Link, request_id: str) -> None:
    try:
        async with asyncio.timeout(CANCEL_DEADLINE_S):
            await connection.send(encode_control(Cancel(request_id=request_id)))
            async for _ in answer_events(connection, request_id):
                pass
    except (TimeoutError, TransportError):
        return  # the nodes are ended next, and with them what they hold

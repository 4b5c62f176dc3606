"""An asker's side of connections."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import engine
from engine.domain import NodeId
from engine.errors import first_of
from engine.messages.control import PROTOCOL_VERSION, SHARD_FORMAT, Hello
from engine.transport.endpoint import Endpoint

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@asynccontextmanager
async def open_asker_endpoint() -> AsyncIterator[Endpoint]:
    """An asker's side of connections, with a group of its own that ends with the context.

    Yields:
        It.

    Raises:
        BaseException: As it was raised in the context, not in a group.
    """
    hello = Hello(
        protocol_version=PROTOCOL_VERSION,
        product_version=engine.__version__,
        shard_format=SHARD_FORMAT,
        node_id=NodeId("asker"),
        role="asker",
    )
    opened: asyncio.Future[Endpoint] = asyncio.get_running_loop().create_future()
    closing = asyncio.Event()

    async def hold() -> None:
        async with asyncio.TaskGroup() as group:
            opened.set_result(Endpoint(hello, group))
            await closing.wait()
            raise _ClosedError

    try:
        async with asyncio.TaskGroup() as outer:
            holder = outer.create_task(_quietly(hold()))
            try:
                yield await opened
            finally:
                closing.set()
                await asyncio.wait([holder])
    except BaseExceptionGroup as group:
        error = first_of(group)
        raise error from group  # who catches an error of ours must find it as it is


class _ClosedError(Exception):
    """Ends a task group and everything in it."""


async def _quietly(coroutine) -> None:  # type: ignore[no-untyped-def] # noqa: ANN001
    try:
        await coroutine
    except* _ClosedError:
        pass

"""An asker's side of connections."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import engine
from engine.domain import NodeId
from engine.messages.control import PROTOCOL_VERSION, SHARD_FORMAT, Hello
from engine.transport.endpoint import Endpoint

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@asynccontextmanager
async def open_asker_endpoint() -> AsyncIterator[Endpoint]:
    """An asker's side of connections, with a group of its own that ends with the context.

    Yields:
        It.
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

    async with asyncio.TaskGroup() as outer:
        holder = outer.create_task(_quietly(hold()))
        try:
            yield await opened
        finally:
            closing.set()
            await asyncio.wait([holder])


class _ClosedError(Exception):
    """Ends a task group and everything in it."""


async def _quietly(coroutine) -> None:  # type: ignore[no-untyped-def] # noqa: ANN001
    try:
        await coroutine
    except* _ClosedError:
        pass

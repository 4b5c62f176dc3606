"""A task group for what runs beside a command and ends with it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from engine.errors import first_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@asynccontextmanager
async def open_group() -> AsyncIterator[asyncio.TaskGroup]:
    """A group of tasks that are ended when the context is left, whatever they do.

    Yields:
        It.

    Raises:
        BaseException: As it was raised in the context, not in a group.
    """
    opened: asyncio.Future[asyncio.TaskGroup] = asyncio.get_running_loop().create_future()
    closing = asyncio.Event()

    async def hold() -> None:
        async with asyncio.TaskGroup() as group:
            opened.set_result(group)
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

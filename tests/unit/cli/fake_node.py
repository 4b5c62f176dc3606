"""A node that does as a test says, reached over a real connection the way commands reach one."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import msgspec

import engine
from engine.domain import NodeId
from engine.errors import TransportError, first_of
from engine.messages.codec import decode, encode_control
from engine.messages.control import (
    PROTOCOL_VERSION,
    SHARD_FORMAT,
    AskPoolStatus,
    Hello,
    PoolStatusReport,
)
from engine.pool.node_folder import NodeFolder, Reach
from engine.transport.control_port import ControlPort
from tests.unit.cli.records import pool_status

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from engine.messages.message import Message

    Send = Callable[[Message], Awaitable[None]]
    Script = Callable[[Message, Send], Awaitable[None]]


class FakeNode:
    """Takes down what it is sent, and answers by a script."""

    def __init__(self, script: Script) -> None:
        self.heard: list[Message] = []
        self.left = asyncio.Event()  # an asker's connection has ended
        self.status = pool_status()
        self._script = script

    async def attend(self, connection) -> None:
        async def send(message: Message) -> None:
            await connection.send(encode_control(message))

        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    message = decode(await connection.receive())
                    self.heard.append(message)
                    group.create_task(self._answer(message, send))
        except* TransportError:
            self.left.set()

    async def _answer(self, message: Message, send: Send) -> None:
        if isinstance(message, AskPoolStatus):
            await send(PoolStatusReport(status=self.status))
        else:
            await self._script(message, send)

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until something is so, five seconds at most."""
        async with asyncio.timeout(5):
            while not is_so():  # noqa: ASYNC110 - what is looked at tells nobody that it changed
                await asyncio.sleep(0.01)


@asynccontextmanager
async def running(data: Path, script: Script) -> AsyncIterator[FakeNode]:
    """Run one whose address stands in a data folder.

    Yields:
        It.
    """
    hello = Hello(
        protocol_version=PROTOCOL_VERSION,
        product_version=engine.__version__,
        shard_format=SHARD_FORMAT,
        node_id=NodeId("aaaaaa1"),
    )
    node = FakeNode(script)
    try:
        async with asyncio.TaskGroup() as group:
            port = ControlPort("sesame", hello, node.attend, group)
            await port.listen()
            reach = Reach(port.number, port.token, os.getpid(), hello.node_id)
            folder = NodeFolder(data / "node")
            (data / "node" / "reach.json").write_bytes(msgspec.json.encode(reach))
            try:
                yield node
            finally:
                folder.close()
                await port.close()
    except BaseExceptionGroup as error:
        raise first_of(error) from error

"""Three stages joined by real websockets, over lines that can be cut or fall silent."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from engine.errors import DaisyError
from engine.messages.chain import StageFailed
from engine.messages.codec import decode, peek_type
from engine.pipeline.stage_server import STAGE_FRAMES, StageServer
from engine.transport.session import Liveness
from tests.paired import endpoint_of
from tests.unit.pipeline.fake_process import FakeProcess
from tests.unit.pipeline.frames import EPOCH

if TYPE_CHECKING:
    from engine.transport.connection import Connection

LIVENESS = Liveness(hello_within_s=1.0, ping_after_s=0.3, dead_after_s=1.2)


class Line:
    """A TCP line between two PCs, with its own port.

    Attributes:
        is_silent: What is sent is swallowed, in both directions; the sockets stay open.
    """

    def __init__(self) -> None:
        self.is_silent = False
        self._writers: list[asyncio.StreamWriter] = []
        self._target = 0
        self._server: asyncio.Server | None = None
        self._group: asyncio.TaskGroup | None = None

    async def open(self, target: int, group: asyncio.TaskGroup) -> str:
        self._target, self._group = target, group
        self._server = await asyncio.start_server(self._join, "127.0.0.1", 0)
        return f"wss://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        self._writers += [writer, far_writer]
        self._group.create_task(self._pump(reader, far_writer))
        self._group.create_task(self._pump(far_reader, writer))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                if not self.is_silent:
                    writer.write(data)
        if not self.is_silent:
            writer.close()

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    def close(self) -> None:
        self._server.close()
        self.cut()


class Node:
    """One PC of the chain: a stage server, and whoever connects to it.

    Attributes:
        failures: What reached the head that is here.
    """

    def __init__(self, index: int, group: asyncio.TaskGroup) -> None:
        self.index = index
        self.process = FakeProcess()
        names = [f"node-{i}" for i in range(3)]
        self.endpoint = endpoint_of(names[index], group, *names, liveness=LIVENESS)
        self.failures: list[StageFailed] = []
        self.changed = asyncio.Event()
        self.links: list[Connection] = []
        self._group = group

    async def listen(self) -> None:
        self._listener = await self.endpoint.listen("127.0.0.1", 0, self._attend)

    @property
    def port(self) -> int:
        return self._listener.port

    async def join(self, next_address: str | None, head_address: str | None) -> None:
        next_link = await self._connect(next_address)
        head_link = await self._connect(head_address)
        self.server = StageServer(
            self.process,
            self.index,
            EPOCH,
            None if next_link is None else next_link.send,
            self._own_head if head_link is None else head_link.send,
        )
        loops = [self.server.run_loop()]
        if next_link is not None:
            loops.append(self.server.watch_loop(next_link.receive))
        if head_link is not None:
            loops.append(self.server.watch_head_loop(head_link.receive))
        for loop in loops:
            self._group.create_task(_quietly(loop))

    def kill(self) -> None:
        """As the system does it: every socket is closed, nobody is told."""
        for link in self.links:
            link.abort()

    async def wait_for_failure(self) -> StageFailed:
        while not self.failures:
            self.changed.clear()
            await self.changed.wait()
        return self.failures[0]

    async def _connect(self, address: str | None) -> Connection | None:
        if address is None:
            return None
        link = await self.endpoint.connect(address, None)
        self.links.append(link)
        return link

    async def _attend(self, connection: Connection) -> None:
        self.links.append(connection)
        while True:
            frame = await connection.receive()
            if peek_type(frame) in STAGE_FRAMES:
                with suppress(DaisyError):
                    await self.server.accept(frame, connection.send)
            else:
                await self._own_head(frame)

    async def _own_head(self, frame: bytes) -> None:
        await asyncio.sleep(0)
        message = decode(frame)
        if isinstance(message, StageFailed):
            self.failures.append(message)
            self.changed.set()


async def _quietly(loop) -> None:
    with suppress(DaisyError):
        await loop


class Chain:
    """Three nodes.

    Attributes:
        nodes: In order.
        lines: By the stages they join; ``(2, 0)`` is the last one's to the head.
    """

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self.nodes = [Node(index, group) for index in range(3)]
        self.lines = {ends: Line() for ends in ((0, 1), (1, 2), (1, 0), (2, 0))}
        self._group = group

    async def open(self) -> None:
        for node in self.nodes:
            await node.listen()
        addresses = {
            ends: await line.open(self.nodes[ends[1]].port, self._group)
            for ends, line in self.lines.items()
        }
        for node in reversed(self.nodes):
            index = node.index
            await node.join(addresses.get((index, index + 1)), addresses.get((index, 0)))

    def close(self) -> None:
        for node in self.nodes:
            node.kill()
        for line in self.lines.values():
            line.close()


@asynccontextmanager
async def websocket_chain():
    """Run a chain.

    Yields:
        The chain.
    """
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        chain = Chain(group)
        stand = group.create_task(_stand(chain))
        await chain.open()
        yield chain
        stand.cancel()
        raise _OverError


class _OverError(Exception):
    """Ends every task of a test."""


async def _stand(chain: Chain) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        chain.close()


def run(scenario) -> None:
    """Run a scenario of a chain."""

    async def over() -> None:
        async with websocket_chain() as chain:
            await scenario(chain)

    try:
        asyncio.run(over())
    except* _OverError:
        pass

"""A pool of node processes that stays while tests ask it things, from one event loop."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psutil

from engine.cli.local_pool import LocalPool, PoolOptions, open_local_pool
from engine.cli.output import Output
from engine.cli.preparation import Division, shards_for
from engine.messages.control import (
    Accepted,
    Finished,
    Generate,
    TextDelta,
)
from engine.messages.request_body import RequestBody, as_generate
from engine.pipeline.asking import ask

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from pathlib import Path

    from engine.pipeline.shard_folder import ShardFolder
    from engine.transport.control_port import ControlConnection

TEST_S = 90.0


@dataclass(frozen=True)
class Answer:
    """A finished answer."""

    text: str
    token_ids: list[int]
    prompt_tokens: int
    seed: int
    finish_reason: str


def request(**fields: Any) -> Generate:
    """Return a request as a program would write its body."""
    return as_generate(RequestBody(**fields), uuid.uuid4().hex)


def chat(text: str, **fields: Any) -> Generate:
    return request(messages=[{"role": "user", "content": text}], **fields)


async def answered(connection: ControlConnection, asked: Generate) -> Answer:
    """Ask, and take the whole answer."""
    pieces: list[TextDelta] = []
    accepted = end = None
    async for event in ask(connection, asked):
        match event:
            case Accepted():
                accepted = event
            case TextDelta():
                assert event.number == len(pieces)
                pieces.append(event)
            case Finished():
                end = event
    assert accepted is not None
    assert end is not None
    ids = [i for piece in pieces for i in piece.token_ids]
    assert end.completion_tokens == len(ids)
    assert end.prompt_tokens == accepted.prompt_tokens
    text = "".join(piece.text for piece in pieces)
    return Answer(text, ids, end.prompt_tokens, accepted.seed, end.finish_reason)


class RunningPool:
    """Nodes and stages in processes, asked from a loop that runs while a test waits for it."""

    def __init__(self, folder: ShardFolder, options: PoolOptions) -> None:
        self.folder = folder
        self._runner = asyncio.Runner()
        loop = self._runner.get_loop()
        self._closing = asyncio.Event()
        self._opened: asyncio.Future[None] = loop.create_future()
        self.pool: LocalPool
        self._connections: list[ControlConnection] = []
        self._holder = loop.create_task(self._hold(folder, options))
        self.run(self._ready())

    def run(self, coroutine: Coroutine[Any, Any, Any], within_s: float = TEST_S) -> Any:
        """Run one test's coroutine."""
        return self._runner.run(asyncio.wait_for(coroutine, within_s))

    def ask(self, asked: Generate, within_s: float = TEST_S) -> Answer:
        """Ask on a connection of its own."""
        return self.run(self.asked(asked), within_s)

    async def asked(self, asked: Generate) -> Answer:
        connection = await self.connect()
        try:
            return await answered(connection, asked)
        finally:
            await connection.close("Done.")

    async def connect(self, stage: int = 0) -> ControlConnection:
        """Connect to the node of a stage."""
        connection = await self.pool.nodes[stage].connect()
        self._connections.append(connection)
        return connection

    def node(self, stage: int) -> psutil.Process:
        return psutil.Process(self.pool.nodes[stage].process.pid)

    def stage_process(self, stage: int) -> psutil.Process:
        (process,) = self.node(stage).children()
        return process

    def processes(self) -> list[psutil.Process]:
        nodes = [self.node(i) for i in range(len(self.pool.nodes))]
        return [*nodes, *(child for node in nodes for child in node.children(recursive=True))]

    def close(self) -> None:
        """End everything, and see that it ended."""
        processes = self.processes_alive()
        self._closing.set()
        self.run(self._ended())
        self._runner.close()
        _, alive = psutil.wait_procs(processes, 5)
        assert not alive

    def processes_alive(self) -> list[psutil.Process]:
        found: list[psutil.Process] = []
        for node in self.pool.nodes:
            try:
                process = psutil.Process(node.process.pid)
                found += [process, *process.children(recursive=True)]
            except psutil.NoSuchProcess:
                continue
        return found

    async def _ready(self) -> None:
        await asyncio.wait([self._opened, self._holder], return_when=asyncio.FIRST_COMPLETED)
        if self._holder.done():
            await self._holder

    async def _ended(self) -> None:
        await self._holder

    async def _hold(self, folder: ShardFolder, options: PoolOptions) -> None:
        async with open_local_pool(folder, options) as pool:
            self.pool = pool
            self._opened.set_result(None)
            await self._closing.wait()
            for connection in self._connections:
                await connection.close("The test is over.")


def shards(source: Path | None, division: Division, data_dir: Path) -> ShardFolder:
    """Return a model's shards, made now or found as they were made before."""
    made = shards_for(
        None if source is None else str(source), division, data_dir, Output(as_json=False)
    )
    return asyncio.run(made)

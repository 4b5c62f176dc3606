"""One node: the composition root of everything a PC does for the pool.

Builds the parts from a placement and joins them; decides nothing itself. All state is owned by
the loop ``run_node`` runs on.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import engine
from engine.domain import NodeId, SampledTokens
from engine.errors import (
    DaisyError,
    ModelNotFoundError,
    PlacementError,
    RemoteProtocolError,
    TransportError,
    first_of,
)
from engine.messages.codec import decode, encode_control, peek_type
from engine.messages.control import (
    PROTOCOL_VERSION,
    SHARD_FORMAT,
    BatchFailed,
    Cancel,
    ErrorReport,
    Generate,
    Hello,
    MessageType,
    Placement,
    StageFailed,
    StageReady,
)
from engine.pipeline.chat_text import load_chat_text
from engine.pipeline.head import Head
from engine.pipeline.placed_stage import PlacedStage, own_place, run_stage
from engine.pipeline.shard_folder import ShardFolder, open_shard_folder
from engine.pipeline.stage_server import STAGE_FRAMES
from engine.pool.part import PoolPart
from engine.transport.endpoint import Endpoint

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from engine.messages.control import StagePlace
    from engine.messages.message import Message
    from engine.pool.part import PoolOptions
    from engine.transport.connection import Connection

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """How one node runs.

    Attributes:
        node_id: Its name in placements.
        host: Address to listen on.
        port: 0 lets the system choose.
        shard_folders: Where its shards lie; found by the SHA-256 of their manifests.
        cpus: Processors its stage may use; None for all.
        pool: How it takes part in the pool; None for a node that is told everything.
    """

    node_id: NodeId
    host: str
    port: int
    shard_folders: tuple[Path, ...]
    cpus: tuple[int, ...] | None = None
    pool: PoolOptions | None = None


class _AskerGoneError(Exception):
    """The asker's connection ended: unlike one along the chain, nobody is left to be told."""


@dataclass(slots=True)
class _Running:
    """One placement this node takes part in."""

    stage: PlacedStage
    head: Head | None
    ended: asyncio.Event = field(default_factory=asyncio.Event)


async def run_node(
    options: NodeOptions, on_listening: Callable[[str], None], stop: asyncio.Event
) -> None:
    """Run a node until it is told to stop.

    Args:
        options: How.
        on_listening: Told the address, ``ws://host:port``, once peers may connect.
        stop: Set from outside to end the node in good order.

    Raises:
        PortInUseError: The port is taken.
        ModelNotFoundError: A shard folder is none.

    Cancellation: ends the stage process and closes all connections.
    """
    folders = {f.manifest_sha256: f for f in map(open_shard_folder, options.shard_folders)}
    async with asyncio.TaskGroup() as group:
        endpoint = Endpoint(_hello(options.node_id), group)
        node = _Node(options, folders, endpoint, group)
        listener = await endpoint.listen(options.host, options.port, node.attend)
        address = f"ws://{options.host}:{listener.port}"
        membership = None
        if options.pool is not None:
            node.pool = PoolPart(options.pool, endpoint, listener.port)
            membership = group.create_task(node.pool.run(node.attend))
        on_listening(address)
        await stop.wait()
        if node.pool is not None and membership is not None:
            await node.pool.leave()
            membership.cancel()
        await node.end_placement()
        await listener.close()


def _hello(node_id: NodeId) -> Hello:
    return Hello(
        protocol_version=PROTOCOL_VERSION,
        product_version=engine.__version__,
        shard_format=SHARD_FORMAT,
        node_id=node_id,
        role="node",
    )


class _Node:
    def __init__(
        self,
        options: NodeOptions,
        folders: dict[str, ShardFolder],
        endpoint: Endpoint,
        group: asyncio.TaskGroup,
    ) -> None:
        self._options = options
        self._folders = folders
        self._endpoint = endpoint
        self._group = group
        self._running: _Running | None = None
        self._stack = AsyncExitStack()
        self._placing = asyncio.Lock()
        self.pool: PoolPart | None = None

    # ---- connections ------------------------------------------------------------------------

    async def attend(self, connection: Connection) -> None:
        """Serve one peer until it leaves; its requests end with it.

        Raises:
            DaisyError: The peer left, or broke the protocol.
        """
        try:
            await self._attend(connection)
        except BaseExceptionGroup as group:
            error = first_of(group)
            raise error from group  # the endpoint knows what each error means

    async def _attend(self, connection: Connection) -> None:
        async with asyncio.TaskGroup() as requests:
            tasks: dict[str, asyncio.Task[None]] = {}
            try:
                while True:
                    await self._dispatch(await connection.receive(), connection, requests, tasks)
            finally:
                if self.pool is not None:
                    self.pool.detach(connection)
                for task in tasks.values():
                    task.cancel()

    async def _dispatch(
        self,
        frame: bytes,
        connection: Connection,
        requests: asyncio.TaskGroup,
        tasks: dict[str, asyncio.Task[None]],
    ) -> None:
        kind = peek_type(frame)
        running = self._running
        if kind in STAGE_FRAMES:
            if running is not None:
                decode(frame)  # what breaks a rule costs its sender the connection, not the stage
                await self._accept(running, frame)
        elif kind is MessageType.SAMPLED_TOKENS:
            if running is not None and running.head is not None:
                self._take_sampled(running.head, frame)
        elif kind is not None:
            message = decode(frame)
            if self.pool is None or not await self.pool.take(message, connection):
                await self._dispatch_control(message, connection, requests, tasks)

    async def _dispatch_control(
        self,
        message: object,
        connection: Connection,
        requests: asyncio.TaskGroup,
        tasks: dict[str, asyncio.Task[None]],
    ) -> None:
        match message:
            case Generate():
                if message.request_id in tasks:
                    raise RemoteProtocolError(f"Two requests are called {message.request_id!r}.")
                task = requests.create_task(self._answer(message, connection))
                tasks[message.request_id] = task
                task.add_done_callback(lambda _: tasks.pop(message.request_id, None))
            case Cancel():
                if message.request_id in tasks and self._running and self._running.head:
                    self._running.head.cancel(_key(connection, message.request_id))
            case Placement():
                requests.create_task(self._place(message, connection))
            case BatchFailed() | StageFailed():
                if self._running is not None and self._running.head is not None:
                    self._running.head.on_failure(message)
            case _:
                raise RemoteProtocolError(
                    f"{type(message).__name__} was sent to a node that did not ask for it."
                )

    async def _accept(self, running: _Running, frame: bytes) -> None:
        try:
            await running.stage.server.accept(frame)
        except RemoteProtocolError:
            raise
        except DaisyError as error:
            # The stage's own loop has told the head; the sender's connection is not at fault.
            _logger.info("stage: a frame was dropped, %s", error.what)

    @staticmethod
    def _take_sampled(head: Head, frame: bytes) -> None:
        tokens = decode(frame)
        if isinstance(tokens, SampledTokens):
            head.on_sampled(tokens, frame)

    # ---- requests ---------------------------------------------------------------------------

    async def _answer(self, request: Generate, connection: Connection) -> None:
        async def send(message: Message) -> None:
            try:
                await connection.send(encode_control(message))
            except TransportError as error:
                raise _AskerGoneError(error.what) from error

        try:
            if self._running is None or self._running.head is None:
                raise PlacementError(
                    "No model is loaded on this PC.", "Load one, or ask the PC that is the head."
                )
            key = _key(connection, request.request_id)
            await self._running.head.answer(request, send, key)
        except _AskerGoneError as error:
            _logger.info("request: the asker is gone, %s", error)
        except DaisyError as error:
            await self._report(connection, error, request.request_id)

    @staticmethod
    async def _report(connection: Connection, error: DaisyError, request_id: str) -> None:
        report = ErrorReport(
            code=error.code, what=error.what, advice=error.advice, request_id=request_id
        )
        try:
            await connection.send(encode_control(report))
        except TransportError as lost:
            _logger.info("request: the asker is gone, %s", lost.what)

    # ---- placements -------------------------------------------------------------------------

    async def _place(self, placement: Placement, connection: Connection) -> None:
        """Carry out a placement and tell the placer how it went."""  # noqa: DOC501 - passed on
        async with self._placing:
            answer: StageReady | StageFailed
            index = 0
            is_ours = False  # what is not for this node must not end what runs on it
            try:
                place = own_place(placement, self._options.node_id)
                index = place.stage_index
                is_ours = True
                await self.end_placement()
                stage = await self._start(placement, place)
                answer = StageReady(
                    epoch=placement.epoch, stage_index=index, description=stage.description
                )
            except asyncio.CancelledError:
                # The placer left before it was told; nobody would ask for what was loaded.
                await asyncio.shield(self.end_placement())
                raise
            except DaisyError as error:
                if is_ours:
                    await self.end_placement()
                answer = StageFailed(
                    epoch=placement.epoch,
                    stage_index=index,
                    code=error.code,
                    what=error.what,
                    advice=error.advice,
                )
            try:
                await connection.send(encode_control(answer))
            except TransportError as error:
                _logger.info("placement: the placer is gone, %s", error.what)

    async def _start(self, placement: Placement, place: StagePlace) -> PlacedStage:
        folder = self._folders.get(placement.manifest_sha256)
        if folder is None:
            raise ModelNotFoundError(
                f"This PC has no shards named {placement.manifest_sha256[:12]}.",
                "Copy or split the model there first.",
            )
        head: Head | None = None

        async def send_own_head(frame: bytes) -> None:
            message = decode(frame)
            if head is None:
                return
            if isinstance(message, SampledTokens):
                head.on_sampled(message, frame)
            elif isinstance(message, BatchFailed | StageFailed):
                head.on_failure(message)

        stage = await self._stack.enter_async_context(
            run_stage(placement, place, folder, self._endpoint, send_own_head, self._options.cpus)
        )
        tasks = await self._stack.enter_async_context(_CancelledAtEnd(self._group))
        if place.stage_index == 0:
            text = await asyncio.to_thread(load_chat_text, folder)
            head = Head(text, placement, stage.server.accept)
            tasks.start(head.run_loop())
        tasks.start(_logged(stage.server.run_loop()))
        if stage.next_link is not None:
            tasks.start(_logged(stage.server.watch_loop(stage.next_link.receive)))
        self._running = _Running(stage, head)
        return stage

    async def end_placement(self) -> None:
        """End the running placement, if there is one: its requests, its process, its links."""
        running, self._running = self._running, None
        if running is not None and running.head is not None:
            running.head.stop()
        stack, self._stack = self._stack, AsyncExitStack()
        await stack.aclose()


def _key(connection: Connection, request_id: str) -> str:
    """Name a request unlike those of every other connection."""
    return f"{connection.address}/{request_id}"


class _CancelledAtEnd:
    """Tasks of the node's group that end with a placement."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> _CancelledAtEnd:
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def start(self, coroutine) -> None:  # type: ignore[no-untyped-def] # noqa: ANN001
        self._tasks.append(self._group.create_task(coroutine))


async def _logged(coroutine) -> None:  # type: ignore[no-untyped-def] # noqa: ANN001
    """Run a loop whose end is reported elsewhere."""
    try:
        await coroutine
    except DaisyError as error:
        _logger.info("stage: ended, %s", error.what)

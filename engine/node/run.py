"""One node: the parts put together, and each message of a connection brought to its part.

Decides nothing itself. All state is owned by the loop ``run_node`` runs on.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import engine
from engine.domain import NodeId, SampledTokens
from engine.errors import (
    DaisyError,
    ModelNotFoundError,
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
    Generate,
    Hello,
    MessageType,
    Placement,
    StageFailed,
    StageReady,
)
from engine.node.placements import Placements
from engine.node.pool_host import PoolHost
from engine.node.requests import Requests
from engine.pipeline.placed_stage import own_place
from engine.pipeline.shard_folder import ShardFolder, open_shard_folder
from engine.pipeline.stage_server import STAGE_FRAMES
from engine.pool.own_port import listen
from engine.transport.connection import Connection
from engine.transport.control_port import ControlConnection, ControlPort
from engine.transport.endpoint import Endpoint

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from engine.pipeline.relay import Relay
    from engine.pool.dialler import Attend
    from engine.pool.part import PoolOptions, PoolPart
    from engine.transport.endpoint import Listener
    from engine.transport.link import Link

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """How one node runs.

    Attributes:
        node_id: Its name in placements.
        host: Address to listen on.
        port: 0 for the one of the last start in a pool, or any.
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


class Listening(NamedTuple):
    """Where a node is reached."""

    address: str  # ``ws://host:port``, by other nodes
    control_port: int  # on loopback, by programs of this PC
    token: str  # that opens it


async def run_node(
    options: NodeOptions, on_listening: Callable[[Listening], None], stop: asyncio.Event
) -> None:
    """Run a node until it is told to stop.

    Args:
        options: How.
        on_listening: Told where, once peers and programs may connect.
        stop: Set from outside to end the node in good order.

    Raises:
        PortInUseError: The port is taken.
        ModelNotFoundError: A shard folder is none.

    Fails with a group that holds ``IdentityCopiedError`` where another PC runs with a copy of this
    node's folder, which has a new identity then.

    Cancellation: ends the stage process and closes all connections.
    """
    folders = {f.manifest_sha256: f for f in map(open_shard_folder, options.shard_folders)}
    async with asyncio.TaskGroup() as group:
        hello = _hello(options.node_id)
        endpoint = Endpoint(hello, group)
        node = _Node(options, folders, endpoint, group)
        control = ControlPort(secrets.token_hex(16), hello, node.attend, group)
        listener = await _listen(options, endpoint, node.attend)
        membership = None
        if options.pool is not None:
            node.join(options.pool, listener.port)
            membership = group.create_task(node.run_pool())
        await control.listen()
        address = f"ws://{options.host}:{listener.port}"
        on_listening(Listening(address, control.number, control.token))
        await stop.wait()
        await control.close()
        if node.pool is not None and membership is not None:
            await node.pool.part.leave()
            membership.cancel()
        await node.placements.end()
        await listener.close()


async def _listen(options: NodeOptions, endpoint: Endpoint, attend: Attend) -> Listener:
    if options.pool is None:
        return await endpoint.listen(options.host, options.port, attend)
    return await listen(endpoint, options.host, options.port, options.pool.folder, attend)


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
        self.placements = Placements(options.node_id, endpoint, group, options.cpus)
        self.pool: PoolHost | None = None

    def join(self, options: PoolOptions, port: int) -> None:
        """Make this node one of a pool."""
        self.pool = PoolHost(options, self._endpoint, port, self.placements)

    async def run_pool(self) -> None:
        """Take part in the pool until cancelled."""
        if self.pool is not None:
            await self.pool.run(self.attend)

    # ---- connections ------------------------------------------------------------------------

    async def attend(self, connection: Link) -> None:
        """Serve one node, or one program of this PC, until it leaves; its requests end with it.

        Raises:
            DaisyError: The peer left, or broke the protocol.
        """
        try:
            await self._attend(connection)
        except BaseExceptionGroup as group:
            error = first_of(group)
            raise error from group  # the endpoint knows what each error means

    async def _attend(self, connection: Link) -> None:
        async with asyncio.TaskGroup() as group:
            requests = Requests(connection, group, self.placements, self._relay_for(connection))
            try:
                while True:
                    await self._dispatch(await connection.receive(), connection, requests, group)
            finally:
                if self.pool is not None and isinstance(connection, Connection):
                    self.pool.part.detach(connection)
                requests.end()

    def _relay_for(self, connection: Link) -> Relay | None:
        """Return who follows an answer through the pool: for askers only, else it went round."""
        is_asker = isinstance(connection, ControlConnection)
        return self.pool.relay if self.pool is not None and is_asker else None

    async def _dispatch(
        self,
        frame: bytes,
        connection: Link,
        requests: Requests,
        group: asyncio.TaskGroup,
    ) -> None:
        kind = peek_type(frame)
        placements = self.placements
        if kind in STAGE_FRAMES:
            if placements.stage is not None:
                decode(frame)  # what breaks a rule costs its sender the connection, not the stage
                await self._accept(frame, connection)
        elif kind is MessageType.SAMPLED_TOKENS:
            tokens = decode(frame)
            if placements.head is not None and isinstance(tokens, SampledTokens):
                placements.head.on_sampled(tokens, frame)
        elif kind is not None:
            await self._dispatch_control(decode(frame), connection, requests, group)

    async def _dispatch_control(
        self,
        message: object,
        connection: Link,
        requests: Requests,
        group: asyncio.TaskGroup,
    ) -> None:
        match message:
            case Generate():
                requests.begin(message)
            case Cancel():
                requests.cancel(message)
            case BatchFailed() | StageFailed():
                self.placements.on_failure(message, connection.peer.node_id)
        if self.pool is not None and await self._is_pools(self.pool.part, message, connection):
            return
        match message:
            case Generate() | Cancel() | BatchFailed() | StageFailed():
                pass
            case Placement() if self.pool is None:
                group.create_task(self._place(message, connection))
            case _:
                raise RemoteProtocolError(
                    f"{type(message).__name__} was sent to a node that did not ask for it."
                )

    @staticmethod
    async def _is_pools(part: PoolPart, message: object, connection: Link) -> bool:
        if isinstance(connection, Connection):
            return await part.take(message, connection)
        return await part.serve(message, connection)

    async def _accept(self, frame: bytes, connection: Link) -> None:
        stage = self.placements.stage
        if stage is None:
            return
        try:
            await stage.server.accept(frame, connection.send)
        except RemoteProtocolError:
            raise
        except DaisyError as error:
            # The stage's own loop has told the head; the sender's connection is not at fault.
            _logger.info("stage: a frame was dropped, %s", error.what)

    # ---- placements of a node that is in no pool ----------------------------------------------

    async def _place(self, placement: Placement, connection: Link) -> None:
        """Carry out a placement and tell the placer how it went."""
        answer: StageReady | StageFailed
        index = 0
        try:
            index = own_place(placement, self._options.node_id).stage_index
            description = await self.placements.load(placement, self._shards(placement))
            answer = StageReady(epoch=placement.epoch, stage_index=index, description=description)
        except DaisyError as error:
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

    def _shards(self, placement: Placement) -> ShardFolder:
        folder = self._folders.get(placement.manifest_sha256)
        if folder is None:
            raise ModelNotFoundError(
                f"This PC has no shards named {placement.manifest_sha256[:12]}.",
                "Copy or split the model there first.",
            )
        return folder

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
from engine.messages.chain import BatchFailed, Placement, StageFailed, StageReady, own_places
from engine.messages.codec import decode, encode_control, peek_type
from engine.messages.control import (
    PROTOCOL_VERSION,
    SHARD_FORMAT,
    Cancel,
    ErrorReport,
    Generate,
    Hello,
    MessageType,
)
from engine.messages.doctor_control import TryDevices, TryNetwork
from engine.node.doctor_desk import DoctorDesk
from engine.node.placements import Placements
from engine.node.pool_host import PoolHost
from engine.node.requests import RequestCount, Requests
from engine.pipeline.shard_folder import ShardFolder, open_shard_folder
from engine.pipeline.stage_server import STAGE_FRAMES
from engine.pool.own_port import Ways, listen
from engine.pool.reception import Reception
from engine.pool.roster_desk import RosterDesk
from engine.pool.roster_keeper import RosterKeeper
from engine.transport.connection import Connection
from engine.transport.control_port import ControlConnection, ControlPort
from engine.transport.endpoint import SCHEME, Endpoint

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from engine.messages.message import Message
    from engine.pipeline.draft_keeper import DraftChoice
    from engine.pipeline.relay import Relay
    from engine.pool.dialler import Attend
    from engine.pool.node_folder import NodeFolder
    from engine.pool.part import PoolOptions, PoolPart
    from engine.transport.endpoint import Listener
    from engine.transport.link import Link

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """How one node runs.

    Attributes:
        folder: Who it is and whom it trusts; held by it.
        host: Address to listen on.
        port: 0 for the one of the last start in a pool, or any.
        shard_folders: Where its shards lie; found by the SHA-256 of their manifests.
        cpus: Processors its stage may use; None for all.
        draft: Which draft model guesses where it is the head.
        pool: How it takes part in the pool; None for a node that is told everything.
    """

    folder: NodeFolder
    host: str
    port: int
    shard_folders: tuple[Path, ...]
    cpus: tuple[int, ...] | None = None
    draft: DraftChoice = "none"
    pool: PoolOptions | None = None


class Listening(NamedTuple):
    """Where a node is reached."""

    address: str  # ``wss://host:port``, by other nodes
    control_port: int  # on loopback, by programs of this PC
    token: str  # that opens it
    node_id: NodeId


async def run_node(
    options: NodeOptions, on_listening: Callable[[Listening], None], stop: asyncio.Event
) -> bool:
    """Run a node until it is told to stop, or has joined or left a pool.

    Args:
        options: How.
        on_listening: Told where, once peers and programs may connect.
        stop: Set from outside to end the node in good order.

    Returns:
        Whether it is to start again: its folder says that it is in another pool now.

    Raises:
        PortInUseError: The port is taken.
        ModelNotFoundError: A shard folder is none.

    Fails with a group that holds ``IdentityCopiedError`` where another PC runs with a copy of this
    node's folder, which has a new identity then.

    Cancellation: ends the stage process and closes all connections.
    """
    folders = {f.manifest_sha256: f for f in map(open_shard_folder, options.shard_folders)}
    keeper = RosterKeeper(options.folder)
    reception = Reception(keeper)
    desk = RosterDesk(keeper, reception)
    async with asyncio.TaskGroup() as group:
        hello = _hello(options.folder.node_id)
        endpoint = Endpoint(hello, group, keeper.trust)
        node = _Node(options, folders, endpoint, desk, group)
        control = ControlPort(secrets.token_hex(16), hello, node.attend, group)
        listener = await _listen(options, endpoint, node.attend, reception)
        tasks = [group.create_task(reception.run())]
        if options.pool is not None:
            part = node.join(options.pool, keeper, listener.port)
            desk.look_around(part)
            reception.on_window = part.say_joinable
            tasks.append(group.create_task(node.run_pool()))
        await control.listen()
        address = f"{SCHEME}://{options.host}:{listener.port}"
        on_listening(Listening(address, control.number, control.token, options.folder.node_id))
        await _first_of(stop, desk.moved)
        await control.close()
        if node.pool is not None:
            await node.pool.part.leave()
        for task in tasks:
            task.cancel()
        await node.placements.end()
        await listener.close()
    return desk.moved.is_set() and not stop.is_set()


async def _first_of(*events: asyncio.Event) -> None:
    async with asyncio.TaskGroup() as group:
        waits = [group.create_task(event.wait()) for event in events]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()


async def _listen(
    options: NodeOptions, endpoint: Endpoint, attend: Attend, reception: Reception
) -> Listener:
    if options.pool is None:
        return await endpoint.listen(options.host, options.port, attend, reception.attend)
    ways = Ways(attend, reception.attend)
    return await listen(endpoint, options.host, options.port, options.folder, ways)


def _hello(node_id: NodeId) -> Hello:
    return Hello(
        protocol_version=PROTOCOL_VERSION,
        product_version=engine.__version__,
        shard_format=SHARD_FORMAT,
        node_id=node_id,
    )


class _Node:
    def __init__(
        self,
        options: NodeOptions,
        folders: dict[str, ShardFolder],
        endpoint: Endpoint,
        desk: RosterDesk,
        group: asyncio.TaskGroup,
    ) -> None:
        self._node_id = options.folder.node_id
        self._folders = folders
        self._endpoint = endpoint
        self._desk = desk
        self._doctor = DoctorDesk()
        self.placements = Placements(self._node_id, endpoint, group, options.cpus, options.draft)
        self.pool: PoolHost | None = None
        self._requests = RequestCount()

    def join(self, options: PoolOptions, keeper: RosterKeeper, port: int) -> PoolPart:
        """Make this node take part in its pool."""
        self.pool = PoolHost(options, keeper, self._endpoint, port, self.placements)
        return self.pool.part

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
            relay = self._relay_for(connection)
            requests = Requests(connection, group, self.placements, relay, self._requests)
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
            if isinstance(tokens, SampledTokens):
                placements.on_sampled(tokens, frame, connection.peer.node_id)
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
                await requests.begin(message)
            case Cancel():
                requests.cancel(message)
            case BatchFailed() | StageFailed():
                self.placements.on_failure(message, connection.peer.node_id)
            case TryNetwork() | TryDevices() if isinstance(connection, ControlConnection):
                part = None if self.pool is None else self.pool.part
                group.create_task(self._doctor.serve(message, connection, part))
                return
        if await self._is_desks(message, connection):
            return
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

    async def _is_desks(self, message: object, connection: Link) -> bool:
        """Do what a program of this PC asks about who is in the pool; what fails is told to it."""
        if not isinstance(connection, ControlConnection):
            return False

        async def send(told: Message) -> None:
            await connection.send(encode_control(told))

        try:
            return await self._desk.serve(message, send)
        except DaisyError as error:
            await send(ErrorReport(code=error.code, what=error.what, advice=error.advice))
        return True

    @staticmethod
    async def _is_pools(part: PoolPart, message: object, connection: Link) -> bool:
        if isinstance(connection, Connection):
            return await part.take(message, connection)
        return await part.serve(message, connection)

    async def _accept(self, frame: bytes, connection: Link) -> None:
        stage = self.placements.stage_after(connection.peer.node_id)
        if stage is None:  # left from another placement, or of somebody who is no part of this one
            return
        try:
            await stage.accept(frame, connection.send)
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
            index = own_places(placement, self._node_id)[0].stage_index
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

"""A node's part in the pool, put together: whom it finds, what it keeps, whom it obeys, and more.

One place where every message of the pool goes to whoever it is for; nothing is decided here.
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

import engine
from engine.errors import RemoteProtocolError
from engine.messages.chain import Placement, StageFailed, StageReady
from engine.messages.codec import encode_control
from engine.messages.control import PROTOCOL_VERSION, SHARD_FORMAT, AskPoolStatus, PoolStatusReport
from engine.messages.own_pc_control import DropModel
from engine.messages.pool import Versions
from engine.messages.pool_control import (
    AskChunk,
    AskChunkList,
    AskChunksThere,
    DeploymentChanged,
    DeploymentKnown,
    EndPlacement,
    KeepModel,
    LoadModel,
    MakeWish,
    ModelSplit,
    ProgressReported,
    SplitModel,
    UnloadModel,
    WarmedUp,
    WarmUp,
)
from engine.pool.announcement import JOINABLE, Announcement
from engine.pool.chunk_service import ChunkService
from engine.pool.coordination import Coordination
from engine.pool.discovery import Discovery
from engine.pool.lending_desk import LendingDesk, LentHost
from engine.pool.loading import Loading
from engine.pool.mesh import Mesh
from engine.pool.model_desk import ModelDesk
from engine.pool.model_shelf import ModelShelf
from engine.pool.node_facts import NodeFacts
from engine.pool.order_desk import Files, OrderDesk
from engine.pool.outbox import Outbox
from engine.pool.participant import Identity, Participant
from engine.pool.peer_address import PeerAddress
from engine.pool.peer_sources import PeerSources
from engine.pool.pull import Pulls
from engine.pool.record_book import RecordBook, keep_on_disk
from engine.pool.sightings import Candidate
from engine.pool.status import pool_status
from engine.pool.store import ShardStore
from engine.pool.store_threads import StoreThreads

if TYPE_CHECKING:
    from engine.domain import NodeId
    from engine.messages.doctor_control import AdapterTried
    from engine.messages.message import Message
    from engine.messages.roster_control import PoolNearby
    from engine.pool.dialler import Attend
    from engine.pool.order_desk import StageHost
    from engine.pool.roster_keeper import RosterKeeper
    from engine.transport.connection import Connection
    from engine.transport.endpoint import Endpoint
    from engine.transport.link import Link

_RUN_ID_BYTES = 8

_ORDERS = DeploymentChanged | Placement | SplitModel | KeepModel | WarmUp | EndPlacement
_ANSWERS = MakeWish | DeploymentKnown | ModelSplit | StageReady | StageFailed | WarmedUp
_QUESTIONS = AskChunkList | AskChunksThere | AskChunk


@dataclass(frozen=True, slots=True)
class PoolOptions:
    """How a node takes part in the pool.

    Attributes:
        interfaces: Names or addresses of the only adapters to use; none for the best there are.
        peers: Addresses to try beside what is found.
        memory_cap_bytes: What its owner lends at most; None for no cap.
    """

    interfaces: tuple[str, ...] = ()
    peers: tuple[PeerAddress, ...] = ()
    memory_cap_bytes: int | None = None


class PoolPart:
    """One node's part.

    Attributes:
        book: The pool's record, as it is known here.
        facts: What this PC is; the node keeps what it runs up to date.

    Thread: the node's loop.
    """

    def __init__(
        self,
        options: PoolOptions,
        keeper: RosterKeeper,
        endpoint: Endpoint,
        port: int,
        host: StageHost,
    ) -> None:
        """Put the parts together; nothing is announced before ``run``.

        Args:
            options: How to take part.
            keeper: Of the roster: says which pool this is. Models and shards lie beside its folder.
            endpoint: Opens connections.
            port: Where this node listens, on every address.
            host: Runs this node's stages.

        Fails with ``StorageError`` if the store can't be made.
        """
        folder = self._folder = keeper.folder
        self.node_id = folder.node_id
        self._keeper = keeper
        # Not the incarnation, by which members know this start: whoever listens learns nothing.
        self._run_id = secrets.token_hex(_RUN_ID_BYTES)
        self._is_joinable = False
        self._port = port
        self._loop = asyncio.get_running_loop()
        self.facts = NodeFacts(self.node_id, self._own_name(), options.memory_cap_bytes, port=port)
        self._participant = self._new_participant()
        self._mesh = Mesh(
            self._participant,
            endpoint,
            self._new_discovery(options),
            keeper,
            self.facts,
        )
        data_dir = folder.path.parent
        store = ShardStore(data_dir / "store")
        self.notes = tuple(store.notes)
        self._threads = StoreThreads()
        self._service = ChunkService(store, self._threads)
        shelf = ModelShelf(folder.path / "work", store, self._threads, Pulls(store, self._threads))
        self._shelf = shelf
        self.book = RecordBook(folder.record)
        self._outbox = Outbox(self.node_id, self._mesh, self._take_own)
        self._coordination = Coordination(
            self._participant, self._mesh, self.book, self._outbox, self._mesh.own_report
        )
        sources = PeerSources(endpoint, self._addresses)
        self._lending = LendingDesk(
            folder.path / "lending.json", self._is_alone, host, self.facts.is_on_battery
        )
        self._lending.on_change = self._on_lending
        self._desk = OrderDesk(
            self.node_id,
            self._participant.fence,
            self.book,
            LentHost(host, self._lending),
            Files(shelf, sources),
            self._outbox,
        )
        self._desk.on_kept = self.tell_facts
        self._loading = Loading(self.node_id, data_dir, shelf, self.book, self)
        self._models = ModelDesk(data_dir, shelf, self.book, self)
        self._mesh.on_change = self._look
        self._mesh.on_roster = self._on_roster
        self._mesh.on_office = self._coordination.on_office

    def _new_participant(self) -> Participant:
        versions = Versions(engine.__version__, PROTOCOL_VERSION, SHARD_FORMAT)
        return Participant(
            Identity(self._keeper.pool_id, self.node_id, secrets.randbits(63), versions),
            self.facts.preference(),
            self._keeper.folder.term,
            self._loop.time(),
        )

    def _new_discovery(self, options: PoolOptions) -> Discovery:
        known = (peer.parsed() for peer in self._keeper.folder.known)
        candidates = (
            *(Candidate(address, "manual") for address in options.peers),
            *(Candidate(address, "known") for address in known if address is not None),
        )
        return Discovery(self._announcement(), options.interfaces, candidates)

    def _announcement(self) -> Announcement:
        return Announcement(
            run_id=self._run_id,
            token=self._keeper.token(self._run_id, self._port),
            port=self._port,
            protocol_version=PROTOCOL_VERSION,
            shard_format=SHARD_FORMAT,
            flags=frozenset({JOINABLE} if self._is_joinable else ()),
            name=self._own_name() if self._is_joinable else "",
        )

    async def run(self, attend: Attend) -> None:
        """Find the others and be found, until cancelled.

        Args:
            attend: Serves a connection until it ends.

        Cancellation: the others wait for the lease, unless ``leave`` told them.
        """
        self.facts.kept_models = await self._threads.call(self._shelf.kept)
        async with self._threads, asyncio.TaskGroup() as group:
            group.create_task(self._mesh.run(attend))
            group.create_task(self._outbox.run())
            group.create_task(self._coordination.run())
            group.create_task(self._desk.run())
            group.create_task(self._lending.run())
            group.create_task(self._models.run())
            group.create_task(keep_on_disk(self.book, self._folder.keep_record))

    async def leave(self) -> None:
        """Tell the others that this node goes."""
        await self._mesh.leave()

    def detach(self, connection: Connection) -> None:
        """Take note that a connection has ended."""
        self._mesh.detach(connection)

    async def tell_facts(self) -> None:
        """Tell everybody what this node is and has, now that it has changed."""
        self.facts.kept_models = self._shelf.kept()
        await self._mesh.report_now()
        self._coordination.look()

    async def _on_lending(self, is_lending: bool) -> None:
        self.facts.is_lending = is_lending
        await self.tell_facts()

    def _is_owner(self, node_id: NodeId) -> bool:
        member = self._keeper.known.member(node_id)
        return member is not None and member.is_owner

    def _is_alone(self) -> bool:
        return self._keeper.is_alone

    def _on_roster(self) -> None:
        self._lending.look()
        self._announce()

    def _look(self) -> None:
        self._coordination.look()
        self._desk.look()

    def tell_all(self, message: Message) -> None:
        """Tell every node, this one included.

        Args:
            message: What.
        """
        self._outbox.tell_all(message)

    def tell_coordinator(self, message: Message) -> None:
        """Tell the coordinator that something happened here.

        Args:
            message: What.
        """
        coordinator = self._participant.election.coordinator
        if coordinator is not None:
            self._outbox.tell(coordinator, message)

    def address_of(self, node_id: NodeId) -> str | None:
        """Return where a node listens, as reached from here; None if that isn't known.

        Args:
            node_id: Which.
        """
        return self._mesh.address_of(node_id)

    async def try_network(self) -> tuple[AdapterTried, ...]:
        """Find out whether this PC hears its own announcement on each adapter in use."""
        return await self._mesh.discovery.try_multicast()

    # ---- who is in the pool ---------------------------------------------------------------------

    def _own_name(self) -> str:
        return self._keeper.name_of(self.node_id) or ""

    def own_addresses(self) -> tuple[str, ...]:
        """Return where this node is reached: ``host:port``, the best first."""
        adapters = self._mesh.discovery.adapters
        return tuple(str(PeerAddress(host, self._port)) for host in adapters.addresses)

    def pools_nearby(self) -> tuple[PoolNearby, ...]:
        """Return which PCs that are not of this pool wait for one to join."""
        return self._mesh.announced.pools_nearby()

    def online(self) -> frozenset[NodeId]:
        """Return the members that are there now, without this node."""
        return self._mesh.reachable()

    def say_joinable(self, is_joinable: bool) -> None:
        """Say in the network whether this PC shows a code, and its name for that time.

        Args:
            is_joinable: Whether.
        """
        self._is_joinable = is_joinable
        self._announce()

    def _announce(self) -> None:
        self._mesh.discovery.change(self._announcement())

    def _addresses(self) -> list[tuple[NodeId, str]]:
        known = ((i, self._mesh.address_of(i)) for i in sorted(self._mesh.reachable()))
        return [(i, address) for i, address in known if address and i != self.node_id]

    # ---- what comes in --------------------------------------------------------------------------

    async def take(self, message: object, connection: Connection) -> bool:
        """Take a message, if it is the pool's.

        Args:
            message: Decoded.
            connection: It came over this.

        Returns:
            Whether it was.

        Fails with ``RemoteProtocolError`` where a node speaks in another's name.
        """
        match message:
            case _ if isinstance(message, _QUESTIONS):
                await self._service.serve(message, connection)
            case _ if isinstance(message, _ORDERS | _ANSWERS | ProgressReported | DropModel):
                await self._take(message, connection.peer.node_id)
            case _:
                return await self._mesh.take(message, connection)
        return True

    async def _take_own(self, message: Message, node_id: NodeId) -> None:
        await self._take(message, node_id)

    async def _take(self, message: object, sender: NodeId) -> None:
        """Take what a node says, this one too.

        Raises:
            RemoteProtocolError: It speaks in another's name.
        """
        match message:
            case _ if isinstance(message, _ORDERS):
                self._desk.take(message, sender)
            case ProgressReported():
                if message.progress.node_id != sender:
                    raise RemoteProtocolError(f"{sender} told another node's progress.")
                self.book.note(message.progress)
                self._coordination.progressed(message.progress)
            case DropModel():
                if self._is_owner(sender):
                    self._models.told(message)
            case _ if isinstance(message, _ANSWERS):
                self._coordination.take(message, sender)

    async def serve(self, message: object, connection: Link) -> bool:
        """Do what a program of this PC asks.

        Args:
            message: Decoded.
            connection: To it.

        Returns:
            Whether it was asked of the pool.
        """

        async def send(told: Message) -> None:
            await connection.send(encode_control(told))

        match message:
            case AskPoolStatus():
                await send(self._status())
            case LoadModel():
                await self._loading.load(message, send)
            case UnloadModel():
                await self._loading.unload(send)
            case _:
                return await self._lending.serve(message, send) or await self._models.serve(
                    message, send
                )
        return True

    def _status(self) -> PoolStatusReport:
        status = pool_status(
            self._mesh,
            self._mesh.own_report(),
            self._port,
            self._loop.time(),
            deployment=self.book.deployment,
            progress=self.book.progress,
        )
        return PoolStatusReport(status=status)

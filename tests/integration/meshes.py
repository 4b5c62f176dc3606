"""Nodes as far as their mesh goes, in one loop, over real sockets, without multicast."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import engine
from engine.messages.codec import decode
from engine.messages.control import PROTOCOL_VERSION, SHARD_FORMAT, Hello
from engine.messages.pool import Versions
from engine.pool.adapters import RankedAdapters
from engine.pool.announcement import Announcement
from engine.pool.mesh import Mesh
from engine.pool.node_facts import NodeFacts
from engine.pool.node_folder import NodeFolder
from engine.pool.own_port import Ways, listen
from engine.pool.participant import Identity, Participant
from engine.pool.peer_address import parse_peer_address
from engine.pool.recognition import recognition_token
from engine.pool.roster_keeper import RosterKeeper
from engine.pool.sightings import Candidate
from engine.pool.status import pool_status
from engine.transport.endpoint import Endpoint
from tests.paired import pair

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from engine.domain import NodeId
    from engine.messages.pool_control import ProgressReported
    from engine.messages.pool_status import PoolStatus
    from engine.pool.sightings import DiscoveryEvent
    from engine.transport.connection import Connection

EVERY_ADDRESS = "0.0.0.0"  # noqa: S104 - several loopback addresses are this PC's networks


class SilentNetwork:
    """A network that carries no multicast: nothing is discovered but what a test tells."""

    def __init__(self, candidates: tuple[Candidate, ...]) -> None:
        self.adapters = RankedAdapters()
        self.problem: str | None = None
        self._events: asyncio.Queue[DiscoveryEvent] = asyncio.Queue()
        for candidate in candidates:
            self.tell(candidate)

    def tell(self, event: DiscoveryEvent) -> None:
        self._events.put_nowait(event)

    async def next_event(self) -> DiscoveryEvent:
        return await self._events.get()

    async def run(self) -> None:
        await asyncio.Event().wait()


class Member:
    """One node."""

    def __init__(self, path: Path, *, incarnation: int | None = None, **hello: Any) -> None:
        self.folder = NodeFolder(path)
        self.node_id: NodeId = self.folder.node_id
        self.incarnation = secrets.randbits(63) if incarnation is None else incarnation
        self.versions = Versions(
            engine.__version__, PROTOCOL_VERSION, hello.get("shard_format", SHARD_FORMAT)
        )
        self._hello = {
            "protocol_version": PROTOCOL_VERSION,
            "product_version": engine.__version__,
            "shard_format": SHARD_FORMAT,
            "node_id": self.node_id,
        } | hello
        self.progress: list[ProgressReported] = []
        self.changes = 0
        self.offices: list[object] = []
        self.connections: set[Connection] = set()
        self.failure: BaseException | None = None
        self.mesh: Mesh
        self.facts: NodeFacts
        self.network: SilentNetwork
        self.port = 0
        self.group: asyncio.TaskGroup
        self._task: asyncio.Task[None] | None = None

    async def start(self, *peers: str) -> Member:
        """Listen, and dial these and those known from before."""
        started = asyncio.Event()
        self._task = self.group.create_task(self._live(peers, started))
        async with asyncio.timeout(5):
            await started.wait()
        return self

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def status(self) -> PoolStatus:
        now_s = asyncio.get_running_loop().time()
        return pool_status(self.mesh, self.mesh.own_report(), self.port, now_s)

    async def kill(self) -> None:
        """End as a process does: every connection is closed, and nobody is told."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        self.folder.close()

    async def leave(self) -> None:
        await self.mesh.leave()
        await self.kill()

    async def _live(self, peers: tuple[str, ...], started: asyncio.Event) -> None:
        known = (peer.parsed() for peer in self.folder.known)
        self.network = SilentNetwork((
            *(Candidate(parse_peer_address(peer), "manual") for peer in peers),
            *(Candidate(address, "known") for address in known if address is not None),
        ))
        try:
            async with asyncio.TaskGroup() as group:
                self.keeper = RosterKeeper(self.folder)
                endpoint = Endpoint(Hello(**self._hello), group, self.keeper.trust)
                ways = Ways(self._attend)
                listener = await listen(endpoint, EVERY_ADDRESS, 0, self.folder, ways)
                self.port = listener.port
                self._make_mesh(endpoint)
                group.create_task(self.mesh.run(self._attend))
                started.set()
        except BaseExceptionGroup as error:
            self.failure = error

    def _make_mesh(self, endpoint: Endpoint) -> None:
        facts = NodeFacts(self.node_id, f"PC {self.node_id[:4]}", None, port=self.port)
        self.facts = facts
        now_s = asyncio.get_running_loop().time()
        participant = Participant(
            Identity(self.keeper.pool_id, self.node_id, self.incarnation, self.versions),
            facts.preference(),
            self.folder.term,
            now_s,
        )
        self.mesh = Mesh(participant, endpoint, self.network, self.keeper, facts)  # type: ignore[arg-type]
        self.mesh.on_change = self._count
        self.mesh.on_office = self._note_office

    def _count(self) -> None:
        self.changes += 1

    async def _note_office(self, change: object) -> None:
        self.offices.append(change)

    async def _attend(self, connection: Connection) -> None:
        self.connections.add(connection)
        try:
            while True:
                message = decode(await connection.receive())
                if not await self.mesh.take(message, connection):
                    self.progress.append(message)  # type: ignore[arg-type]
        finally:
            self.connections.discard(connection)
            self.mesh.detach(connection)


@asynccontextmanager
async def members(*made: Member) -> AsyncIterator[None]:
    """Let these live until the end, whatever happened; they are a pool."""
    pair([member.folder for member in made])
    async with asyncio.TaskGroup() as group:
        for member in made:
            member.group = group
        try:
            yield
        finally:
            for member in made:
                await member.kill()


def announced_as(
    reader: Member, node_id: NodeId, run_id: str, port: int, protocol_version: int = 1
) -> Announcement:
    """What a member announces, as another one will recognise it."""
    secret = reader.keeper.known.roster.secret_for(reader.folder.identity)
    token = recognition_token(secret, node_id, run_id, port)
    return Announcement(run_id, token, port, protocol_version, SHARD_FORMAT)


async def until(what: Callable[[], Any], within_s: float) -> float:
    """Wait until something is so; return how long it took, in seconds."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    while not what():
        if loop.time() - began_s > within_s:
            raise AssertionError(f"not within {within_s:g} s")
        await asyncio.sleep(0.005)
    return loop.time() - began_s

"""Sessions to every other node of the pool, and what the election asks for, carried out.

The rim around ``participant``: it dials whom discovery names, hands heartbeats in, and does in
order what comes back. A term is on disk before anything that follows from it is sent.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING

from engine.errors import (
    DaisyError,
    RemoteProtocolError,
    StorageError,
    TransportError,
    VersionMismatchError,
)
from engine.messages.codec import encode_control
from engine.messages.control import NodeHeartbeat, NodeLeaves, NodeReported
from engine.pool.actions import BecameCoordinator, CoordinatorLost, Following, Persist, SteppedDown
from engine.pool.dialling import Targets
from engine.pool.membership import alive, gone
from engine.pool.participant import TICK_EVERY_S, Broadcast
from engine.pool.peer_address import PeerAddress
from engine.pool.sessions import Sessions, is_dialled, remote_of
from engine.pool.sightings import AdaptersChanged, Appeared, Candidate, CloneSeen, Vanished

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from engine.domain import NodeId
    from engine.messages.message import Message
    from engine.messages.pool import Heartbeat, NodeReport
    from engine.pool.actions import Change
    from engine.pool.dialling import Key, Target
    from engine.pool.discovery import Discovery
    from engine.pool.node_facts import NodeFacts
    from engine.pool.node_folder import NodeFolder
    from engine.pool.participant import Output, Participant
    from engine.pool.sightings import DiscoveryEvent
    from engine.transport.connection import Connection
    from engine.transport.endpoint import Endpoint

    Attend = Callable[[Connection], Awaitable[None]]

REPORT_EVERY_S = 5.0

_logger = logging.getLogger(__name__)


class Mesh:
    """This node's place in the pool.

    Thread: the node's loop.

    Attributes:
        on_change: Called in the loop whenever a session opened or ended, a report came, or the
            membership or the office changed. It must return at once.
        on_office: Awaited for every change of office, in order. Until it returns no heartbeat
            goes out, so it must not wait for another node.
        coordinator_since_s: When the coordinator took office as far as seen; None without one.
        clone_run_ids: Starts of other PCs that announce this one's identity.
    """

    def __init__(
        self,
        participant: Participant,
        endpoint: Endpoint,
        discovery: Discovery,
        folder: NodeFolder,
        facts: NodeFacts,
    ) -> None:
        """Join the parts; nothing is dialled before ``run``.

        Args:
            participant: Decides.
            endpoint: Opens connections.
            discovery: Names addresses worth trying.
            folder: Keeps terms.
            facts: What this PC is.
        """
        self.participant = participant
        self.discovery = discovery
        self.on_change: Callable[[], None] | None = None
        self.on_office: Callable[[Change], Awaitable[None]] | None = None
        self.coordinator_since_s: float | None = None
        self.clone_run_ids: set[str] = set()
        self._endpoint = endpoint
        self._folder = folder
        self._facts = facts
        self._targets = Targets(participant.identity.node_id)
        self._sessions = Sessions()
        self._reports: dict[NodeId, NodeReport] = {}  # outlive the sessions: names of who is gone
        self._outputs: deque[Output] = deque()
        self._has_outputs = asyncio.Event()
        self._seen: object = None  # what was last told by ``on_change`` of members and office
        self._loop = asyncio.get_running_loop()

    # ---- what is known of the others ------------------------------------------------------------

    def reachable(self) -> frozenset[NodeId]:
        """Return the other nodes that have a lease and a session that is open."""
        lives = alive(self.participant.membership, self._loop.time())
        return frozenset(life.heartbeat.node_id for life in lives) & self._sessions.node_ids

    def reports(self) -> dict[NodeId, NodeReport]:
        """Return what each other node last told of itself, also of those that are gone."""
        return dict(self._reports)

    def incarnation_of(self, node_id: NodeId) -> int | None:
        """Return which start of a node is a member; None where none is or was lately."""
        member = self.participant.membership.members.get(node_id)
        return None if member is None else member.life.heartbeat.incarnation

    def round_trip_s(self, node_id: NodeId) -> float | None:
        """Return the round trip to a node, in seconds; None before the first was measured."""
        return self._sessions.round_trip_s(node_id)

    def address_of(self, node_id: NodeId) -> str | None:
        """Return where a node listens, as seen from here: ``ws://host:port``; None if unknown.

        The address its oldest session goes to comes first, then what it announced.
        """
        addresses = self._addresses_of(node_id)
        return f"ws://{addresses[0]}" if addresses else None

    def _addresses_of(self, node_id: NodeId) -> tuple[PeerAddress, ...]:
        open_ones = (self._way(connection) for connection in self._sessions.of(node_id))
        seen = tuple(way for way in open_ones if way is not None)
        return tuple(dict.fromkeys(seen + self._targets.addresses_of(node_id)))

    def _way(self, connection: Connection) -> PeerAddress | None:
        """Return where the other end of a connection listens; None where it hasn't said."""
        remote = remote_of(connection)
        if is_dialled(connection):
            return remote
        report = self._reports.get(connection.peer.node_id)
        if report is not None and report.port:
            return PeerAddress(remote.host, report.port)
        announced = self._targets.addresses_of(connection.peer.node_id)
        return next((a for a in announced if a.host == remote.host), None)

    @property
    def problems(self) -> tuple[str, ...]:
        """Why nodes that were named can't be reached, one sentence each."""
        return self._targets.problems

    # ---- what goes out --------------------------------------------------------------------------

    async def send_to(self, node_id: NodeId, message: Message) -> bool:
        """Send to a node, over its oldest session that still takes it.

        Args:
            node_id: Whom.
            message: What.

        Returns:
            Whether a session took it; the node may be gone all the same before it arrives.

        Cancellation: safe; it may be sent all the same.
        """
        return await self._sessions.send_to(node_id, message)

    async def send_all(self, message: Message) -> None:
        """Send to every other node once.

        Args:
            message: What.
        """
        await self._sessions.send_all(message)

    async def report_now(self) -> None:
        """Tell everybody what this node is and has: it has just changed."""
        await self.send_all(self._report())

    async def leave(self) -> None:
        """Tell everybody that this node goes, so that nobody waits for its lease to run out."""
        await self.send_all(NodeLeaves(incarnation=self.participant.identity.incarnation))

    def _report(self) -> NodeReported:
        return NodeReported(report=self._facts.report())

    # ---- tasks ----------------------------------------------------------------------------------

    async def run(self, attend: Attend) -> None:
        """Keep this node in the pool.

        Args:
            attend: Serves a connection until it ends; it hands what is the pool's back here.

        Cancellation: leaves without a word to the others; say it with ``leave`` first.
        """
        async with asyncio.TaskGroup() as group:
            group.create_task(self.discovery.run())
            group.create_task(self._follow_discovery())
            group.create_task(self._tick_loop(group, attend))
            group.create_task(self._report_loop())
            group.create_task(self._perform_loop())

    async def _follow_discovery(self) -> None:
        while True:
            await self._take(await self.discovery.next_event())

    async def _take(self, event: DiscoveryEvent) -> None:
        now_s = self._loop.time()
        match event:
            case Appeared():
                addresses = tuple(PeerAddress(host, event.port) for host in event.addresses)
                self._targets.announced(event.node_id, addresses, now_s)
            case Candidate(source="manual"):
                self._targets.given(event.address, now_s)
            case Candidate():
                self._targets.known(event.address, now_s)
            case Vanished():
                self._targets.left(event.node_id)
            case CloneSeen():
                self.clone_run_ids.add(event.run_id)
            case AdaptersChanged():
                self._facts.use_adapters(event.adapters)
                self._targets.try_all_now(now_s)
                await self.report_now()

    async def _tick_loop(self, group: asyncio.TaskGroup, attend: Attend) -> None:
        while True:
            now_s = self._loop.time()
            self._do(self.participant.tick(self._facts.preference(), now_s))
            for target in self._targets.due(self._is_connected, now_s):
                group.create_task(self._dial(target, attend))
            await asyncio.sleep(TICK_EVERY_S)

    def _is_connected(self, key: Key) -> bool:
        if not isinstance(key, PeerAddress):
            return key in self._sessions.node_ids
        return any(key == way for way in map(self._way, self._sessions.all()))

    async def _dial(self, target: Target, attend: Attend) -> None:
        """Try a target's addresses in turn, and stay with the first that answers."""
        try:
            for address in target.addresses:
                try:
                    connection = await self._endpoint.connect(f"ws://{address}")
                except (TransportError, VersionMismatchError) as error:
                    target.problem = error.what
                    continue
                target.answered()
                await self._stay(connection, attend)
                break
        finally:
            target.ended(self._loop.time())

    async def _stay(self, connection: Connection, attend: Attend) -> None:
        if connection.peer.node_id == self.participant.identity.node_id:
            await connection.close("This is the same PC.")
            return
        try:
            await self._attach(connection)
            await attend(connection)
        except DaisyError as error:
            _logger.info("pool: a session ended, %s", error.what)
        finally:
            await connection.close("The other side is done.")

    async def _report_loop(self) -> None:
        while True:
            await self.report_now()
            await asyncio.sleep(REPORT_EVERY_S)

    # ---- what comes in --------------------------------------------------------------------------

    async def _attach(self, connection: Connection) -> None:
        """Take a session that has just opened, and tell the other side who we are."""
        if not self._sessions.add(connection):
            return
        self._tell()
        beat = NodeHeartbeat(heartbeat=self.participant.heartbeat())
        await connection.send(encode_control(beat))
        await connection.send(encode_control(self._report()))

    def detach(self, connection: Connection) -> None:
        """Forget a session that has ended; its node stays a member until its lease runs out."""
        node_id = connection.peer.node_id
        addresses = self._addresses_of(node_id)
        if not self._sessions.remove(connection):
            return
        if node_id not in self._sessions.node_ids and node_id not in gone(
            self.participant.membership
        ):
            self._targets.lost(node_id, addresses, self._loop.time())
        self._tell()

    async def take(self, message: object, connection: Connection) -> bool:
        """Take a message, if it is about who is there.

        Args:
            message: Decoded.
            connection: It came over this.

        Returns:
            Whether it was.

        Raises:
            RemoteProtocolError: A node speaks in another's name.
        """
        match message:
            case NodeHeartbeat(heartbeat=heartbeat):
                _require_own(connection, heartbeat.node_id, "heartbeat")
                await self._on_heartbeat(connection, heartbeat)
            case NodeReported(report=report):
                _require_own(connection, report.node_id, "report")
                if report.node_id in self._sessions.node_ids:
                    self._reports[report.node_id] = report
                    self._tell()
            case NodeLeaves(incarnation=incarnation):
                node_id, now_s = connection.peer.node_id, self._loop.time()
                self._do(self.participant.left(node_id, incarnation, now_s))
            case _:
                return False
        return True

    async def _on_heartbeat(self, connection: Connection, heartbeat: Heartbeat) -> None:
        """Take a heartbeat; the first one makes a connection a session of the pool."""
        await self._attach(connection)
        way = self._way(connection) or remote_of(connection)
        self._do(self.participant.receive(heartbeat, way, self._loop.time()))

    # ---- what the election asks for -------------------------------------------------------------

    def _do(self, outputs: list[Output]) -> None:
        self._outputs.extend(outputs)
        if outputs:
            self._has_outputs.set()
        election = self.participant.election
        members = self.participant.membership.members.items()
        lives = alive(self.participant.membership, self._loop.time())
        seen = (
            {life.heartbeat.node_id: life.heartbeat.incarnation for life in lives},
            {node_id for node_id, member in members if member.life.left_s is not None},
            (election.accepted, election.coordinator),
        )
        if seen != self._seen:
            self._seen = seen
            self._tell()

    def _tell(self) -> None:
        if self.on_change is not None:
            self.on_change()

    async def _perform_loop(self) -> None:
        while True:
            await self._has_outputs.wait()
            self._has_outputs.clear()
            while self._outputs:
                await self._perform(self._outputs.popleft())

    async def _perform(self, output: Output) -> None:
        match output:
            case Broadcast():
                await self.send_all(NodeHeartbeat(heartbeat=output.heartbeat))
            case Persist():
                await self._persist(output)
            case BecameCoordinator() | Following() | SteppedDown() | CoordinatorLost():
                await self._change_office(output)

    async def _change_office(self, change: Change) -> None:
        is_taken = isinstance(change, BecameCoordinator | Following)
        self.coordinator_since_s = self._loop.time() if is_taken else None
        _logger.info("pool: %s", _told(change))
        if self.on_office is not None:
            await self.on_office(change)

    async def _persist(self, order: Persist) -> None:
        try:
            await asyncio.to_thread(self._folder.keep_term, order.term)
        except StorageError as error:
            _logger.warning("pool: %s", error.what)
            self._do(self.participant.write_failed(order.term, self._loop.time()))
        else:
            self._do(self.participant.written(order.term, self._loop.time()))


def _require_own(connection: Connection, node_id: NodeId, what: str) -> None:
    """Return if a node speaks of itself.

    Raises:
        RemoteProtocolError: It speaks of another.
    """
    if node_id != connection.peer.node_id:
        raise RemoteProtocolError(f"{connection.address} sent another node's {what}.")


def _told(change: Change) -> str:
    match change:
        case BecameCoordinator():
            return f"this PC coordinates, term {change.term}"
        case Following():
            return f"following {change.coordinator}, term {change.term}"
        case SteppedDown():
            return f"no longer coordinating, term {change.term} is over"
        case CoordinatorLost():
            return f"lost the coordinator {change.coordinator}"

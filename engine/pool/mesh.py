"""Sessions to every other node of the pool, and what the election asks for, carried out.

The rim around ``participant``: it dials whom discovery names, hands heartbeats in, and does in
order what comes back. A term is on disk before anything that follows from it is sent.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass, field
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
from engine.pool.participant import TICK_EVERY_S, Broadcast
from engine.pool.peer_address import PeerAddress
from engine.pool.sightings import AdaptersChanged, Appeared, Candidate, CloneSeen, Vanished

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from engine.domain import NodeId
    from engine.messages.message import Message
    from engine.messages.pool import Heartbeat, NodeReport
    from engine.pool.discovery import Discovery
    from engine.pool.node_facts import NodeFacts
    from engine.pool.node_folder import NodeFolder
    from engine.pool.participant import Output, Participant
    from engine.pool.sightings import DiscoveryEvent
    from engine.transport.connection import Connection
    from engine.transport.endpoint import Endpoint

    Attend = Callable[[Connection], Awaitable[None]]

REPORT_EVERY_S = 5.0
SEND_WITHIN_S = 0.5  # to a peer whose buffer is full; a heartbeat is due every second
FIRST_RETRY_S = 1.0
LAST_RETRY_S = 15.0
YIELD_S = 2.0  # the node with the higher id waits this long for the other one to dial
MAX_TARGETS = 64  # a pool has 16; more announcements are somebody's game

_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Target:
    """A node worth dialling, or an address whose node is not known yet."""

    addresses: tuple[PeerAddress, ...]
    next_try_s: float
    retry_s: float = FIRST_RETRY_S
    is_dialling: bool = False
    problem: str | None = None


@dataclass(slots=True)
class _Session:
    """What is known through the sessions with one node."""

    connections: list[Connection] = field(default_factory=list)


class Mesh:
    """This node's place in the pool.

    Thread: the node's loop.
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
        self.coordinator_since_s: float | None = None
        self.clone_run_ids: set[str] = set()
        self._endpoint = endpoint
        self._folder = folder
        self._facts = facts
        self._targets: dict[NodeId | PeerAddress, _Target] = {}
        self._sessions: dict[NodeId, _Session] = {}
        self._reports: dict[NodeId, NodeReport] = {}  # outlive the sessions: names of who is gone
        self._outputs: deque[Output] = deque()
        self._has_outputs = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    # ---- what others may know -------------------------------------------------------------------

    def report_of(self, node_id: NodeId) -> NodeReport | None:
        """Return what a node last told of itself; None if it has not."""
        return self._reports.get(node_id)

    def round_trip_s(self, node_id: NodeId) -> float | None:
        """Return the round trip to a node, in seconds; None before the first was measured."""
        session = self._sessions.get(node_id)
        trips = [c.round_trip_s for c in session.connections] if session is not None else []
        return min((trip for trip in trips if trip is not None), default=None)

    @property
    def problems(self) -> tuple[str, ...]:
        """Why nodes that were named can't be reached, one sentence each."""
        return tuple(t.problem for t in self._targets.values() if t.problem is not None)

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

    async def leave(self) -> None:
        """Tell everybody that this node goes, so that nobody waits for its lease to run out."""
        await self._send_all(NodeLeaves(incarnation=self.participant.identity.incarnation))

    async def _follow_discovery(self) -> None:
        while True:
            self._take(await self.discovery.next_event())

    def _take(self, event: DiscoveryEvent) -> None:
        now_s = self._loop.time()
        match event:
            case Appeared():
                yields = self.participant.identity.node_id > event.node_id
                addresses = tuple(PeerAddress(host, event.port) for host in event.addresses)
                self._aim(event.node_id, addresses, now_s + (YIELD_S if yields else 0.0))
            case Candidate():
                self._aim(event.address, (event.address,), now_s)
            case Vanished():
                self._targets.pop(event.node_id, None)
            case CloneSeen():
                self.clone_run_ids.add(event.run_id)
            case AdaptersChanged():
                for target in self._targets.values():
                    target.next_try_s, target.retry_s = now_s, FIRST_RETRY_S

    def _aim(
        self, key: NodeId | PeerAddress, addresses: tuple[PeerAddress, ...], at_s: float
    ) -> None:
        known = self._targets.get(key)
        if known is not None:
            known.addresses = addresses
        elif len(self._targets) < MAX_TARGETS:
            self._targets[key] = _Target(addresses, at_s)

    async def _tick_loop(self, group: asyncio.TaskGroup, attend: Attend) -> None:
        while True:
            now_s = self._loop.time()
            self._do(self.participant.tick(self._facts.preference(), now_s))
            for key, target in list(self._targets.items()):
                is_due = now_s >= target.next_try_s and not target.is_dialling
                if is_due and not self._is_connected(key):
                    target.is_dialling = True
                    group.create_task(self._dial(target, attend))
            await asyncio.sleep(TICK_EVERY_S)

    def _is_connected(self, key: NodeId | PeerAddress) -> bool:
        if not isinstance(key, PeerAddress):
            return key in self._sessions
        open_addresses = {c.address for s in self._sessions.values() for c in s.connections}
        return f"ws://{key}" in open_addresses

    async def _dial(self, target: _Target, attend: Attend) -> None:
        """Try a target's addresses in turn, and stay with the first that answers."""
        try:
            for address in target.addresses:
                try:
                    connection = await self._endpoint.connect(f"ws://{address}")
                except (TransportError, VersionMismatchError) as error:
                    target.problem = error.what
                    continue
                target.problem, target.retry_s = None, FIRST_RETRY_S
                await self._stay(connection, attend)
                break
        finally:
            target.is_dialling = False
            target.next_try_s = self._loop.time() + target.retry_s
            target.retry_s = min(2 * target.retry_s, LAST_RETRY_S)

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
            await self._send_all(NodeReported(report=self._facts.report()))
            await asyncio.sleep(REPORT_EVERY_S)

    # ---- what comes in --------------------------------------------------------------------------

    async def _attach(self, connection: Connection) -> None:
        """Take a session that has just opened, and tell the other side who we are."""
        session = self._sessions.setdefault(connection.peer.node_id, _Session())
        session.connections.append(connection)
        beat = NodeHeartbeat(heartbeat=self.participant.heartbeat())
        await connection.send(encode_control(beat))
        await connection.send(encode_control(NodeReported(report=self._facts.report())))

    def detach(self, connection: Connection) -> None:
        """Forget a session that has ended; its node stays a member until its lease runs out."""
        node_id = connection.peer.node_id
        session = self._sessions.get(node_id)
        if session is None or connection not in session.connections:
            return
        session.connections.remove(connection)
        if not session.connections:
            del self._sessions[node_id]
            target = self._targets.get(node_id)
            if target is not None:
                target.next_try_s = self._loop.time()

    async def on_heartbeat(self, connection: Connection, heartbeat: Heartbeat) -> None:
        """Take a heartbeat; the first one makes a connection a session of the pool.

        Args:
            connection: It came over this.
            heartbeat: Of the node at its other end.

        Raises:
            RemoteProtocolError: It is another node's.
        """
        if heartbeat.node_id != connection.peer.node_id:
            raise RemoteProtocolError(f"{connection.address} sent another node's heartbeat.")
        session = self._sessions.get(heartbeat.node_id)
        if session is None or connection not in session.connections:
            await self._attach(connection)
        now_s = self._loop.time()
        self._do(self.participant.receive(heartbeat, self._way(connection), now_s))

    def on_leave(self, connection: Connection, message: NodeLeaves) -> None:
        """Take a goodbye.

        Args:
            connection: Of the node that goes.
            message: Which start of it.
        """
        node_id = connection.peer.node_id
        self._do(self.participant.left(node_id, message.incarnation, self._loop.time()))

    def on_report(self, connection: Connection, report: NodeReport) -> None:
        """Take what a node tells of itself.

        Args:
            connection: It came over this.
            report: Of the node at its other end.

        Raises:
            RemoteProtocolError: It is another node's.
        """
        if report.node_id != connection.peer.node_id:
            raise RemoteProtocolError(f"{connection.address} sent another node's report.")
        if report.node_id in self._sessions:
            self._reports[report.node_id] = report

    def _way(self, connection: Connection) -> PeerAddress:
        host, _, port = connection.address.removeprefix("ws://").rpartition(":")
        target = self._targets.get(connection.peer.node_id)
        listening = {a.host: a for a in target.addresses} if target is not None else {}
        return listening.get(host, PeerAddress(host, int(port)))

    # ---- what goes out --------------------------------------------------------------------------

    def _do(self, outputs: list[Output]) -> None:
        self._outputs.extend(outputs)
        if outputs:
            self._has_outputs.set()

    async def _perform_loop(self) -> None:
        while True:
            await self._has_outputs.wait()
            self._has_outputs.clear()
            while self._outputs:
                await self._perform(self._outputs.popleft())

    async def _perform(self, output: Output) -> None:
        match output:
            case Broadcast():
                await self._send_all(NodeHeartbeat(heartbeat=output.heartbeat))
            case Persist():
                await self._persist(output)
            case BecameCoordinator() | Following():
                self.coordinator_since_s = self._loop.time()
                _logger.info("pool: %s", _told(output))
            case SteppedDown() | CoordinatorLost():
                self.coordinator_since_s = None
                _logger.info("pool: %s", _told(output))

    async def _persist(self, order: Persist) -> None:
        try:
            await asyncio.to_thread(self._folder.keep_term, order.term)
        except StorageError as error:
            _logger.warning("pool: %s", error.what)
            self._do(self.participant.write_failed(order.term, self._loop.time()))
        else:
            self._do(self.participant.written(order.term, self._loop.time()))

    async def _send_all(self, message: Message) -> None:
        """Send to every node once, by its oldest session that still takes it."""
        frame = encode_control(message)
        for session in list(self._sessions.values()):
            for connection in list(session.connections):
                if await _takes(connection, frame):
                    break


async def _takes(connection: Connection, frame: bytes) -> bool:
    """Send a frame; return False where the connection has ended or its peer reads nothing."""
    try:
        async with asyncio.timeout(SEND_WITHIN_S):
            await connection.send(frame)
    except TransportError:
        return False  # whoever attends it finds out as well
    except TimeoutError:
        # The others must not wait for it, nor miss our heartbeats.
        connection.abort()
        return False
    return True


def _told(change: BecameCoordinator | Following | SteppedDown | CoordinatorLost) -> str:
    match change:
        case BecameCoordinator():
            return f"this PC coordinates, term {change.term}"
        case Following():
            return f"following {change.coordinator}, term {change.term}"
        case SteppedDown():
            return f"no longer coordinating, term {change.term} is over"
        case CoordinatorLost():
            return f"lost the coordinator {change.coordinator}"

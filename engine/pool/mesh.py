"""Sessions to every other node of the pool: opened, attended, and what comes over them handed on.

The rim around ``participant``: it dials whom discovery names, hands heartbeats in, and lets
``Duties`` do what comes back.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec.structs import replace

from engine.errors import (
    IdentityCopiedError,
    VersionMismatchError,
)
from engine.messages.codec import encode_control
from engine.messages.control import NodeHeartbeat, NodeLeaves, NodeReported
from engine.messages.pool import Neighbour, Versions
from engine.messages.roster_control import RosterTold
from engine.pool.actions import BecameCoordinator, Following
from engine.pool.address_book import AddressBook
from engine.pool.announced import Announced
from engine.pool.dialler import Dialler
from engine.pool.dialling import Targets
from engine.pool.duties import Duties
from engine.pool.known_peers import hints
from engine.pool.membership import STALL_S, alive, gone
from engine.pool.participant import TICK_EVERY_S
from engine.pool.report_book import MAX_REPORTS, ReportBook
from engine.pool.sessions import Sessions, is_dialled, remote_of, require_own
from engine.pool.sightings import AdaptersChanged, Appeared, Candidate, Vanished

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from engine.domain import NodeId
    from engine.messages.message import Message
    from engine.messages.pool import Heartbeat, NodeReport
    from engine.pool.actions import Change
    from engine.pool.dialler import Attend
    from engine.pool.dialling import Target
    from engine.pool.discovery import Discovery
    from engine.pool.node_facts import NodeFacts
    from engine.pool.participant import Output, Participant
    from engine.pool.roster_keeper import RosterKeeper
    from engine.pool.sightings import DiscoveryEvent
    from engine.transport.connection import Connection
    from engine.transport.endpoint import Endpoint

REPORT_EVERY_S = 5.0


class Mesh:
    """This node's place in the pool.

    Thread: the node's loop.

    Attributes:
        folder: What this node keeps on disk.
        announced: What is seen in the network.
        on_change: Called in the loop whenever a session opened or ended, a report came, or the
            membership or the office changed. It must return at once.
        on_roster: Called in the loop after every change of who is in the pool.
        on_office: Awaited for every change of office, in order. Until it returns no heartbeat
            goes out, so it must not wait for another node.
        coordinator_since_s: When the coordinator took office as far as seen, on the loop's clock;
            None without one.
    """

    def __init__(
        self,
        participant: Participant,
        endpoint: Endpoint,
        discovery: Discovery,
        keeper: RosterKeeper,
        facts: NodeFacts,
    ) -> None:
        """Join the parts; nothing is dialled before ``run``.

        Args:
            participant: Decides.
            endpoint: Opens connections.
            discovery: Names addresses worth trying.
            keeper: Of the roster; its folder keeps terms, and addresses that worked.
            facts: What this PC is.
        """
        self.participant = participant
        self.discovery = discovery
        self.on_change: Callable[[], None] | None = None
        self.on_roster: Callable[[], None] | None = None
        self.on_office: Callable[[Change], Awaitable[None]] | None = None
        self.coordinator_since_s: float | None = None
        self.folder = keeper.folder
        self._keeper = keeper
        self._facts = facts
        self.targets = Targets(participant.identity.node_id)
        self.announced = Announced(keeper, self.targets, participant)
        self._sessions = Sessions()
        self._dialler = Dialler(endpoint, self.targets, self._sessions, self._attach)
        self._duties = Duties(participant, self.folder, self._sessions, self._change_office)
        self._reports = ReportBook()
        self._addresses = AddressBook(self.folder)
        self._is_copied = asyncio.Event()
        self._seen: object = None  # what was last told by ``on_change`` of members and office
        self._loop = asyncio.get_running_loop()
        keeper.tell = self.send_all
        keeper.on_change = self._follow_roster

    # ---- what is known of the others ------------------------------------------------------------

    def reachable(self) -> frozenset[NodeId]:
        """Return the other nodes that have a lease and a session that is open."""
        lives = alive(self.participant.membership, self._loop.time())
        return frozenset(life.heartbeat.node_id for life in lives) & self._sessions.node_ids

    def reports(self) -> dict[NodeId, NodeReport]:
        """Return what each other node last told of itself, also of those that are gone."""
        return self._reports.all()

    def own_report(self) -> NodeReport:
        """Return what this node tells the others of itself now."""
        neighbours = tuple(
            Neighbour(node_id, str(ways[0]), self._sessions.round_trip_ms(node_id))
            for node_id, ways in sorted(self._sessions.all_ways().items())
            if ways
        )
        return replace(self._facts.report(), neighbours=neighbours[:MAX_REPORTS])

    def incarnation_of(self, node_id: NodeId) -> int | None:
        """Return which start of a node is a member; None where none is or was lately."""
        member = self.participant.membership.members.get(node_id)
        return None if member is None else member.life.heartbeat.incarnation

    def address_of(self, node_id: NodeId) -> str | None:
        """Return where a node listens, as seen from here: ``wss://host:port``; None if unknown.

        The address of its best session comes first, then what it announced.
        """
        return next(iter(self.addresses_of(node_id)), None)

    def addresses_of(self, node_id: NodeId) -> tuple[str, ...]:
        """Return every address a node is reached at, or might be: as ``address_of``, best first.

        While it has a session that is not silent, only what sessions lead to.
        """
        ways = self._sessions.ways(node_id) or self.targets.addresses_of(node_id)
        return tuple(map(self._dialler.url, ways))

    def unreached(self) -> tuple[Target, ...]:
        """Return where nodes announced themselves, or should be, and can't be reached, and why."""
        return self.targets.unreached(self._sessions.node_ids)

    # ---- what goes out --------------------------------------------------------------------------

    async def send_to(self, node_id: NodeId, message: Message) -> bool:
        """Send to a node, over its best session that takes it.

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
        await self.send_all(NodeReported(report=self.own_report()))

    async def leave(self) -> None:
        """Tell everybody that this node goes, so that nobody waits for its lease to run out."""
        await self.send_all(NodeLeaves(incarnation=self.participant.identity.incarnation))

    # ---- tasks ----------------------------------------------------------------------------------

    async def run(self, attend: Attend) -> None:
        """Keep this node in the pool.

        Args:
            attend: Serves a connection until it ends; it hands what is the pool's back here.

        Fails with a group that holds ``IdentityCopiedError`` where another PC runs with this
        one's identity and keeps it; the folder has a new one then.

        Cancellation: leaves without a word to the others; say it with ``leave`` first.
        """
        async with asyncio.TaskGroup() as group:
            group.create_task(self.discovery.run())
            group.create_task(self._follow_discovery())
            group.create_task(self._tick_loop(group, attend))
            group.create_task(self._report_loop())
            group.create_task(self._addresses.run())
            group.create_task(self._give_up_copied_identity())
            group.create_task(self._duties.run())

    async def _follow_discovery(self) -> None:
        while True:
            await self._follow(await self.discovery.next_event())

    async def _follow(self, event: DiscoveryEvent) -> None:
        now_s = self._loop.time()
        match event:
            case Appeared() | Vanished():
                self._do(self.announced.take(event, now_s))
            case Candidate(source="manual"):
                self.targets.given(event.address, now_s)
            case Candidate():
                self.targets.known(event.address, now_s)
            case AdaptersChanged():
                self._facts.use_adapters(event.adapters)
                self.targets.try_all_now(now_s)
                await self.report_now()

    def _follow_roster(self) -> None:
        """Take note that somebody was let in, renamed or removed."""
        self._facts.name = self._keeper.name_of(self._facts.node_id) or self._facts.name
        self._do(self.announced.follow_roster(self._loop.time()))
        if self.on_roster is not None:
            self.on_roster()
        self._tell()

    async def _tick_loop(self, group: asyncio.TaskGroup, attend: Attend) -> None:
        before_s = self._loop.time()
        while True:
            now_s = self._loop.time()
            if now_s - before_s > STALL_S:
                self._sessions.forgive(now_s - before_s)
            before_s = now_s
            self._do(self.participant.tick(self._facts.preference(), now_s))
            self._dialler.dial_due(group, attend)
            await asyncio.sleep(TICK_EVERY_S)

    async def _report_loop(self) -> None:
        while True:
            self._sessions.measure()
            await self.report_now()
            await asyncio.sleep(REPORT_EVERY_S)

    async def _give_up_copied_identity(self) -> None:
        """Wait until a PC with this one's identity has the older right to it, and become another.

        Raises:
            IdentityCopiedError: Then.
        """
        await self._is_copied.wait()
        await self.leave()
        is_alone = len(self.folder.roster.members) == 1
        await asyncio.to_thread(self.folder.leave_pool)
        double = self.participant.membership.double
        where = "" if double is None else f" at {double.address}"
        after = "" if is_alone else " that the pool does not know: pair it again, with daisy join"
        raise IdentityCopiedError(
            f"Another PC{where} runs with a copy of this PC's data folder {self.folder.path}; "
            f"this one has taken a new identity{after}."
        )

    # ---- what comes in --------------------------------------------------------------------------

    async def _attach(self, connection: Connection) -> None:
        """Take a session that has just opened, and tell the other side who we are.

        Raises:
            VersionMismatchError: Its shards can't be ours.
            TransportError: It has ended.
        """
        peer, ours = connection.peer, self.participant.identity.versions
        if peer.node_id == self.participant.identity.node_id:
            await connection.send(self._own_heartbeat())
            return
        if peer.shard_format != ours.shard_format:
            theirs = Versions(peer.product_version, peer.protocol_version, peer.shard_format)
            where, now_s = remote_of(connection), self._loop.time()
            self._do(self.participant.refused(peer.node_id, theirs, where, now_s))
            raise VersionMismatchError(
                f"{connection.address}: It makes shards of format {theirs.shard_format}, and this "
                f"PC of format {ours.shard_format}."
            )
        self.targets.unknown_at = None
        if not self._sessions.add(connection):
            return
        self._tell()
        for told in self._keeper.told():
            await connection.send(encode_control(told))
        # Then where we listen: by that the other side knows this way to us from others.
        await connection.send(encode_control(NodeReported(report=self.own_report())))
        await connection.send(self._own_heartbeat())
        connection.measure_round_trip()

    def _own_heartbeat(self) -> bytes:
        return encode_control(NodeHeartbeat(heartbeat=self.participant.heartbeat()))

    def detach(self, connection: Connection) -> None:
        """Forget a session that has ended; its node stays a member until its lease runs out."""
        node_id, way = connection.peer.node_id, self._sessions.way_of(connection)
        if not self._sessions.remove(connection):
            return
        is_gone = node_id in gone(self.participant.membership)
        if way is not None and not is_gone and node_id not in self._sessions.node_ids:
            self.targets.lost(node_id, way, self._loop.time())
        self._tell()

    async def take(self, message: object, connection: Connection) -> bool:
        """Take a message, if it is about who is there; the first makes a connection a session.

        Args:
            message: Decoded.
            connection: It came over this.

        Returns:
            Whether it was.

        Raises:
            RemoteProtocolError: A node speaks in another's name.
            VersionMismatchError: The node's shards are of another format.
        """
        match message:
            case NodeHeartbeat(heartbeat=heartbeat):
                require_own(connection, heartbeat.node_id, "heartbeat")
                await self._on_heartbeat(connection, heartbeat)
            case NodeReported(report=report):
                require_own(connection, report.node_id, "report")
                await self._on_report(connection, report)
            case RosterTold():
                await self._keeper.offer(message.roster)
            case NodeLeaves(incarnation=incarnation):
                node_id, now_s = connection.peer.node_id, self._loop.time()
                self._do(self.participant.left(node_id, incarnation, now_s))
            case _:
                return False
        return True

    async def _on_heartbeat(self, connection: Connection, heartbeat: Heartbeat) -> None:
        own = self.participant.identity
        if heartbeat.node_id != own.node_id:
            await self._attach(connection)
            self._sessions.heard(connection)
        way = self._sessions.way_of(connection) or remote_of(connection)
        self._do(self.participant.receive(heartbeat, way, self._loop.time()))
        if heartbeat.node_id == own.node_id and heartbeat.incarnation != own.incarnation:
            # Both run, or this could not have come; which of them gives way, both know by this.
            if heartbeat.incarnation < own.incarnation:
                self._is_copied.set()
            elif not is_dialled(connection):
                await connection.send(self._own_heartbeat())

    async def _on_report(self, connection: Connection, report: NodeReport) -> None:
        if report.node_id == self.participant.identity.node_id:
            return
        await self._attach(connection)
        self._sessions.heard(connection, report.port)
        self._reports.keep(report, self._sessions.node_ids)
        way = self._sessions.way_of(connection)
        if way is not None:
            self._addresses.enter(report.node_id, way)
        now_s = self._loop.time()
        for node_id, address in hints(report, remote_of(connection)):
            if node_id in self._keeper.trust.members - self._sessions.node_ids:
                self.targets.hinted(node_id, address, now_s)
        self._tell()

    # ---- what comes of it -----------------------------------------------------------------------

    def _do(self, outputs: list[Output]) -> None:
        self._duties.add(outputs)
        election = self.participant.election
        lives = alive(self.participant.membership, self._loop.time())
        seen = (
            {life.heartbeat.node_id: life.heartbeat.incarnation for life in lives},
            gone(self.participant.membership),
            (election.accepted, election.coordinator),
        )
        if seen != self._seen:
            self._seen = seen
            self._tell()

    async def _change_office(self, change: Change) -> None:
        is_taken = isinstance(change, BecameCoordinator | Following)
        self.coordinator_since_s = self._loop.time() if is_taken else None
        if self.on_office is not None:
            await self.on_office(change)

    def _tell(self) -> None:
        if self.on_change is not None:
            self.on_change()

"""The open sessions with other nodes: which of them is the better way, and sending over them.

A node may be reached in several ways: over a cable and over the air, or because two nodes dialled
each other at once. A session that has fallen silent is the last choice, though nobody knows yet
whether it has ended; of the others the quickest is taken.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine.errors import RemoteProtocolError, TransportError
from engine.messages.codec import encode_control
from engine.pool.heartbeat import LEASE_S
from engine.pool.membership import SILENT_AFTER_S
from engine.pool.peer_address import PeerAddress

if TYPE_CHECKING:
    from engine.domain import NodeId
    from engine.messages.message import Message
    from engine.transport.connection import Connection

SEND_WITHIN_S = 0.5  # to a peer whose buffer is full; a heartbeat is due every second
MAX_SESSIONS = 4  # with one node: each side dialled two addresses of the other at once
SLOWER_BY_MS = 2.0  # round trips that differ by less, or not by half, are taken for the same
_NUM_TRIPS = 6  # half a minute of them


@dataclass(slots=True)
class _Session:
    """One connection of a node.

    Attributes:
        heard_s: When anything of the pool's last came over it.
        port: Where the node listens, as it says; 0 before it has.
        trips_s: The round trips measured last.
    """

    connection: Connection
    heard_s: float
    port: int = 0
    trips_s: deque[float] = field(default_factory=lambda: deque(maxlen=_NUM_TRIPS))

    @property
    def round_trip_s(self) -> float | None:
        """The shortest of those; what makes one longer is that a PC was busy."""
        return min((*self.trips_s, *self._newest_trip), default=None)

    @property
    def _newest_trip(self) -> tuple[float, ...]:
        newest_s = self.connection.round_trip_s
        return () if newest_s is None else (newest_s,)

    def measure(self) -> None:
        """Keep what was measured, and measure anew."""
        self.trips_s.extend(self._newest_trip)
        self.connection.measure_round_trip()

    @property
    def way(self) -> PeerAddress | None:
        """Where the other end listens; None where it hasn't said."""
        remote = remote_of(self.connection)
        if is_dialled(self.connection):
            return remote
        return PeerAddress(remote.host, self.port) if self.port else None


class Sessions:
    """Connections that are sessions of the pool, by the node at their other end.

    Thread: the node's loop.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self._open: dict[NodeId, list[_Session]] = {}
        self._loop = asyncio.get_running_loop()

    @property
    def node_ids(self) -> frozenset[NodeId]:
        """The nodes there is a session with."""
        return frozenset(self._open)

    # ---- what happens to them -------------------------------------------------------------------

    def add(self, connection: Connection) -> bool:
        """Take a connection for a session.

        Args:
            connection: Its peer has said who it is.

        Returns:
            Whether it was none before; False also where its node has enough that are not silent.
        """
        sessions = self._open.setdefault(connection.peer.node_id, [])
        if any(session.connection is connection for session in sessions):
            return False
        now_s = self._loop.time()
        if len(sessions) >= MAX_SESSIONS:
            oldest = min(sessions, key=lambda session: session.heard_s)
            if now_s - oldest.heard_s <= LEASE_S:
                return False
            sessions.remove(oldest)
            oldest.connection.abort()
        sessions.append(_Session(connection, now_s))
        return True

    def remove(self, connection: Connection) -> bool:
        """Forget a connection that has ended.

        Args:
            connection: Whether it was a session or not.

        Returns:
            Whether it was one.
        """
        session = self._session_of(connection)
        if session is None:
            return False
        node_id = connection.peer.node_id
        self._open[node_id].remove(session)
        if not self._open[node_id]:
            del self._open[node_id]
        return True

    def heard(self, connection: Connection, port: int = 0) -> None:
        """Take note that a session is not silent.

        Args:
            connection: Something came over it.
            port: Where its node says that it listens; 0 where it says nothing of it.
        """
        session = self._session_of(connection)
        if session is not None:
            session.heard_s = self._loop.time()
            session.port = port or session.port

    def forgive(self, pause_s: float) -> None:
        """Count a time in which nothing could be heard against none of them."""
        for session in self._all():
            session.heard_s += pause_s

    def measure(self) -> None:
        """Ask for the round trip of each."""
        for session in self._all():
            session.measure()

    # ---- what is known of them ------------------------------------------------------------------

    def round_trip_ms(self, node_id: NodeId) -> float | None:
        """Return the shortest round trip to a node; None before one was measured."""
        trips = [session.round_trip_s for session in self._open.get(node_id, [])]
        return min((1e3 * trip_s for trip_s in trips if trip_s is not None), default=None)

    def ways(self, node_id: NodeId) -> tuple[PeerAddress, ...]:
        """Return where the sessions with a node lead to, the best first, each address once.

        Those that have been silent for a lease are left out.
        """
        now_s = self._loop.time()
        living = [s for s in self._by_choice(node_id) if now_s - s.heard_s <= LEASE_S]
        return tuple(dict.fromkeys(s.way for s in living if s.way is not None))

    def all_ways(self) -> dict[NodeId, tuple[PeerAddress, ...]]:
        """Return ``ways`` of every node there is a session with."""
        return {node_id: self.ways(node_id) for node_id in self._open}

    def way_of(self, connection: Connection) -> PeerAddress | None:
        """Return where a session's other end listens; None where it hasn't said, or is none."""
        session = self._session_of(connection)
        return None if session is None else session.way

    def _by_choice(self, node_id: NodeId) -> list[_Session]:
        sessions = self._open.get(node_id, [])
        now_s = self._loop.time()
        shortest_ms = self.round_trip_ms(node_id) or 0.0

        def drawback(session: _Session) -> tuple[bool, bool]:
            trip_ms = 1e3 * (session.round_trip_s or 0.0)
            is_slower = trip_ms > 2 * shortest_ms and trip_ms > shortest_ms + SLOWER_BY_MS
            return now_s - session.heard_s > SILENT_AFTER_S, is_slower

        return sorted(sessions, key=drawback)  # the oldest first among equals

    def _session_of(self, connection: Connection) -> _Session | None:
        sessions = self._open.get(connection.peer.node_id, [])
        return next((one for one in sessions if one.connection is connection), None)

    def _all(self) -> list[_Session]:
        return [session for sessions in self._open.values() for session in sessions]

    # ---- sending --------------------------------------------------------------------------------

    async def send_to(self, node_id: NodeId, message: Message) -> bool:
        """Send to a node, over its best session that takes it.

        Args:
            node_id: Whom.
            message: What.

        Returns:
            Whether a session took it within ``SEND_WITHIN_S``; the peer may be gone all the same.

        Cancellation: safe; it may be sent all the same.
        """
        return await self._send(node_id, encode_control(message))

    async def send_all(self, message: Message) -> None:
        """Send to every node once; one that takes nothing keeps nobody waiting.

        Args:
            message: What.
        """
        frame = encode_control(message)
        async with asyncio.TaskGroup() as group:
            for node_id in self._open:
                group.create_task(self._send(node_id, frame))

    async def send_every_way(self, message: Message) -> None:
        """Send to every node over each of its sessions, so that both ends know which of them live.

        Args:
            message: What, and it may arrive more than once.
        """
        frame = encode_control(message)
        async with asyncio.TaskGroup() as group:
            for session in self._all():
                group.create_task(_takes(session.connection, frame))

    async def _send(self, node_id: NodeId, frame: bytes) -> bool:
        for session in self._by_choice(node_id):
            if await _takes(session.connection, frame):
                return True
        return False


def is_dialled(connection: Connection) -> bool:
    """Return whether this side opened a connection: then its address is where the peer listens."""
    return "://" in connection.address


def remote_of(connection: Connection) -> PeerAddress:
    """Return the other end of a connection: what was dialled, or where it came from."""
    host, _, port = connection.address.rpartition("://")[2].rpartition(":")
    return PeerAddress(host.removeprefix("[").removesuffix("]"), int(port))


def require_own(connection: Connection, node_id: NodeId, what: str) -> None:
    """Return if a node speaks of itself.

    Args:
        connection: To it.
        node_id: Of whom it speaks.
        what: It says.

    Raises:
        RemoteProtocolError: It speaks of another.
    """
    if node_id != connection.peer.node_id:
        raise RemoteProtocolError(f"{connection.address} sent another node's {what}.")


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

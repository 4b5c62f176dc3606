"""The open sessions with other nodes, and sending over them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from engine.errors import TransportError
from engine.messages.codec import encode_control
from engine.pool.peer_address import PeerAddress

if TYPE_CHECKING:
    from engine.domain import NodeId
    from engine.messages.message import Message
    from engine.transport.connection import Connection

SEND_WITHIN_S = 0.5  # to a peer whose buffer is full; a heartbeat is due every second
MAX_SESSIONS = 4  # with one node: two that dialled at once, over two networks

_SCHEME = "ws://"


class Sessions:
    """Connections that are sessions of the pool, by the node at their other end.

    Two nodes that dialled each other at once have two; the oldest is used while it is open.

    Thread: the node's loop.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self._open: dict[NodeId, list[Connection]] = {}

    @property
    def node_ids(self) -> frozenset[NodeId]:
        """The nodes there is a session with."""
        return frozenset(self._open)

    def add(self, connection: Connection) -> bool:
        """Take a connection for a session.

        Args:
            connection: Its peer has said who it is.

        Returns:
            Whether it was none before; False also where its node has enough of them.
        """
        connections = self._open.setdefault(connection.peer.node_id, [])
        if connection in connections or len(connections) >= MAX_SESSIONS:
            return False
        connections.append(connection)
        return True

    def remove(self, connection: Connection) -> bool:
        """Forget a connection that has ended.

        Args:
            connection: Whether it was a session or not.

        Returns:
            Whether it was one.
        """
        node_id = connection.peer.node_id
        connections = self._open.get(node_id, [])
        if connection not in connections:
            return False
        connections.remove(connection)
        if not connections:
            del self._open[node_id]
        return True

    def round_trip_s(self, node_id: NodeId) -> float | None:
        """Return the round trip to a node, in seconds; None before the first was measured."""
        trips = [connection.round_trip_s for connection in self.of(node_id)]
        return min((trip for trip in trips if trip is not None), default=None)

    def of(self, node_id: NodeId) -> tuple[Connection, ...]:
        """Return the sessions with a node, the oldest first."""
        return tuple(self._open.get(node_id, ()))

    def all(self) -> tuple[Connection, ...]:
        """Return every session."""
        return tuple(one for connections in self._open.values() for one in connections)

    async def send_to(self, node_id: NodeId, message: Message) -> bool:
        """Send to a node, over its oldest session that still takes it.

        Args:
            node_id: Whom.
            message: What.

        Returns:
            Whether a session took it within ``SEND_WITHIN_S``; the peer may be gone all the same.
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

    async def _send(self, node_id: NodeId, frame: bytes) -> bool:
        for connection in self.of(node_id):
            if await _takes(connection, frame):
                return True
        return False


def is_dialled(connection: Connection) -> bool:
    """Return whether this side opened a connection: then its address is where the peer listens."""
    return connection.address.startswith(_SCHEME)


def remote_of(connection: Connection) -> PeerAddress:
    """Return the other end of a connection: what was dialled, or where it came from."""
    host, _, port = connection.address.removeprefix(_SCHEME).rpartition(":")
    return PeerAddress(host.removeprefix("[").removesuffix("]"), int(port))


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

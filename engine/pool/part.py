"""A node's part in the pool, put together: who it is, whom it finds, and what it answers."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

import engine
from engine.messages.codec import encode_control
from engine.messages.control import (
    PROTOCOL_VERSION,
    SHARD_FORMAT,
    AskPoolStatus,
    PoolStatusReport,
)
from engine.messages.pool import Versions
from engine.pool.announcement import Announcement
from engine.pool.discovery import Discovery
from engine.pool.mesh import Mesh
from engine.pool.node_facts import NodeFacts
from engine.pool.participant import Identity, Participant
from engine.pool.sightings import Candidate
from engine.pool.status import pool_status

if TYPE_CHECKING:
    from engine.pool.dialler import Attend
    from engine.pool.node_folder import NodeFolder
    from engine.pool.peer_address import PeerAddress
    from engine.transport.connection import Connection
    from engine.transport.endpoint import Endpoint

OPEN_POOL = "open"  # the one pool there is until PCs are paired


@dataclass(frozen=True, slots=True)
class PoolOptions:
    """How a node takes part in the pool.

    Attributes:
        folder: This node's, held by it.
        name: As its owner calls it.
        interfaces: Names or addresses of the only adapters to use; none for the best there are.
        peers: Addresses to try beside what is found.
        memory_cap_bytes: What its owner lends at most; None for no cap.
    """

    folder: NodeFolder
    name: str
    interfaces: tuple[str, ...] = ()
    peers: tuple[PeerAddress, ...] = ()
    memory_cap_bytes: int | None = None


class PoolPart:
    """One node's part.

    Thread: the node's loop.
    """

    def __init__(self, options: PoolOptions, endpoint: Endpoint, port: int) -> None:
        """Put the parts together; nothing is announced before ``run``.

        Args:
            options: How to take part.
            endpoint: Opens connections.
            port: Where this node listens, on every address.
        """
        node_id = options.folder.node_id
        incarnation = secrets.randbits(63)
        self._port = port
        self._loop = asyncio.get_running_loop()
        self._facts = NodeFacts(node_id, options.name, options.memory_cap_bytes, port=port)
        versions = Versions(engine.__version__, PROTOCOL_VERSION, SHARD_FORMAT)
        participant = Participant(
            Identity(OPEN_POOL, node_id, incarnation, versions),
            self._facts.preference(),
            options.folder.term,
            self._loop.time(),
        )
        announcement = Announcement(
            node_id=node_id,
            run_id=f"{incarnation:016x}",
            port=port,
            protocol_version=PROTOCOL_VERSION,
            shard_format=SHARD_FORMAT,
        )
        known = (peer.parsed() for peer in options.folder.known)
        candidates = (
            *(Candidate(address, "manual") for address in options.peers),
            *(Candidate(address, "known") for address in known if address is not None),
        )
        discovery = Discovery(announcement, options.interfaces, candidates)
        self._mesh = Mesh(participant, endpoint, discovery, options.folder, self._facts)

    async def run(self, attend: Attend) -> None:
        """Find the others and be found, until cancelled.

        Args:
            attend: Serves a connection until it ends.

        Cancellation: the others wait for the lease, unless ``leave`` told them.
        """
        await self._mesh.run(attend)

    async def leave(self) -> None:
        """Tell the others that this node goes."""
        await self._mesh.leave()

    def detach(self, connection: Connection) -> None:
        """Take note that a connection has ended."""
        self._mesh.detach(connection)

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
            case AskPoolStatus():
                status = pool_status(
                    self._mesh, self._mesh.own_report(), self._port, self._loop.time()
                )
                await connection.send(encode_control(PoolStatusReport(status=status)))
            case _:
                return await self._mesh.take(message, connection)
        return True

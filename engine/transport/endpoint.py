"""This node's side of every connection: listening, and connecting.

All tasks are children of the one task group the endpoint was given.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

from engine.errors import (
    DaisyError,
    NotTrustedError,
    PeerTimeoutError,
    RemoteProtocolError,
    TransportError,
    UsageError,
    VersionMismatchError,
)
from engine.messages.codec import shown
from engine.transport.connection import Connection
from engine.transport.session import Liveness, Session
from engine.transport.websocket import PATH, accept_websockets, open_websocket

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Coroutine, Iterator

    from engine.domain import NodeId
    from engine.messages.control import Hello
    from engine.transport.peer_trust import PeerTrust
    from engine.transport.websocket import OnWebsocket, Port, Websocket

CONNECT_WITHIN_S = 5.0  # TCP, TLS, websocket and hello: four round trips, 1 s on a link of 242 ms
SCHEME = "wss"  # there is no other
# That were opened by it, half of all there may be: one PC can't shut the others out.
MAX_OF_ONE_MEMBER = 128

_logger = logging.getLogger(__name__)

OnConnection: TypeAlias = "Callable[[Connection], Awaitable[None]]"


class Listener:
    """A port on which peers may connect.

    Attributes:
        port: The TCP port; the one the system chose where 0 was asked for.
    """

    def __init__(self, port: Port, connections: set[Connection]) -> None:
        """Take over an open port.

        Args:
            port: Accepting.
            connections: Those that are open, kept by ``Endpoint``.
        """
        self.port = port.number
        self._port = port
        self._connections = connections

    @property
    def num_strangers(self) -> int:
        """Connections that have not said hello."""
        return self._port.num_strangers

    async def close(self) -> None:
        """Accept no more, and close what is open; a second time does nothing.

        Cancellation: the port is closed; connections end with their owners.
        """
        self._port.close()
        async with asyncio.TaskGroup() as group:
            for connection in self._connections:
                group.create_task(connection.close("This PC is stopping."))
        await self._port.wait_closed()

    async def run(self) -> None:
        """Stand in the task group for the port until it is closed.

        Cancellation: closes it.
        """
        try:
            await self._port.wait_closed()
        finally:
            await self.close()


@dataclass(frozen=True)
class Endpoint:
    """What all connections of this node share.

    Attributes:
        hello: What the node says of itself.
        group: Parent of every task of every connection; when it is cancelled, all are closed.
        trust: Who may connect, and be connected to; its identity is shown to them.
        liveness: How long to wait for a peer.
    """

    hello: Hello
    group: asyncio.TaskGroup
    trust: PeerTrust
    liveness: Liveness = field(default_factory=Liveness)

    async def listen(
        self,
        host: str,
        port: int,
        on_connection: OnConnection,
        on_joiner: OnWebsocket | None = None,
    ) -> Listener:
        """Accept connections until the listener is closed.

        Args:
            host: An address of this PC; ``0.0.0.0`` for all of IPv4.
            port: 1 to 65535; 0 lets the system choose.
            on_connection: Runs for each peer that has said hello, as a task of the group. The
                connection is closed when it returns. A ``DaisyError`` out of it ends that
                connection only; anything else is a bug, and the group's.
            on_joiner: Runs for each PC that wants to become a member, while ``trust`` lets such in.

        Raises:
            PortInUseError: The port is taken.
            UsageError: The address is not this PC's.
            TransportError: The system does not allow it.

        Cancellation: safe; the port is not open.
        """
        connections: set[Connection] = set()
        by_member: Counter[NodeId] = Counter()

        async def accept(websocket: Websocket) -> None:
            if websocket.is_joiner:
                if on_joiner is not None:
                    await on_joiner(websocket)
                return
            connection = Connection(websocket, self._session(is_listener=True))
            connections.add(connection)
            try:
                await self._accept(connection, websocket, on_connection, by_member)
            finally:
                connections.discard(connection)

        opened = await accept_websockets(
            host,
            port,
            accept,
            hello_within_s=self.liveness.hello_within_s,
            trust=self.trust,
            group=self.group,
        )
        listener = Listener(opened, connections)
        self._adopt(listener.run())
        return listener

    async def connect(
        self, address: str, node_id: NodeId | None, within_s: float = CONNECT_WITHIN_S
    ) -> Connection:
        """Connect to a member of the pool and exchange hellos.

        Args:
            address: ``wss://host:port``.
            node_id: Who must answer; None for whichever member is there.
            within_s: Seconds for all of it.

        Raises:
            UsageError: It is no such address.
            PeerUnreachableError: Nothing listens there, or it closed the connection.
            PeerTimeoutError: It did not answer in time.
            NotTrustedError: It is not who is meant, or does not know this PC.
            VersionMismatchError: It speaks another version of the protocol.
            RemoteProtocolError: It is not Daisy.

        Cancellation: safe; nothing stays open.
        """
        _check_address(address)
        try:
            async with asyncio.timeout(within_s):
                return await self._greet(address, self.trust.client_context(node_id))
        except TimeoutError as exc:
            raise PeerTimeoutError(f"{address}: No answer within {within_s:g} s.") from exc

    async def _greet(self, address: str, context: ssl.SSLContext) -> Connection:
        try:
            websocket = await open_websocket(address, context)
        except TransportError as exc:
            raise type(exc)(f"{address}: {exc.what}", exc.advice) from exc
        connection = Connection(websocket, self._session(is_listener=False))
        with contextlib.ExitStack() as undo:
            undo.callback(connection.abort)
            await self._met(connection, websocket)
            undo.pop_all()
        return connection

    async def _met(self, connection: Connection, websocket: Websocket) -> None:
        """Wait until the peer has said hello, as the member that it is by its certificate.

        Raises:
            RemoteProtocolError: It says that it is another one.

        Fails with ``TransportError`` where it is none, or says nothing.
        """
        member = self.trust.member_at(websocket.shown)
        self._adopt(self._run(connection, member))
        await connection.greeted()
        if connection.peer.node_id != member:
            raise RemoteProtocolError(
                f"{connection.address}: It calls itself {shown(connection.peer.node_id)}, and its "
                f"certificate is that of {member}."
            )

    async def _run(self, connection: Connection, member: NodeId) -> None:
        """Keep a connection for as long as it is open and its member is trusted."""
        try:
            with self.trust.standing_on(member, connection.abort):
                await connection.run()
        except NotTrustedError as exc:  # removed between the handshake and this
            _logger.info("connection: refused %s", exc.what)
            await connection.close(exc.what)

    async def _accept(
        self,
        connection: Connection,
        websocket: Websocket,
        on_connection: OnConnection,
        by_member: Counter[NodeId],
    ) -> None:
        try:
            with self._counted(websocket, by_member):
                await self._met(connection, websocket)
                self._adopt(_attend(connection, on_connection))
                await connection.wait_closed()
        except TransportError as exc:
            _logger.info("connection: refused %s", exc.what)
            connection.abort()
        await connection.wait_closed()

    @contextlib.contextmanager
    def _counted(self, websocket: Websocket, by_member: Counter[NodeId]) -> Iterator[None]:
        """Count a connection to its member's, for as long as the context is open.

        Yields:
            Nothing.

        Raises:
            TransportError: It is no member's any more, or the member has too many.
        """
        member = self.trust.member_at(websocket.shown)
        if by_member[member] >= MAX_OF_ONE_MEMBER:
            raise TransportError(f"{websocket.address}: {member} has opened too many connections.")
        by_member[member] += 1
        try:
            yield
        finally:
            by_member[member] -= 1
            if not by_member[member]:
                del by_member[member]

    def _session(self, *, is_listener: bool) -> Session:
        now_s = asyncio.get_running_loop().time()
        return Session(self.hello, is_listener=is_listener, now_s=now_s, liveness=self.liveness)

    def _adopt(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine as a task of the group.

        Raises:
            TransportError: The group is being cancelled.
        """
        try:
            self.group.create_task(coroutine)
        except RuntimeError as exc:
            coroutine.close()
            raise TransportError("This PC is stopping.") from exc


async def _attend(connection: Connection, on_connection: OnConnection) -> None:
    reason = "The other side is done."
    try:
        await on_connection(connection)
    except (RemoteProtocolError, VersionMismatchError) as exc:
        _logger.info("connection: refused %s", exc.what)
        await connection.refuse(exc)
    except DaisyError as exc:
        _logger.info("connection: ended %s", exc.what)
        reason = exc.what
    finally:
        await connection.close(reason)


def _check_address(address: str) -> None:
    """Check what can be known of an address without asking anyone.

    Raises:
        UsageError: It is not ``wss://host:port``.
    """
    try:
        parts = urlsplit(address)
        is_place = bool(parts.scheme == SCHEME and parts.hostname and parts.port)
    except ValueError as exc:
        raise UsageError(f"{address} is no address: {exc}.") from exc
    if not is_place or parts.path not in {"", PATH} or "@" in parts.netloc:
        raise UsageError(f"{address} is no address; it must be {SCHEME}://host:port.")

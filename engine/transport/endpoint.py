"""This node's side of every connection: listening, and connecting.

All tasks are children of the one task group the endpoint was given.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

from engine.errors import (
    DaisyError,
    PeerTimeoutError,
    RemoteProtocolError,
    TransportError,
    UsageError,
    VersionMismatchError,
)
from engine.transport.connection import Connection
from engine.transport.session import Liveness, Session
from engine.transport.websocket import PATH, accept_websockets, open_websocket

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Coroutine

    from engine.messages.control import Hello
    from engine.transport.websocket import Port, Websocket

CONNECT_WITHIN_S = 5.0  # TCP, websocket and hello: three round trips, 0.7 s on a link of 242 ms

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
        liveness: How long to wait for a peer.
        ssl_context: For TLS; None for none.
    """

    hello: Hello
    group: asyncio.TaskGroup
    liveness: Liveness = field(default_factory=Liveness)
    ssl_context: ssl.SSLContext | None = None

    async def listen(self, host: str, port: int, on_connection: OnConnection) -> Listener:
        """Accept connections until the listener is closed.

        Args:
            host: An address of this PC; ``0.0.0.0`` for all of IPv4.
            port: 1 to 65535; 0 lets the system choose.
            on_connection: Runs for each peer that has said hello, as a task of the group. The
                connection is closed when it returns. A ``DaisyError`` out of it ends that
                connection only; anything else is a bug, and the group's.

        Raises:
            PortInUseError: The port is taken.
            UsageError: The address is not this PC's.
            TransportError: The system does not allow it.

        Cancellation: safe; the port is not open.
        """
        connections: set[Connection] = set()

        async def accept(websocket: Websocket) -> None:
            connection = Connection(websocket, self._session(is_listener=True))
            connections.add(connection)
            try:
                await self._accept(connection, on_connection)
            finally:
                connections.discard(connection)

        opened = await accept_websockets(
            host,
            port,
            accept,
            hello_within_s=self.liveness.hello_within_s,
            ssl_context=self.ssl_context,
        )
        listener = Listener(opened, connections)
        self._adopt(listener.run())
        return listener

    async def connect(self, address: str, within_s: float = CONNECT_WITHIN_S) -> Connection:
        """Connect to a peer and exchange hellos.

        Args:
            address: ``ws://host:port``.
            within_s: Seconds for all of it.

        Raises:
            UsageError: It is no such address.
            PeerUnreachableError: Nothing listens there, or it closed the connection.
            PeerTimeoutError: It did not answer in time.
            VersionMismatchError: It speaks another version of the protocol.
            RemoteProtocolError: It is not Daisy.

        Cancellation: safe; nothing stays open.
        """
        _check_address(address, self.ssl_context)
        try:
            async with asyncio.timeout(within_s):
                return await self._greet(address)
        except TimeoutError as exc:
            raise PeerTimeoutError(f"{address}: No answer within {within_s:g} s.") from exc

    async def _greet(self, address: str) -> Connection:
        try:
            websocket = await open_websocket(address, self.ssl_context)
        except TransportError as exc:
            raise type(exc)(f"{address}: {exc.what}", exc.advice) from exc
        connection = Connection(websocket, self._session(is_listener=False))
        with contextlib.ExitStack() as undo:
            undo.callback(connection.abort)
            self._adopt(connection.run())
            await connection.greeted()
            undo.pop_all()
        return connection

    async def _accept(self, connection: Connection, on_connection: OnConnection) -> None:
        try:
            self._adopt(connection.run())
            await connection.greeted()
            self._adopt(_attend(connection, on_connection))
        except TransportError as exc:
            _logger.info("connection: refused %s", exc.what)
            connection.abort()
        await connection.wait_closed()

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


def _check_address(address: str, ssl_context: ssl.SSLContext | None) -> None:
    """Check what can be known of an address without asking anyone.

    Raises:
        UsageError: It is not ``ws://host:port``, or ``wss://host:port`` with TLS.
    """
    scheme = "ws" if ssl_context is None else "wss"
    try:
        parts = urlsplit(address)
        is_place = bool(parts.scheme == scheme and parts.hostname and parts.port)
    except ValueError as exc:
        raise UsageError(f"{address} is no address: {exc}.") from exc
    if not is_place or parts.path not in {"", PATH} or "@" in parts.netloc:
        raise UsageError(f"{address} is no address; it must be {scheme}://host:port.")

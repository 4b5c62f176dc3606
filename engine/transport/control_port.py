"""The port for programs of the same PC and person: the command line, and the window.

It listens on loopback only. Whoever connects first shows a token that lies in a file only this
person can read, and then speaks the same frames as nodes do, each behind its length (u32,
little-endian). A browser that was led here speaks HTTP, whose first bytes are no frame: it is cut
off before anything is looked at, so there are no origins and hosts to check.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import struct
from typing import TYPE_CHECKING

from engine.domain import NodeId
from engine.errors import (
    DaisyError,
    PeerTimeoutError,
    PeerUnreachableError,
    RemoteProtocolError,
    TransportError,
)
from engine.messages.codec import decode, encode_control
from engine.messages.control import PROTOCOL_VERSION, SHARD_FORMAT, Hello
from engine.messages.limits import MAX_CONTROL_BYTES, MAX_HELLO_BYTES
from engine.messages.pool_control import OpenControl

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

LOOPBACK = "127.0.0.1"
OPEN_WITHIN_S = 3.0  # from connecting to the token, and from that to the answer
CLOSE_WITHIN_S = 1.0
RETRIES_S = (0.05, 0.2, 0.5)
MAX_STRANGERS = 64  # connections that have not shown the token; of more, the oldest is closed
_LENGTH = struct.Struct("<I")

_logger = logging.getLogger(__name__)


class ControlConnection:
    """A connection between a node and a program of the same PC.

    Attributes:
        address: For sentences and logs.

    Thread: the event loop's.
    """

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: str
    ) -> None:
        """Take over an open socket.

        Args:
            reader: Its receiving side.
            writer: Its sending side.
            address: For sentences and logs.
        """
        self.address = address
        self._reader = reader
        self._writer = writer
        self._next_length: int | None = None
        self._peer: Hello | None = None
        self._is_closed = False

    @property
    def peer(self) -> Hello:
        """What the other side said of itself.

        Raises:
            TransportError: It has not yet.
        """
        if self._peer is None:
            raise TransportError(f"{self.address}: It has not said hello yet.")
        return self._peer

    @peer.setter
    def peer(self, hello: Hello) -> None:
        self._peer = hello

    async def send(self, frame: bytes) -> None:
        """Send one frame; waits while the other side takes nothing.

        Args:
            frame: As the codec made it.

        Raises:
            PeerUnreachableError: The connection has ended.
        """
        if self._is_closed or self._writer.is_closing():
            raise PeerUnreachableError(f"{self.address}: The connection was closed.")
        try:
            self._writer.writelines((_LENGTH.pack(len(frame)), frame))
            await self._writer.drain()
        except OSError as exc:
            raise PeerUnreachableError(f"{self.address}: The connection broke.") from exc

    async def receive(self, max_bytes: int = MAX_CONTROL_BYTES) -> bytes:
        """Return the next frame.

        Args:
            max_bytes: That it may have.

        Raises:
            PeerUnreachableError: The connection has ended.
            RemoteProtocolError: The frame is longer.

        Cancellation: safe; the next call returns it.
        """
        try:
            if self._next_length is None:
                (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
                if length > max_bytes:
                    raise RemoteProtocolError(f"{self.address}: A frame of {length} bytes came.")
                self._next_length = length
            frame = await self._reader.readexactly(self._next_length)
        except (asyncio.IncompleteReadError, OSError) as exc:
            raise PeerUnreachableError(f"{self.address}: It left.") from exc
        self._next_length = None
        return frame

    async def close(self, reason: str) -> None:
        """Close; what was sent before still goes out. A second time does nothing.

        Args:
            reason: For the log.
        """
        if self._is_closed:
            return
        self._is_closed = True
        _logger.debug("%s: closed, %s", self.address, reason)
        self._writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(CLOSE_WITHIN_S):
                await self._writer.wait_closed()

    def abort(self) -> None:
        """Close at once."""
        self._is_closed = True
        self._writer.transport.abort()


class ControlPort:
    """A node's control port.

    Attributes:
        number: The TCP port on loopback.
        token: That opens it.
    """

    def __init__(
        self,
        token: str,
        hello: Hello,
        attend: Callable[[ControlConnection], Awaitable[None]],
        group: asyncio.TaskGroup,
    ) -> None:
        """Begin closed.

        Args:
            token: That opens it.
            hello: What the node says of itself.
            attend: Serves a connection until it ends.
            group: Parent of the connections' tasks.
        """
        self.number = 0
        self.token = token
        self._hello = hello
        self._attend = attend
        self._group = group
        self._strangers: dict[ControlConnection, None] = {}  # the oldest first
        self._open: set[ControlConnection] = set()
        self._server: asyncio.Server | None = None

    async def listen(self) -> None:
        """Accept connections until ``close``; the system chooses the port."""
        self._server = await asyncio.start_server(self._on_connected, LOOPBACK, 0)
        self.number = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Accept no more, and close what is open."""
        if self._server is not None:
            self._server.close()
        for connection in list(self._open):
            await connection.close("The node is stopping.")

    def _on_connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = writer.get_extra_info("peername")[:2]
        connection = ControlConnection(reader, writer, f"{host}:{port}")
        if len(self._strangers) >= MAX_STRANGERS:
            # A program with the token shows it at once: who has waited longest has none.
            next(iter(self._strangers)).abort()
        self._strangers[connection] = None
        self._group.create_task(self._serve(connection))

    async def _serve(self, connection: ControlConnection) -> None:
        self._open.add(connection)
        try:
            if await self._is_let_in(connection):
                await self._attend(connection)
        except DaisyError as error:
            _logger.info("control: %s", error.what)
        finally:
            self._open.discard(connection)
            await connection.close("It ended.")

    async def _is_let_in(self, connection: ControlConnection) -> bool:
        try:
            async with asyncio.timeout(OPEN_WITHIN_S):
                said = decode(await connection.receive(MAX_HELLO_BYTES))
        except TimeoutError:
            return False
        finally:
            self._strangers.pop(connection, None)
        if not isinstance(said, OpenControl):
            return False
        if not hmac.compare_digest(said.token.encode(), self.token.encode()):
            _logger.warning("control: somebody on this PC came without the right token")
            return False
        connection.peer = _asker_hello(said.product_version)
        await connection.send(encode_control(self._hello))
        return True


async def connect_control(port: int, token: str, product_version: str) -> ControlConnection:
    """Connect to a node of this PC.

    Args:
        port: Its control port.
        token: As the node wrote it down.
        product_version: Of the program that connects.

    Raises:
        PeerUnreachableError: None listens there, or it is another one's port by now.

    Fails with ``PeerTimeoutError`` if it does not answer, with ``RemoteProtocolError`` if what
    answers is no node.

    Cancellation: safe; nothing stays open.
    """
    for pause_s in RETRIES_S:
        try:
            return await _connect_once(port, token, product_version)
        except _CutOffError:
            await asyncio.sleep(pause_s)  # a crowd at the port; it is short
    try:
        return await _connect_once(port, token, product_version)
    except _CutOffError as exc:
        raise PeerUnreachableError("The node of this PC lets nobody in.") from exc


class _CutOffError(Exception):
    """The port took the connection and closed it without a word."""


async def _connect_once(port: int, token: str, product_version: str) -> ControlConnection:
    """Connect and show the token.

    Raises:
        PeerUnreachableError: None listens there.
        PeerTimeoutError: It does not answer.
        RemoteProtocolError: What answers is no node.
        _CutOffError: It closed without a word.
    """
    connection: ControlConnection | None = None
    try:
        async with asyncio.timeout(OPEN_WITHIN_S):
            streams = await asyncio.open_connection(LOOPBACK, port)
            connection = ControlConnection(*streams, f"{LOOPBACK}:{port}")
            opening = OpenControl(token=token, product_version=product_version)
            await connection.send(encode_control(opening))
            try:
                frame = await connection.receive(MAX_HELLO_BYTES)
            except PeerUnreachableError as exc:
                raise _CutOffError from exc
            hello = decode(frame)
            if not isinstance(hello, Hello):
                raise RemoteProtocolError(f"{connection.address}: It is no node.")
            connection.peer = hello
            opened, connection = connection, None
            return opened
    except TimeoutError as exc:
        raise PeerTimeoutError("The node of this PC does not answer.") from exc
    except OSError as exc:
        raise PeerUnreachableError("No node listens on this PC.") from exc
    finally:
        if connection is not None:
            connection.abort()


def _asker_hello(product_version: str) -> Hello:
    return Hello(
        protocol_version=PROTOCOL_VERSION,
        product_version=product_version,
        shard_format=SHARD_FORMAT,
        node_id=NodeId("asker"),
    )

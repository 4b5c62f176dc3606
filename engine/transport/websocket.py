"""Websockets as this program uses them: the only file that knows the library.

Binary messages whole, no compression, no proxy, no redirect, no Origin; a stranger may send no
more than a hello, and few strangers are let in. A gate stands before each connection that comes
in, so the library hears only of those that TLS let through; a member reaches ``/`` and whoever
wants to become one ``/pair``, and nothing else. Everything the library raises is translated here,
into sentences without the peer's address, which ``connection`` puts before them. The library's own
log is silenced: what it has to say of a stranger's garbage is no news.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import http
import logging
import socket
import ssl
from typing import TYPE_CHECKING, TypeAlias, cast

from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import Server, ServerConnection, broadcast, serve
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI

from engine.errors import (
    DaisyError,
    LocalProtocolError,
    PeerUnreachableError,
    PortInUseError,
    RemoteProtocolError,
    TransportError,
    UsageError,
)
from engine.messages.codec import shown
from engine.messages.limits import MAX_FRAME_BYTES, MAX_HELLO_BYTES
from engine.transport.admission import Admission
from engine.transport.peer_trust import shown_by
from engine.transport.ports import holder_of
from engine.transport.tls import tls_failure
from engine.transport.tls_gate import TlsGate, behind_gates

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from websockets.http11 import Request, Response

    from engine.transport.peer_trust import PeerTrust, Shown

PATH = "/"  # of members
PAIR_PATH = "/pair"  # of whoever wants to become one
CLOSE_WITHIN_S = 1.0  # for the closing handshake; then the socket is closed anyway
# Two prefill chunks of 512 rows, 8192 wide, in f16: the next one computes while one travels.
WRITE_BUFFER_BYTES = 16 << 20
# Frames the library may hold before it stops reading; the inbox behind it is the real queue.
LIBRARY_QUEUE_FRAMES = 8

CLOSE_NORMAL = 1000
CLOSE_PROTOCOL_FAULT = 1002
_FAULT_CODES = frozenset({CLOSE_PROTOCOL_FAULT, 1003, 1007, 1009})
_MAX_REASON_BYTES = 123  # RFC 6455, 5.5: a close frame's payload is 125 bytes, 2 of them the code

_library_logger = logging.getLogger(f"{__name__}.websockets")
_library_logger.setLevel(logging.CRITICAL)

OnWebsocket: TypeAlias = "Callable[[Websocket], Awaitable[None]]"


class Websocket:
    """One websocket whose own handshake is done.

    Attributes:
        address: The peer's, ``host:port``, or as it was asked for.

    Thread: the event loop's.
    """

    def __init__(
        self,
        connection: ClientConnection | ServerConnection,
        address: str,
        greeted: Callable[[], None] | None = None,
    ) -> None:
        """Take over the library's connection.

        Args:
            connection: The library's.
            address: The peer's.
            greeted: Told when the peer has said hello; None where nobody counts strangers.
        """
        self.address = address
        self._connection = connection
        self._greeted = greeted
        tcp: socket.socket = connection.transport.get_extra_info("socket")
        tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @property
    def shown(self) -> Shown:
        """What the other side showed in its handshake."""
        return shown_by(self._connection.transport.get_extra_info("ssl_object"))

    @property
    def is_joiner(self) -> bool:
        """Whether the other side asked to pair, and nothing else."""
        request = self._connection.request
        return request is not None and request.path == PAIR_PATH

    @property
    def is_congested(self) -> bool:
        """Whether ``drain`` would wait."""
        return self._connection.transport.get_write_buffer_size() > WRITE_BUFFER_BYTES

    async def receive(self) -> bytes:
        """Return the next message.

        Raises:
            RemoteProtocolError: It is text, too long, or no websocket message at all.
            LocalProtocolError: The peer closed the connection because of what this side sent.
            PeerUnreachableError: The connection was closed or lost.

        Cancellation: safe; nothing is lost.
        """  # noqa: DOC501 - translated by a function
        try:
            message = await self._connection.recv()
        except ConnectionClosed as exc:
            raise _why_closed(exc) from exc
        if isinstance(message, str):
            raise RemoteProtocolError("It sent text; every message is binary.")
        return message

    def write(self, frame: bytes) -> None:
        """Put a message into the buffer at once; on a closing connection it is dropped."""
        broadcast((self._connection,), frame)  # the library's one way to write without waiting

    async def drain(self) -> None:
        """Wait until no more than ``WRITE_BUFFER_BYTES`` are in the buffer.

        Raises:
            PeerUnreachableError: The connection was lost meanwhile.

        Cancellation: safe.
        """
        try:
            await self._connection.drain()
        except OSError as exc:
            raise PeerUnreachableError("The connection was lost.") from exc

    def trust_hello(self) -> None:
        """Let the peer, no longer a stranger, send whole frames."""
        self._connection.protocol.max_message_size = MAX_FRAME_BYTES
        if self._greeted is not None:
            self._greeted()

    async def close(self, code: int, reason: str) -> None:
        """Close in good order, within ``CLOSE_WITHIN_S``; a second time does nothing.

        Args:
            code: Of RFC 6455, 7.4.
            reason: One sentence; cut to what a close frame holds.

        Cancellation: the socket is closed at once.
        """
        short = shown(reason).encode()[:_MAX_REASON_BYTES].decode(errors="ignore")
        try:
            await self._connection.close(code, short)
        finally:
            self.abort()

    def abort(self) -> None:
        """Close the socket at once."""
        self._connection.transport.abort()

    async def wait_closed(self) -> None:
        """Wait until the socket is closed.

        Cancellation: safe.
        """
        await self._connection.wait_closed()


class Port:
    """A TCP port on which websockets are accepted."""

    def __init__(self, server: Server, admission: Admission[TlsGate]) -> None:
        """Take over a server that is listening.

        Args:
            server: The library's.
            admission: Where its connections are counted.
        """
        self._server = server
        self._admission = admission
        self.number: int = server.sockets[0].getsockname()[1]

    @property
    def num_strangers(self) -> int:
        """Connections that have not said hello."""
        return len(self._admission.strangers)

    def close(self) -> None:
        """Accept no more and drop the strangers; who has said hello stays."""
        self._server.close(close_connections=False)
        for stranger in self._admission.strangers:
            if stranger.transport is not None:
                stranger.transport.abort()

    async def wait_closed(self) -> None:
        """Wait until the port and everything that came in through it is closed.

        Cancellation: safe.
        """
        await self._server.wait_closed()


async def open_websocket(address: str, context: ssl.SSLContext) -> Websocket:
    """Connect; there is no time limit but the system's own.

    Args:
        address: ``wss://host:port``, with ``/pair`` behind it to join a pool.
        context: Says who may answer there, and what is shown to it.

    Raises:
        PeerUnreachableError: Nothing listens there, or it is not willing.
        NotTrustedError: It is not who is meant, or does not know this PC.
        RemoteProtocolError: What answers speaks no websocket, or no TLS.
        TimeoutError: The system's own limit passed.

    Cancellation: safe; nothing stays open.
    """  # noqa: DOC501 - translated by a function
    try:
        connection = await _DirectConnect(
            address,
            compression=None,
            proxy=None,
            user_agent_header=None,
            open_timeout=None,
            ping_interval=None,  # the session has its own
            close_timeout=CLOSE_WITHIN_S,
            max_size=MAX_FRAME_BYTES,
            max_queue=LIBRARY_QUEUE_FRAMES,
            write_limit=WRITE_BUFFER_BYTES,
            logger=_library_logger,
            ssl=context,
        )
    except InvalidHandshake as exc:
        raise _why_no_handshake(exc) from exc
    except (ssl.SSLError, ConnectionResetError, ConnectionAbortedError) as exc:
        raise tls_failure(exc, is_secured=False) from exc
    except TimeoutError:
        raise
    except OSError as exc:
        raise PeerUnreachableError(f"It can't be reached: {exc.strerror or exc}.") from exc
    except (InvalidURI, ValueError) as exc:  # what the library or the resolver can't even read
        raise PeerUnreachableError("It is no address.") from exc
    return Websocket(connection, address)


async def accept_websockets(
    host: str,
    port: int,
    on_websocket: OnWebsocket,
    *,
    hello_within_s: float,
    trust: PeerTrust,
    group: asyncio.TaskGroup,
) -> Port:
    """Open a port.

    Args:
        host: An address of this PC.
        port: 0 lets the system choose.
        on_websocket: Runs for each websocket in a task of the library's; the websocket is closed
            when it returns.
        hello_within_s: Seconds for the handshake of TLS, and again for the websocket's own.
        trust: Who may come in.
        group: Parent of the handshakes.

    Raises:
        DaisyError: The port can't be opened: ``PortInUseError`` where it is taken, ``UsageError``
            where the host is not this PC's, ``TransportError`` otherwise.

    Cancellation: safe; the port is not open.
    """
    admission: Admission[TlsGate] = Admission()

    async def take_over(connection: ServerConnection) -> None:
        peer_host, peer_port = connection.remote_address[:2]
        shown_host = f"[{peer_host}]" if ":" in peer_host else peer_host
        greeted = functools.partial(admission.greet, _gate_of(connection))
        await on_websocket(Websocket(connection, f"{shown_host}:{peer_port}", greeted))

    made = behind_gates(ServerConnection, trust, admission, group, hello_within_s)
    try:
        server = await serve(
            take_over,
            host,
            port,
            origins=[None],  # a browser always sends one, and has no business here
            compression=None,
            process_request=functools.partial(_refuse_other_paths, trust),
            server_header=None,
            open_timeout=hello_within_s,
            ping_interval=None,
            close_timeout=CLOSE_WITHIN_S,
            max_size=MAX_HELLO_BYTES,
            max_queue=LIBRARY_QUEUE_FRAMES,
            write_limit=WRITE_BUFFER_BYTES,
            logger=_library_logger,
            create_connection=made,  # type: ignore[arg-type]  # it is only called
        )
    except OSError as exc:
        raise await _why_not_listening(host, port, exc) from exc
    return Port(server, admission)


class _DirectConnect(connect):
    """A connect that stays with the address it was given: a peer can't send us elsewhere."""

    def process_redirect(self, exc: Exception) -> Exception:
        return exc


def _gate_of(connection: ServerConnection) -> TlsGate:
    return cast("TlsGate", connection.transport.get_protocol())


def _refuse_other_paths(
    trust: PeerTrust, connection: ServerConnection, request: Request
) -> Response | None:
    shown = shown_by(connection.transport.get_extra_info("ssl_object"))
    if request.path == (PAIR_PATH if trust.is_joiner(shown) else PATH):
        return None
    return connection.respond(http.HTTPStatus.FORBIDDEN, "There is nothing here.\n")


def _why_closed(closed: ConnectionClosed) -> TransportError:
    is_answer = closed.rcvd_then_sent  # a close frame is answered with the code it came with
    if closed.sent is not None and closed.sent.code in _FAULT_CODES and not is_answer:
        return RemoteProtocolError(f"It sent no message of Daisy's: {shown(closed.sent.reason)}.")
    if closed.rcvd is None:
        return PeerUnreachableError("The connection was lost.")
    reason = shown(closed.rcvd.reason) or f"code {closed.rcvd.code}"
    if closed.rcvd.code in _FAULT_CODES:
        return LocalProtocolError(f"It refused what this PC sent: {reason}")
    return PeerUnreachableError(f"It closed the connection: {reason}")


def _why_no_handshake(exc: InvalidHandshake) -> TransportError:
    cause = exc.__cause__
    if isinstance(cause, EOFError):
        return tls_failure(None, is_secured=True)
    if isinstance(cause, OSError):
        return tls_failure(cause, is_secured=True)
    if isinstance(exc, InvalidStatus) and exc.response.status_code >= 500:
        return PeerUnreachableError(f"It is not ready: HTTP {exc.response.status_code}.")
    return RemoteProtocolError(f"It does not answer as Daisy does: {shown(str(exc))}.")


async def _why_not_listening(host: str, port: int, exc: OSError) -> DaisyError:
    if exc.errno == errno.EADDRINUSE:
        holder = await asyncio.to_thread(holder_of, port)
        by_whom = f" by {holder}" if holder else " by another program"
        return PortInUseError(f"Port {port} is taken{by_whom}.")
    if isinstance(exc, socket.gaierror) or exc.errno == errno.EADDRNOTAVAIL:
        return UsageError(f"{host} is not an address of this PC.")
    reason = exc.strerror or exc
    return TransportError(f"Port {port} can't be opened: {reason}.", "Choose another port.")

"""A session and its websocket together: what the rest of the program holds.

A connection has one owner task (``run``) with two below it: one reads frames into a bounded inbox
and answers pings at once, whatever the program is doing; one lets time pass. Sending writes into
the socket's buffer at once and waits only while that is full, so frames leave in the order of the
calls. It ends once, with one reason, and everyone who waits is told that reason.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from engine.errors import (
    LocalProtocolError,
    PeerTimeoutError,
    PeerUnreachableError,
    RemoteProtocolError,
    TransportError,
    VersionMismatchError,
)
from engine.transport.inbox import Inbox
from engine.transport.session import FrameReceived, PeerGreeted, PeerLeft
from engine.transport.websocket import CLOSE_NORMAL, CLOSE_PROTOCOL_FAULT

if TYPE_CHECKING:
    from engine.messages.control import Hello
    from engine.transport.session import Event, Session
    from engine.transport.websocket import Websocket


class Connection:
    """A connection to a peer.

    Attributes:
        address: The peer's, for sentences and logs.

    Thread: the event loop's.
    """

    def __init__(self, websocket: Websocket, session: Session) -> None:
        """Put the two together; nothing is sent before ``run``.

        Args:
            websocket: Open.
            session: In its first state.
        """
        self.address = websocket.address
        self._websocket = websocket
        self._session = session
        self._inbox = Inbox()
        self._failure: TransportError | None = None
        self._ended = asyncio.Event()
        self._settled = asyncio.Event()  # greeted, or ended before that
        self._loop = asyncio.get_running_loop()

    @property
    def peer(self) -> Hello:
        """What the peer said of itself.

        Raises:
            LocalProtocolError: It has not yet; no such connection is handed out.
        """
        if self._session.peer is None:
            raise LocalProtocolError(f"{self.address}: It has not said hello yet.")
        return self._session.peer

    @property
    def round_trip_s(self) -> float | None:
        """Seconds from the last answered ping to its answer; None before the first."""
        return self._session.round_trip_s

    def measure_round_trip(self) -> None:
        """Ask the peer for an answer, so that ``round_trip_s`` is as it is now; waits for nothing.

        A peer that is heard often is never asked else. On a connection that has ended it does
        nothing.
        """
        if self._failure is None and not self._websocket.is_congested:
            self._session.measure(self._loop.time())
            self._write()

    async def send(self, frame: bytes) -> None:
        """Send one frame; frames leave in the order of the calls.

        Returns when the frame is on its way or in the buffer, not when it has arrived. While the
        buffer is full (``WRITE_BUFFER_BYTES``) it waits for room.

        Args:
            frame: As the codec made it.

        Raises:
            TransportError: The connection has ended; the error says how.
            LocalProtocolError: The frame is not the program's to send.

        Cancellation: safe; the frame is sent all the same.
        """
        self._check_not_ended()
        self._session.send(frame)
        self._write()
        try:
            await self._websocket.drain()
        except PeerUnreachableError as exc:
            raise self._named(exc) from exc

    async def receive(self) -> bytes:
        """Return the next frame, undecoded; frames that came before the end are all returned.

        Raises:
            TransportError: The connection has ended; the error says how.
            LocalProtocolError: Another task is receiving from this connection.

        Cancellation: safe; no frame is lost, the next call returns it.
        """
        return await self._inbox.take()

    async def close(self, reason: str) -> None:
        """Say goodbye and close; a second time does nothing.

        Takes at most ``CLOSE_WITHIN_S``, in which what was sent before still goes out.

        Args:
            reason: One sentence for the other side.

        Cancellation: the socket is closed at once.
        """
        if self._failure is None:
            self._session.leave(reason, self._loop.time())
            self._write()
            self._end(TransportError(f"{self.address}: This side closed it. {reason}"))
        await self._websocket.close(CLOSE_NORMAL, reason)

    async def refuse(self, error: TransportError) -> None:
        """Close because of what the peer sent; it is told in the websocket's own close frame.

        Args:
            error: What was wrong with it.
        """
        self._end(self._named(error))
        await self._websocket.close(CLOSE_PROTOCOL_FAULT, error.what)

    # ---- the owner's part -----------------------------------------------------------------

    async def run(self) -> None:
        """Keep the connection until it has ended.

        Cancellation: the socket is closed at once, without a goodbye.
        """
        self._write()  # the connecting side's hello
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._read())
                group.create_task(self._keep_time())
        finally:
            self._end(TransportError(f"{self.address}: This side dropped the connection."))
            self._websocket.abort()

    async def greeted(self) -> None:
        """Wait until the peer has said hello.

        Raises:
            TransportError: The connection ended before.

        Cancellation: safe.
        """
        await self._settled.wait()
        if self._session.peer is None:
            self._check_not_ended()

    def abort(self) -> None:
        """Close the socket at once; its owner ends."""
        self._websocket.abort()

    async def wait_closed(self) -> None:
        """Wait until the socket is closed.

        Cancellation: safe.
        """
        await self._websocket.wait_closed()

    async def _read(self) -> None:
        try:
            while True:
                frame = await self._websocket.receive()
                events = self._session.receive(frame, self._loop.time())
                if not self._websocket.is_congested:
                    self._write()  # a hello or a pong; a peer that reads nothing gets no more
                for event in events:
                    await self._take(event)
        except (RemoteProtocolError, VersionMismatchError) as exc:
            self._write()  # the hello that names our version
            await self.refuse(exc)
        except TransportError as exc:
            self._end(self._named(exc))
        self._session.lose()

    async def _take(self, event: Event) -> None:
        match event:
            case FrameReceived():
                await self._take_frame(event)
            case PeerGreeted():
                self._websocket.trust_hello()
                self._settled.set()
            case PeerLeft():
                self._end(PeerUnreachableError(f"{self.address}: It left. {event.reason}"))
                await self._websocket.close(CLOSE_NORMAL, "")

    async def _take_frame(self, event: FrameReceived) -> None:
        if not self._inbox.is_full:
            await self._inbox.put(bytes(event.frame))
            return
        self._session.stop_reading()
        await self._inbox.put(bytes(event.frame))
        self._session.resume_reading(self._loop.time())

    async def _keep_time(self) -> None:
        while not self._ended.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(self._session.next_deadline_s):
                    await self._ended.wait()
            try:
                self._session.tick(self._loop.time())
            except PeerTimeoutError as exc:
                self._end(self._named(exc))
                self._websocket.abort()
            else:
                self._write()

    def _write(self) -> None:
        for frame in self._session.data_to_send():
            self._websocket.write(frame)

    def _end(self, failure: TransportError) -> None:
        """Note why the connection ended; the first reason stands."""
        if self._failure is None:
            self._failure = failure
            self._inbox.end(failure)
            self._ended.set()
            self._settled.set()

    def _check_not_ended(self) -> None:
        """Return if the connection has not ended.

        Raises:
            TransportError: It has; the error says how.
        """
        if self._failure is not None:
            raise self._failure.with_traceback(None)

    def _named(self, error: TransportError) -> TransportError:
        return type(error)(f"{self.address}: {error.what}", error.advice)

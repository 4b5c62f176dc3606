"""What stands between a TCP connection and its protocol until TLS says who is there.

``create_server(ssl=…)`` would tell nobody of a connection before its handshake is over, so nobody
could count those that never end. A gate is there from the first byte of TCP: it asks for
admission, gives the handshake a deadline, and lets the protocol behind it know of the connection
only once it is secured and the other side is somebody who may speak.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, cast

from engine.errors import NotTrustedError
from engine.transport.peer_trust import shown_by
from engine.transport.tls import tls_failure

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from engine.transport.admission import Admission
    from engine.transport.peer_trust import PeerTrust

HANDSHAKE_WITHIN_S = 3.0  # a healthy PC takes milliseconds; who doesn't holds a place

_logger = logging.getLogger(__name__)


class TlsGate(asyncio.Protocol):
    """Stands before one protocol, on the listening side.

    Attributes:
        transport: TCP at first, then TLS; None before there is a connection.

    Thread: the event loop's.
    """

    def __init__(
        self,
        behind: asyncio.Protocol,
        trust: PeerTrust,
        admission: Admission[TlsGate],
        group: asyncio.TaskGroup,
        within_s: float = HANDSHAKE_WITHIN_S,
    ) -> None:
        """Stand before a protocol that knows of no connection yet.

        Args:
            behind: Told of the connection when it is secured, and of everything from then on.
            trust: Who may speak, and the context of the handshake.
            admission: Where connections are counted; this one until it is lost.
            group: Parent of the handshake's task.
            within_s: Seconds for the handshake.
        """
        self.transport: asyncio.Transport | None = None
        self._behind = behind
        self._trust = trust
        self._admission = admission
        self._group = group
        self._within_s = within_s
        self._early: list[bytes] = []
        self._is_through = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for admission, and begin the handshake."""
        tcp = cast("asyncio.Transport", transport)
        self.transport = tcp
        is_in, instead_of = self._admission.admit(self, tcp.get_extra_info("peername")[0])
        if instead_of is not None and instead_of.transport is not None:
            instead_of.transport.abort()
        if not is_in:
            tcp.abort()
            return
        securing = self._secure(tcp)
        try:
            self._group.create_task(securing)
        except RuntimeError:  # the node is stopping
            securing.close()
            tcp.abort()

    def data_received(self, data: bytes) -> None:
        """Hand on what was decrypted; what came right behind the handshake waits.

        Until ``start_tls`` puts TLS in between nothing is read; should a byte come all the same,
        the connection ends.
        """
        if self._is_through:
            self._behind.data_received(data)
        else:
            self._early.append(data)

    def eof_received(self) -> bool | None:
        """Hand on the end."""
        return self._behind.eof_received() if self._is_through else None

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the place free."""
        self._admission.leave(self)
        if self._is_through:
            self._behind.connection_lost(exc)

    def pause_writing(self) -> None:
        """Hand on that the buffer is full."""
        if self._is_through:
            self._behind.pause_writing()

    def resume_writing(self) -> None:
        """Hand on that there is room again."""
        if self._is_through:
            self._behind.resume_writing()

    async def _secure(self, tcp: asyncio.Transport) -> None:
        loop = asyncio.get_running_loop()
        if self._early:
            # Said in clear, by nobody knows whom; it must never pass for what TLS brought.
            tcp.abort()
            return
        try:
            secured = await loop.start_tls(
                tcp,
                self,
                self._trust.server_context,
                server_side=True,
                ssl_handshake_timeout=self._within_s,
            )
        except OSError as error:  # ssl.SSLError and the deadline's are of it
            _logger.info("tls: refused, %s", tls_failure(error, is_secured=False).what)
            tcp.abort()
            self._admission.leave(self)
            return
        if secured is None or tcp.is_closing():
            self._admission.leave(self)
            return
        self.transport = secured
        if not self._may_speak(secured.get_extra_info("ssl_object")):
            secured.abort()
            return
        self._is_through = True
        self._behind.connection_made(secured)
        for data in self._early:
            self._behind.data_received(data)
        self._early.clear()

    def _may_speak(self, tls: ssl.SSLObject) -> bool:
        shown = shown_by(tls)
        if self._trust.is_joiner(shown):
            return True
        try:
            self._trust.member_at(shown)
        except NotTrustedError as error:
            _logger.info("tls: refused, %s", error.what)
            return False
        return True


def behind_gates(
    make: Callable[..., asyncio.Protocol],
    trust: PeerTrust,
    admission: Admission[TlsGate],
    group: asyncio.TaskGroup,
    within_s: float = HANDSHAKE_WITHIN_S,
) -> Callable[..., TlsGate]:
    """Return a factory of protocols, each behind a gate of its own.

    Args:
        make: Makes a protocol; called with whatever the factory is called with.
        trust: Who may speak.
        admission: Where connections are counted.
        group: Parent of the handshakes.
        within_s: Seconds for each.
    """

    def made(*arguments: object, **named: object) -> TlsGate:
        return TlsGate(make(*arguments, **named), trust, admission, group, within_s)

    return made

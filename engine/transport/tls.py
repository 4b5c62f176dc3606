"""TLS as nodes speak it: version 1.3, both sides show certificates, and nobody else vouches.

The library has no callback that could decide on a certificate. So each certificate that is
trusted is a trust anchor of its own (``VERIFY_X509_PARTIAL_CHAIN``), dates are not looked at, and
after the handshake ``PeerTrust`` compares what was shown byte for byte with whom it trusts *then*.
No session is ever resumed: a ticket would let in who has been removed since.

ALPN says which of two things a connection is for, inside the handshake and before any request.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from engine.errors import (
    NotKnownThereError,
    NotTrustedError,
    PeerUnreachableError,
    RemoteProtocolError,
    TransportError,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engine.transport.certificates import Certificate
    from engine.transport.identity import Identity

POOL_PROTOCOL = "daisy/1"  # between members, both known to each other
PAIR_PROTOCOL = "daisy-pair/1"  # from somebody without a certificate that is known here

# X509_V_FLAG_NO_CHECK_TIME, which the library has no name for: a PC whose clock says 1970 after its
# battery died is the PC it was.
_NO_CHECK_TIME = ssl.VerifyFlags(0x200000)
_OPTIONS = ssl.OP_NO_TICKET | ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION

_NOT_KNOWN_THERE = frozenset({
    "TLSV1_ALERT_UNKNOWN_CA",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED",
    "SSLV3_ALERT_BAD_CERTIFICATE",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN",
    "TLSV1_ALERT_ACCESS_DENIED",
})


def member_server(
    identity: Identity, members: Iterable[Certificate], *, joiners: bool
) -> ssl.SSLContext:
    """Return a context for a port.

    Args:
        identity: Shown to everyone who connects.
        members: Whose certificates end well; any other one ends the handshake.
        joiners: Whether somebody who shows no certificate gets through the handshake.

    Raises:
        StorageError: The identity's file can't be read.
    """
    context = _context(ssl.PROTOCOL_TLS_SERVER, identity, members)
    context.verify_mode = ssl.CERT_OPTIONAL if joiners else ssl.CERT_REQUIRED
    context.num_tickets = 0
    protocols = [POOL_PROTOCOL, PAIR_PROTOCOL] if joiners else [POOL_PROTOCOL]
    context.set_alpn_protocols(protocols)
    return context


def member_client(identity: Identity, servers: Iterable[Certificate]) -> ssl.SSLContext:
    """Return a context to connect to a member with.

    Args:
        identity: Shown to the other side, once it has shown one of ``servers``.
        servers: Who may answer: the one that is meant, or all where that isn't known.

    Raises:
        StorageError: The identity's file can't be read.
    """
    context = _context(ssl.PROTOCOL_TLS_CLIENT, identity, servers)
    context.verify_mode = ssl.CERT_REQUIRED
    context.set_alpn_protocols([POOL_PROTOCOL])
    return context


def joiner_client() -> ssl.SSLContext:
    """Return a context to connect to a pool that is still strange, showing nothing.

    Whoever answers gets through: that it is the pool whose code was typed is what pairing proves,
    which is bound to the certificate shown here. Nothing but pairing may be said before that.
    """
    context = _context(ssl.PROTOCOL_TLS_CLIENT, None, ())
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols([PAIR_PROTOCOL])
    return context


def tls_failure(error: OSError | None, *, is_secured: bool) -> TransportError:
    """Return what a failed handshake, or the end right after it, means; without an address.

    In TLS 1.3 a client's own handshake is over before the server has looked at its certificate,
    and the server's refusal may be lost with the connection. So where a server that proved who it
    is closes without a word, that is the word.

    Args:
        error: As the library raised it, on either side; None where the connection was closed.
        is_secured: Whether this side is the client and its handshake was over.
    """
    reason = getattr(error, "reason", None)
    if isinstance(error, ssl.SSLCertVerificationError):
        return NotTrustedError("The other side is not the PC that this pool knows.")
    if reason in _NOT_KNOWN_THERE:
        return NotKnownThereError("The other PC does not know this one, or no longer.")
    if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
        return RemoteProtocolError(f"The other side does not speak TLS as Daisy does: {reason}.")
    if is_secured:
        return NotKnownThereError(
            "The other PC closed the connection when it saw this PC's certificate: it does not "
            "know it, or no longer."
        )
    return PeerUnreachableError("The connection was lost while it was being secured.")


def _context(
    protocol: int, identity: Identity | None, trusted: Iterable[Certificate]
) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.maximum_version = ssl.TLSVersion.TLSv1_3
    context.options |= _OPTIONS
    context.check_hostname = False  # names prove nothing in a pool; certificates are compared
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | _NO_CHECK_TIME
    anchors = b"".join(certificate.der for certificate in trusted)
    if anchors:
        context.load_verify_locations(cadata=anchors)
    if identity is not None:
        identity.show_in(context)
    return context

"""Whom this PC trusts at this moment, and the connections that stand on it.

A port has one context object for as long as it is open, and hands every new connection to the
context of the moment. Whoever is trusted no longer is refused from the next handshake on, and what
it has open is cut before ``replace`` returns.

Thread: the event loop's.
"""

from __future__ import annotations

import contextlib
import hmac
import ssl
from typing import TYPE_CHECKING, Any, NamedTuple

from engine.errors import NotTrustedError
from engine.transport.certificates import MAX_CERTIFICATE_BYTES
from engine.transport.tls import (
    PAIR_PROTOCOL,
    POOL_PROTOCOL,
    joiner_client,
    member_client,
    member_server,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from engine.domain import NodeId
    from engine.transport.certificates import Certificate
    from engine.transport.identity import Identity

    Cut = Callable[[], None]


class Shown(NamedTuple):
    """What a connection shows once its handshake is over.

    Attributes:
        protocol: What it is for, by ALPN; None where the other side named nothing that is known.
        certificate: DER of the other side's; None where it showed none.
    """

    protocol: str | None
    certificate: bytes | None


def shown_by(tls: ssl.SSLObject | ssl.SSLSocket) -> Shown:
    """Return what the other side of a connection showed.

    Args:
        tls: After its handshake.
    """
    return Shown(tls.selected_alpn_protocol(), tls.getpeercert(binary_form=True))


class PeerTrust:
    """Whom this PC trusts."""

    def __init__(self, identity: Identity, members: Iterable[Certificate]) -> None:
        """Begin with the members of the pool.

        Args:
            identity: This PC's own.
            members: Everybody else's certificates. This PC's own is always known beside them: by
                it a PC that runs with a copy of this one's folder is met, and shown as what it is.

        Raises:
            StorageError: The identity's file can't be read.
        """
        self.identity = identity
        self._members = _by_id(members, identity)
        self._lets_joiners_in = False
        self._cuts: dict[NodeId, set[Cut]] = {}
        self.server_context = _ContextOfTheMoment.make(self._new_server_context())

    @property
    def members(self) -> frozenset[NodeId]:
        """Ids of whom is trusted, without this PC."""
        return frozenset(self._members) - {self.identity.node_id}

    def replace(self, members: Iterable[Certificate]) -> None:
        """Trust these and nobody else, at once.

        Args:
            members: Everybody else's certificates.

        Raises:
            StorageError: The identity's file can't be read; who was removed is cut all the same,
                and refused after its handshake.
        """
        before, self._members = self._members, _by_id(members, self.identity)
        for node_id, certificate in before.items():
            if self._members.get(node_id) != certificate:
                for cut in self._cuts.pop(node_id, set()).copy():
                    cut()
        self.server_context.current = self._new_server_context()

    def let_joiners_in(self, yes: bool) -> None:
        """Open or close the port to whoever shows no certificate.

        Args:
            yes: Open only while somebody waits for a PC to join; such a connection may pair and
                do nothing else.

        Raises:
            StorageError: The identity's file can't be read.
        """
        self._lets_joiners_in = yes
        self.server_context.current = self._new_server_context()

    def client_context(self, node_id: NodeId | None) -> ssl.SSLContext:
        """Return a context to connect to a member with.

        Args:
            node_id: Of the one that is meant; None for an address whose node isn't known.

        Raises:
            NotTrustedError: It is no member.
            StorageError: The identity's file can't be read.
        """
        if node_id is None:
            return member_client(self.identity, self._members.values())
        certificate = self._members.get(node_id)
        if certificate is None:
            raise NotTrustedError(f"{node_id} is no PC of this pool.")
        return member_client(self.identity, (certificate,))

    @staticmethod
    def joining_context() -> ssl.SSLContext:
        """Return a context to connect to a pool with that is to be joined."""
        return joiner_client()

    def member_at(self, shown: Shown) -> NodeId:
        """Return who is at the other end of a connection, by what it showed and nothing else.

        To be asked before the first byte that came over it is looked at.

        Args:
            shown: By the other side.

        Raises:
            NotTrustedError: It is no member now, or came to pair.
        """
        if shown.protocol != POOL_PROTOCOL:
            raise NotTrustedError("The other side does not come as a member of this pool.")
        der = shown.certificate or b""
        if len(der) <= MAX_CERTIFICATE_BYTES:
            for node_id, certificate in self._members.items():
                if hmac.compare_digest(certificate.der, der):
                    return node_id
        raise NotTrustedError("The other side is no member of this pool, or no longer.")

    def is_joiner(self, shown: Shown) -> bool:
        """Return whether a connection came to pair, and may.

        Args:
            shown: By the other side.
        """
        return (
            self._lets_joiners_in and shown.protocol == PAIR_PROTOCOL and shown.certificate is None
        )

    @contextlib.contextmanager
    def standing_on(self, node_id: NodeId, cut: Cut) -> Iterator[None]:
        """Tie a connection to the trust in a member, for as long as the context is open.

        Args:
            node_id: As ``member_at`` told it.
            cut: Closes the connection at once and waits for nothing; called when the member is
                removed, once.

        Yields:
            Nothing.

        Raises:
            NotTrustedError: It was removed since.
        """
        if node_id not in self._members:
            raise NotTrustedError(f"{node_id} is no PC of this pool any more.")
        cuts = self._cuts.setdefault(node_id, set())
        cuts.add(cut)
        try:
            yield
        finally:
            cuts.discard(cut)
            if not cuts and self._cuts.get(node_id) is cuts:
                del self._cuts[node_id]

    def _new_server_context(self) -> ssl.SSLContext:
        return member_server(self.identity, self._members.values(), joiners=self._lets_joiners_in)


def _by_id(members: Iterable[Certificate], own: Identity) -> dict[NodeId, Certificate]:
    return {member.node_id: member for member in members} | {own.node_id: own.certificate}


class _ContextOfTheMoment(ssl.SSLContext):
    """What a port holds on to; each connection begins with the context that is current then."""

    current: ssl.SSLContext

    @classmethod
    def make(cls, current: ssl.SSLContext) -> _ContextOfTheMoment:
        context = cls(ssl.PROTOCOL_TLS_SERVER)
        # Were it ever used itself, it would let nobody in.
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        context.current = current
        return context

    def wrap_bio(self, *arguments: Any, **named: Any) -> ssl.SSLObject:  # noqa: ANN401 - handed on
        return self.current.wrap_bio(*arguments, **named)

    def wrap_socket(self, *arguments: Any, **named: Any) -> ssl.SSLSocket:  # noqa: ANN401
        return self.current.wrap_socket(*arguments, **named)

"""Identities for tests, and a TLS port on loopback that says whom it let in."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from contextlib import closing
from dataclasses import dataclass, field

from engine.errors import NotTrustedError
from engine.transport.identity import open_identity
from engine.transport.peer_trust import PeerTrust, shown_by
from engine.transport.tls import PAIR_PROTOCOL, tls_failure

WITHIN_S = 10.0


def new_identity(folder, name):
    """An identity of a PC called so, in a folder of its own."""
    place = folder / name
    place.mkdir()
    return open_identity(place, None)


@dataclass
class Door:
    """A port that lets members in: echoes what they say, after it has looked at who they are."""

    trust: PeerTrust
    port: int = 0
    members: list[str] = field(default_factory=list)
    joiners: int = 0
    refused: list[str] = field(default_factory=list)
    read: list[bytes] = field(default_factory=list)
    began: int = 0

    async def take(self, reader, writer):
        self.began += 1
        shown = shown_by(writer.get_extra_info("ssl_object"))
        try:
            if self.trust.is_joiner(shown):
                self.joiners += 1
                writer.write(b"pairing")
                return
            member = self.trust.member_at(shown)
            with self.trust.standing_on(member, writer.transport.abort):
                self.members.append(member)
                writer.write(b"welcome")
                while said := await reader.read(1000):
                    self.read.append(said)
                    writer.write(said)
        except NotTrustedError as error:
            self.refused.append(error.what)
        except OSError:
            pass
        finally:
            writer.close()


@contextlib.asynccontextmanager
async def open_door(trust):
    """A port on loopback.

    Yields:
        It, for as long as the context is open.
    """
    door = Door(trust)
    server = await asyncio.start_server(
        door.take, "127.0.0.1", 0, ssl=trust.server_context, ssl_handshake_timeout=WITHIN_S
    )
    door.port = server.sockets[0].getsockname()[1]
    try:
        yield door
    finally:
        server.close()


async def visit(port, context, say=b""):
    """Connect; return what is answered first, or what the end means in our words."""
    async with asyncio.timeout(WITHIN_S):
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        except OSError as error:
            return tls_failure(error, is_secured=False)
        with closing(writer):
            if say:
                writer.write(say)
            return await first_answer(reader)


async def first_answer(reader):
    """Read what is answered first, or what the end means in our words."""
    try:
        return await reader.read(7) or tls_failure(None, is_secured=True)
    except OSError as error:
        return tls_failure(error, is_secured=True)


def bare_client(*, identity=None, alpn=PAIR_PROTOCOL, highest=ssl.TLSVersion.TLSv1_3):
    """A client of somebody else's making: trusts everyone, shows what it likes."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.maximum_version = highest
    if alpn is not None:
        context.set_alpn_protocols([alpn])
    if identity is not None:
        identity.show_in(context)
    return context

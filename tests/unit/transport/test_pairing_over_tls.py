"""Pairing from end to end on loopback: a stranger becomes a member, a removed one a stranger."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import struct
import time

import pytest

from engine.errors import NotTrustedError, PairingError
from engine.pool.roster import decode_roster
from engine.pool.roster_changes import add_member, found_pool, remove_member
from engine.pool.roster_merge import decode_known, encode_known, known_from
from engine.transport.identity import open_identity, renew_identity
from engine.transport.invite_link import InviteLink, parse_invite_link
from engine.transport.invited import invited_by_code, invited_by_link
from engine.transport.pairing import Host, Joiner
from engine.transport.pairing_door import PairingDoor
from engine.transport.peer_trust import PeerTrust, shown_by
from tests.unit.transport.identities import WITHIN_S, visit

POOL = "aaaabbbbccccddddeeee"


async def send(writer, message):
    writer.write(struct.pack("<I", len(message)) + message)


async def receive(reader):
    (length,) = struct.unpack("<I", await reader.readexactly(4))
    return await reader.readexactly(length)


class Pc:
    """One PC with a data folder: founds a pool, or joins one; opens its port; restarts."""

    def __init__(self, folder, name):
        self.folder, self.name = folder / name, name
        self.folder.mkdir(exist_ok=True)
        self.identity = open_identity(self.folder, None)
        self.door = PairingDoor()
        self.known = None
        file = self.folder / "roster"
        if file.exists():
            self.know(decode_known(file.read_bytes()))

    def know(self, known):
        self.known = known
        (self.folder / "roster").write_bytes(encode_known(known))
        certificates = [member.certificate for member in known.members]
        if getattr(self, "trust", None) is None:
            self.trust = PeerTrust(self.identity, certificates)
        else:
            self.trust.replace(certificates)

    def found(self):
        self.know(found_pool(self.identity, self.name, POOL, secrets.token_bytes))

    @contextlib.asynccontextmanager
    async def port(self):
        """Its port.

        Yields:
            The number.
        """
        server = await asyncio.start_server(
            self._serve, "127.0.0.1", 0, ssl=self.trust.server_context
        )
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()

    async def _serve(self, reader, writer):
        shown = shown_by(writer.get_extra_info("ssl_object"))
        with contextlib.closing(writer), contextlib.suppress(OSError, asyncio.IncompleteReadError):
            if self.trust.is_joiner(shown):
                await self._host(reader, writer)
                return
            member = self.trust.member_at(shown)
            with self.trust.standing_on(member, writer.transport.abort):
                writer.write(b"welcome")
                await reader.read(1)

    async def _host(self, reader, writer):
        host = Host(self.identity.certificate, POOL, self.door, secrets.token_bytes)
        while True:
            step = host.receive(await receive(reader), time.monotonic())
            if step.newcomer is not None:
                self.know(
                    add_member(
                        self.known,
                        self.identity,
                        step.newcomer.certificate,
                        step.newcomer.name,
                        "owner",
                        secrets.token_bytes,
                    )
                )
                await send(writer, host.welcome(self.known.roster.signed))
                await writer.drain()
                return
            await send(writer, step.reply)
            await writer.drain()
            if step.failure is not None:
                return

    async def join(self, port, invited):
        async with asyncio.timeout(WITHIN_S):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", port, ssl=PeerTrust.joining_context()
            )
            with contextlib.closing(writer):
                shown = shown_by(writer.get_extra_info("ssl_object"))
                joiner = Joiner(
                    self.identity, shown.certificate, invited, self.name, secrets.token_bytes
                )
                await send(writer, joiner.greeting)
                await send(writer, joiner.receive(await receive(reader)))
                welcome = joiner.receive(await receive(reader))
        roster = decode_roster(welcome.roster)
        assert roster.content.pool_id == welcome.pool_id
        self.know(known_from(roster))

    async def meet(self, other, port):
        return await visit(port, self.trust.client_context(other.identity.node_id))


@pytest.fixture
def anna(tmp_path):
    pc = Pc(tmp_path, "anna")
    pc.found()
    return pc


@pytest.fixture
def ben(tmp_path):
    return Pc(tmp_path, "ben")


def shown_code(pc):
    code = pc.door.show_code(secrets.randbelow, time.monotonic())
    pc.trust.let_joiners_in(True)
    return code


def test_s03_a_code_typed_once_pairs_two_pcs_and_both_know_it_after_a_restart(anna, ben, tmp_path):
    async def run():
        code = shown_code(anna)
        async with anna.port() as port:
            await ben.join(port, invited_by_code(code))
            anna.trust.let_joiners_in(False)
            first = await ben.meet(anna, port)
        again_anna, again_ben = Pc(tmp_path, "anna"), Pc(tmp_path, "ben")
        async with again_anna.port() as port, again_ben.port() as back:
            return (
                first,
                await again_ben.meet(again_anna, port),
                await again_anna.meet(again_ben, back),
            )

    assert asyncio.run(run()) == (b"welcome",) * 3
    assert anna.known.roster.secret_for(anna.identity) == ben.known.roster.secret_for(ben.identity)
    assert {member.entry.name for member in ben.known.members} == {"anna", "ben"}


def test_s03_a_link_pairs_a_pc_without_a_screen(anna, ben):
    async def run():
        secret, link_id = secrets.token_bytes(16), secrets.token_hex(8)
        anna.door.make_link(link_id, secret, 60.0, time.monotonic())
        anna.trust.let_joiners_in(True)
        async with anna.port() as port:
            sha256 = anna.identity.certificate.sha256
            line = str(InviteLink(POOL, (f"127.0.0.1:{port}",), sha256, link_id, secret, 2**31))
            link = parse_invite_link(line)
            await ben.join(port, invited_by_link(link))
            return await ben.meet(anna, port)

    assert asyncio.run(run()) == b"welcome"


def test_s04_a_relay_between_two_real_connections_pairs_with_nobody(anna, ben, tmp_path):
    """Mallory answers in TLS with a certificate of its own, and carries every message."""
    mallory = Pc(tmp_path, "mallory")
    mallory.found()
    mallory.trust.let_joiners_in(True)

    async def run():
        code = shown_code(anna)
        async with anna.port() as port:

            async def carry(reader, writer):
                inner = await asyncio.open_connection(
                    "127.0.0.1", port, ssl=PeerTrust.joining_context()
                )
                with contextlib.closing(writer), contextlib.closing(inner[1]):
                    for _ in range(2):
                        await send(inner[1], await receive(reader))
                        await send(writer, await receive(inner[0]))

            relay = await asyncio.start_server(
                carry, "127.0.0.1", 0, ssl=mallory.trust.server_context
            )
            between = relay.sockets[0].getsockname()[1]
            outcomes = []
            for _ in range(4):
                with pytest.raises(PairingError) as refused:
                    await ben.join(between, invited_by_code(code))
                outcomes.append(refused.value.what)
            relay.close()
            return outcomes

    outcomes = asyncio.run(run())
    assert ["wrong" in outcome for outcome in outcomes] == [True] * 3 + [False]
    assert "not waiting" in outcomes[3]
    assert len(anna.known.members) == 1
    assert ben.known is None


def test_s25_a_removed_pc_is_cut_refused_and_comes_back_only_with_a_new_key(anna, ben, tmp_path):
    async def run():
        async with anna.port() as port:
            await ben.join(port, invited_by_code(shown_code(anna)))
            anna.trust.let_joiners_in(False)
            context = ben.trust.client_context(anna.identity.node_id)
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
            assert await reader.readexactly(7) == b"welcome"
            began_s = time.monotonic()
            anna.know(
                remove_member(anna.known, anna.identity, ben.identity.node_id, secrets.token_bytes)
            )
            with contextlib.suppress(OSError):
                assert await reader.read(1) == b""
            took_s = time.monotonic() - began_s
            writer.close()
            refused = await ben.meet(anna, port)
            renew_identity(ben.folder, None)
            (ben.folder / "roster").unlink()
            again = Pc(tmp_path, "ben")
            await again.join(port, invited_by_code(shown_code(anna)))
            return took_s, refused, await again.meet(anna, port)

    took_s, refused, again = asyncio.run(run())
    assert took_s < 1.0
    assert isinstance(refused, NotTrustedError)
    assert again == b"welcome"

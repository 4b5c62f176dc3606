"""Connections are counted from TCP on, and a protocol hears only of those that may speak."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time

import pytest
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from engine.errors import NotTrustedError
from engine.transport.admission import (
    MAX_CONNECTIONS,
    MAX_STRANGERS,
    MAX_STRANGERS_PER_ADDRESS,
    Admission,
)
from engine.transport.peer_trust import PeerTrust, shown_by
from engine.transport.tls import POOL_PROTOCOL
from engine.transport.tls_gate import TlsGate, behind_gates
from tests.unit.transport.identities import WITHIN_S, bare_client, new_identity, visit


@pytest.fixture(scope="module")
def people(tmp_path_factory):
    folder = tmp_path_factory.mktemp("people")
    return {name: new_identity(folder, name) for name in ("host", "anna", "eve")}


@pytest.fixture
def trust(people):
    return PeerTrust(people["host"], [people["anna"].certificate])


class Echo(asyncio.Protocol):
    """Says welcome, then what it hears; notes what it was told of."""

    def __init__(self, told):
        self.told = told

    def connection_made(self, transport):
        self.transport = transport
        self.told.append("made")
        transport.write(b"welcome")

    def data_received(self, data):
        self.told.append(data)
        self.transport.write(data)

    def connection_lost(self, exc):
        self.told.append("lost")


@contextlib.asynccontextmanager
async def gates(trust, within_s=WITHIN_S):
    """A port with a gate before each connection.

    Yields:
        Its number, what the protocols were told, and where connections are counted.
    """
    told, admission = [], Admission()
    async with asyncio.TaskGroup() as group:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: TlsGate(Echo(told), trust, admission, group, within_s), "127.0.0.1", 0
        )
        try:
            yield server.sockets[0].getsockname()[1], told, admission
        finally:
            server.close()
            for gate in admission.strangers:
                gate.transport.abort()


async def until(condition):
    async with asyncio.timeout(WITHIN_S):
        while not condition():  # noqa: ASYNC110 - what is waited for tells nobody
            await asyncio.sleep(0.01)


def anna(people):
    return PeerTrust(people["anna"], [people["host"].certificate]).client_context(None)


def test_a_member_speaks_through_a_gate(trust, people):
    async def run():
        async with gates(trust) as (port, told, admission):
            assert await visit(port, anna(people), b"hello") == b"welcome"
            await until(lambda: told[-1:] == ["lost"])
            return told, admission.strangers

    told, strangers = asyncio.run(run())
    assert told == ["made", b"hello", "lost"]
    assert strangers == ()


def test_what_a_member_sends_with_the_end_of_its_handshake_is_not_lost(trust, people):
    """A client may write at once: its Finished and the first data come in one piece."""

    def connect_and_write(port):
        plain = socket.create_connection(("127.0.0.1", port), WITHIN_S)
        with anna(people).wrap_socket(plain, do_handshake_on_connect=False) as tls:
            tls.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0)
            tls.do_handshake()
            tls.sendall(b"early")
            said = b""
            while len(said) < 12:
                said += tls.recv(100)
            return said

    async def run():
        async with gates(trust) as (port, told, _):
            said = await asyncio.gather(
                *(asyncio.to_thread(connect_and_write, port) for _ in range(20))
            )
            return said, told

    said, told = asyncio.run(run())
    assert said == [b"welcomeearly"] * 20
    assert told.count(b"early") == 20


def test_s01_a_protocol_never_hears_of_a_stranger(trust, people):
    async def run():
        async with gates(trust) as (port, told, admission):
            strange = bare_client(identity=people["eve"], alpn=POOL_PROTOCOL)
            answers = [await visit(port, strange, b"x"), await visit(port, bare_client(), b"x")]
            await until(lambda: not admission.strangers)
            return answers, told

    answers, told = asyncio.run(run())
    assert all(isinstance(answer, NotTrustedError) for answer in answers)
    assert told == []


def test_s02_a_protocol_hears_of_a_joiner_only_while_one_may_join(trust, people):
    async def run():
        async with gates(trust) as (port, told, _):
            trust.let_joiners_in(True)
            answers = [
                await visit(port, trust.joining_context()),
                await visit(port, bare_client(alpn=POOL_PROTOCOL), b"x"),
            ]
            return answers, told

    answers, told = asyncio.run(run())
    assert answers[0] == b"welcome"
    assert isinstance(answers[1], NotTrustedError)
    assert told.count("made") == 1
    assert b"x" not in told


def test_s18_who_never_ends_its_handshake_is_cut_after_a_while(trust):
    async def run():
        async with gates(trust, within_s=0.3) as (port, told, admission):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"\x16\x03\x01")
            began_s = time.monotonic()
            with contextlib.suppress(ConnectionError):
                await asyncio.wait_for(reader.read(), WITHIN_S)
            took_s = time.monotonic() - began_s
            writer.close()
            await until(lambda: not admission.strangers)
            return took_s, told

    took_s, told = asyncio.run(run())
    assert 0.2 < took_s < 3.0
    assert told == []


def test_s18_a_thousand_half_open_connections_leave_a_member_undisturbed(trust, people):
    def half_open(port):
        return [socket.create_connection(("127.0.0.1", port), WITHIN_S) for _ in range(1000)]

    async def run():
        async with gates(trust) as (port, told, admission):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=anna(people))
            assert await reader.readexactly(7) == b"welcome"
            (gate,) = admission.strangers
            admission.greet(gate)  # as the hello of a member does
            flood = await asyncio.to_thread(half_open, port)
            num_strangers = len(admission.strangers)
            writer.write(b"still here")
            async with asyncio.timeout(WITHIN_S):
                assert await reader.readexactly(10) == b"still here"
            for one in flood:
                one.close()
            writer.close()
            await until(lambda: not admission.strangers)
            return num_strangers, told

    num_strangers, told = asyncio.run(run())
    assert num_strangers <= MAX_STRANGERS_PER_ADDRESS < MAX_STRANGERS < MAX_CONNECTIONS
    assert told.count("made") == 1


def test_s18_a_member_gets_in_while_every_place_is_taken_from_many_addresses(trust, people):
    """Who says nothing loses its place to whoever comes; a member needs milliseconds."""
    sources = [f"127.0.0.{n}" for n in range(2, 2 + MAX_STRANGERS)]

    async def run():
        async with gates(trust) as (port, told, admission):
            taken = await asyncio.to_thread(
                lambda: [
                    socket.create_connection(("127.0.0.1", port), WITHIN_S, (source, 0))
                    for source in sources
                ]
            )
            await until(lambda: len(admission.strangers) == MAX_STRANGERS)
            for _ in range(3):
                reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=anna(people))
                async with asyncio.timeout(WITHIN_S):
                    assert await reader.readexactly(7) == b"welcome"
                writer.close()
            for one in taken:
                one.close()
            await until(lambda: not admission.strangers)
            return told

    assert asyncio.run(run()).count("made") == 3


def test_s18_ten_megabytes_of_random_bytes_leave_a_member_undisturbed(trust, people):
    def pour(port):
        with contextlib.suppress(OSError):
            for _ in range(10):
                with socket.create_connection(("127.0.0.1", port), WITHIN_S) as plain:
                    plain.sendall(os.urandom(1 << 20))

    async def run():
        async with gates(trust) as (port, told, admission):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=anna(people))
            assert await reader.readexactly(7) == b"welcome"
            pouring = asyncio.to_thread(pour, port)

            async def talk():
                for _ in range(50):
                    writer.write(b"token")
                    async with asyncio.timeout(WITHIN_S):
                        assert await reader.readexactly(5) == b"token"

            await asyncio.gather(pouring, talk())
            writer.close()
            await until(lambda: not admission.strangers)
            return told

    assert asyncio.run(run()).count("made") == 1


def test_s09_what_was_said_in_clear_before_tls_is_never_taken_for_what_came_through_it(trust):
    """Whoever stands in between could put words before a member's own."""

    class Tcp(asyncio.Transport):
        is_aborted = False

        def get_extra_info(self, name, default=None):
            return ("192.0.2.7", 1234) if name == "peername" else default

        def abort(self):
            self.is_aborted = True

    async def run():
        told = []
        async with asyncio.TaskGroup() as group:
            gate, tcp = TlsGate(Echo(told), trust, Admission(), group), Tcp()
            gate.connection_made(tcp)
            gate.data_received(b"obey me")
        return tcp.is_aborted, told

    assert asyncio.run(run()) == (True, [])


def test_a_gate_that_is_made_while_the_node_stops_closes(trust):
    async def run():
        admission = Admission()
        async with asyncio.TaskGroup() as group:
            pass
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: TlsGate(Echo([]), trust, admission, group), "127.0.0.1", 0
        )
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        try:
            return await asyncio.wait_for(reader.read(), WITHIN_S)
        except ConnectionError:
            return b""
        finally:
            writer.close()
            server.close()

    assert asyncio.run(run()) == b""


def test_websockets_stand_behind_gates_and_a_removal_cuts_them(trust, people):
    """The library's own server takes a gate for its connection; nothing else is needed."""
    asked = []

    async def run():
        admission = Admission()

        async def attend(connection):
            member = trust.member_at(shown_by(connection.transport.get_extra_info("ssl_object")))
            asked.append(member)
            with (
                trust.standing_on(member, connection.transport.abort),
                contextlib.suppress(ConnectionClosed),
            ):
                async for message in connection:
                    await connection.send(message)

        async with asyncio.TaskGroup() as group:
            server = await serve(
                attend,
                "127.0.0.1",
                0,
                compression=None,
                create_connection=behind_gates(ServerConnection, trust, admission, group),
            )
            port = server.sockets[0].getsockname()[1]
            client = await connect(
                f"wss://127.0.0.1:{port}", ssl=anna(people), proxy=None, compression=None
            )
            await client.send(bytes(1 << 20))
            assert await client.recv() == bytes(1 << 20)
            began_s = time.monotonic()
            trust.replace([])
            await asyncio.wait_for(client.wait_closed(), WITHIN_S)
            took_s = time.monotonic() - began_s
            with pytest.raises(InvalidHandshake):
                await connect(f"wss://127.0.0.1:{port}", ssl=anna(people), proxy=None)
            server.close()
            await server.wait_closed()
            return took_s

    assert asyncio.run(run()) < 1.0
    assert asked == [people["anna"].node_id]

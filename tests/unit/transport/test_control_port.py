"""The control port lets in who has the token, and nobody a browser sends there."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import psutil
import pytest

import engine
from engine.domain import NodeId
from engine.errors import PeerUnreachableError, RemoteProtocolError
from engine.messages.codec import decode, encode_control
from engine.messages.control import PROTOCOL_VERSION, SHARD_FORMAT, Goodbye, Hello, Ping
from engine.messages.pool_control import OpenControl
from engine.transport import control_port
from engine.transport.control_port import ControlPort, connect_control

TOKEN = "0123456789abcdef0123456789abcdef"  # noqa: S105 - of a test
HELLO = Hello(
    protocol_version=PROTOCOL_VERSION,
    product_version=engine.__version__,
    shard_format=SHARD_FORMAT,
    node_id=NodeId("node-1"),
)


class Node:
    """Echoes what comes, and takes down that it came."""

    def __init__(self) -> None:
        self.heard: list[object] = []

    async def attend(self, connection) -> None:
        assert connection.peer.node_id == "asker"
        while True:
            frame = await connection.receive()
            self.heard.append(decode(frame))
            await connection.send(frame)


@asynccontextmanager
async def open_port():
    node = Node()
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        port = ControlPort(TOKEN, HELLO, node.attend, group)
        await port.listen()
        try:
            yield node, port
        finally:
            await port.close()


def run(scenario) -> None:
    asyncio.run(scenario())


async def said_to(port: ControlPort, data: bytes) -> bytes:
    """Connect, say something, and return all that is answered until the port closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port.number)
    writer.write(data)
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


def browser_request(host: str, origin: str | None, *, is_websocket: bool) -> bytes:
    """What a browser says first."""
    lines = ["GET / HTTP/1.1", f"Host: {host}"]
    if origin is not None:
        lines.append(f"Origin: {origin}")
    if is_websocket:
        key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
        lines += ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", key]
    return "\r\n".join([*lines, "", ""]).encode()


def framed(frame: bytes) -> bytes:
    return len(frame).to_bytes(4, "little") + frame


def test_who_has_the_token_speaks_frames_both_ways():
    async def scenario():
        async with open_port() as (node, port):
            connection = await connect_control(port.number, TOKEN, "0.9")
            assert connection.peer == HELLO
            for number in range(3):
                await connection.send(encode_control(Ping(number=number)))
            answers = [decode(await connection.receive()) for _ in range(3)]
            assert answers == node.heard == [Ping(number=n) for n in range(3)]
            await connection.close("Done.")

    run(scenario)


@pytest.mark.parametrize(
    "first",
    [
        framed(encode_control(OpenControl(token="f" * 32, product_version="1"))),
        framed(encode_control(OpenControl(token="", product_version="1"))),
        framed(encode_control(HELLO)),
        framed(b""),
        framed(b"\x00" * 40),
        b"\xff\xff\xff\xff" + b"x" * 100,
    ],
    ids=["wrong token", "no token", "hello of a node", "nothing", "zeros", "4 GiB"],
)
def test_s20_who_has_no_token_is_closed_without_a_word(first):
    async def scenario():
        async with open_port() as (node, port):
            assert await said_to(port, first) == b""
            assert node.heard == []

    run(scenario)


@pytest.mark.parametrize(
    "request_of_a_browser",
    [
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: https://evil.example\r\n\r\n",
        b"GET /chat HTTP/1.1\r\nHost: rebound.example\r\nUpgrade: websocket\r\n"
        b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nping",
    ],
    ids=["cross-site", "rebound websocket", "post"],
)
def test_s21_a_request_of_a_browser_is_closed_without_a_word(request_of_a_browser):
    """Whatever page sent it there, by whatever name: HTTP's first four bytes are no length."""

    async def scenario():
        async with open_port() as (node, port):
            assert await said_to(port, request_of_a_browser) == b""
            assert node.heard == []
            connection = await connect_control(port.number, TOKEN, "0.9")
            await connection.close("It still works.")

    run(scenario)


HOSTS = [
    "evil.example",
    "",
    "127.0.0.1.evil",
    "localhost.",
    "[::1]",
    "127.0.0.1:1",
    "127.0.0.1:{port}",
    "localhost:{port}",
]
ORIGINS = ["https://evil.example", "http://localhost", "http://127.0.0.1:{port}", "null", "", None]


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("is_websocket", [False, True], ids=["fetch", "websocket"])
def test_s19_no_host_a_browser_may_name_gets_a_word(host, is_websocket):
    """Rebinding needs a server that speaks HTTP: this port speaks none, to any name."""

    async def scenario():
        async with open_port() as (node, port):
            said = browser_request(host.format(port=port.number), None, is_websocket=is_websocket)
            assert await said_to(port, said) == b""
            assert node.heard == []

    run(scenario)


@pytest.mark.parametrize("origin", ORIGINS)
@pytest.mark.parametrize("is_websocket", [False, True], ids=["fetch", "websocket"])
def test_s21_no_page_wherever_it_is_from_gets_a_word(origin, is_websocket):
    async def scenario():
        async with open_port() as (node, port):
            named = None if origin is None else origin.format(port=port.number)
            host = f"127.0.0.1:{port.number}"
            assert (
                await said_to(port, browser_request(host, named, is_websocket=is_websocket)) == b""
            )
            assert node.heard == []

    run(scenario)


def test_s21_a_page_that_hides_frames_in_what_it_posts_gets_no_word():
    """What a page can choose is the body; what this port looks at first is what it can't."""

    async def scenario():
        async with open_port() as (node, port):
            opening = framed(encode_control(OpenControl(token=TOKEN, product_version="1")))
            frames = opening + framed(encode_control(Ping(number=1)))
            head = browser_request("127.0.0.1", "https://evil.example", is_websocket=False)
            assert await said_to(port, head.replace(b"GET", b"POST") + frames * 400) == b""
            assert node.heard == []

    run(scenario)


def test_s20_the_port_is_on_loopback_and_nowhere_else():
    async def scenario():
        async with open_port() as (_, port):
            listening = {c.laddr[0] for c in psutil.Process().net_connections() if at(c, port)}
            assert listening == {"127.0.0.1"}

    def at(connection, port):
        return connection.status == psutil.CONN_LISTEN and connection.laddr[1] == port.number

    run(scenario)


def test_who_says_nothing_is_closed_in_time_and_no_more_wait_than_may(monkeypatch):
    monkeypatch.setattr(control_port, "OPEN_WITHIN_S", 0.3)

    async def scenario():
        async with open_port() as (_, port):
            said = await asyncio.gather(*(said_to(port, b"") for _ in range(40)))
            assert said == [b""] * 40
            connection = await connect_control(port.number, TOKEN, "0.9")
            await connection.close("It still works.")

    run(scenario)


def test_a_frame_that_is_too_long_ends_that_connection_only():
    async def scenario():
        async with open_port() as (_, port):
            long, other = [await connect_control(port.number, TOKEN, "0.9") for _ in range(2)]
            await long.send(b"x" * (control_port.MAX_CONTROL_BYTES + 1))
            with pytest.raises(PeerUnreachableError):
                await long.receive()
            await other.send(encode_control(Ping(number=1)))
            assert decode(await other.receive()) == Ping(number=1)
            await long.close("Done.")
            await other.close("Done.")

    run(scenario)


def test_a_wait_that_is_cancelled_loses_no_frame():
    async def scenario():
        async with open_port() as (_, port):
            connection = await connect_control(port.number, TOKEN, "0.9")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await connection.receive()
            await connection.send(encode_control(Ping(number=7)))
            assert decode(await connection.receive()) == Ping(number=7)
            await connection.close("Done.")

    run(scenario)


def test_a_port_where_no_node_listens_is_said():
    async def scenario():
        async with open_port() as (_, port):
            number = port.number
        with pytest.raises(PeerUnreachableError):
            await connect_control(number, TOKEN, "0.9")

    run(scenario)


def test_what_answers_and_is_no_node_is_said():
    async def scenario():
        async def other(reader, writer):
            await reader.read(4)
            writer.write(framed(encode_control(Goodbye(reason="no"))))
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(other, "127.0.0.1", 0)
        with pytest.raises(RemoteProtocolError):
            await connect_control(server.sockets[0].getsockname()[1], TOKEN, "0.9")
        server.close()

    run(scenario)


def test_s18_a_crowd_without_the_token_does_not_keep_its_owner_out():
    """The oldest of them goes: a program with the token shows it at once."""

    async def scenario():
        async with open_port() as (_, port):
            crowd = [await asyncio.open_connection("127.0.0.1", port.number) for _ in range(200)]
            for _ in range(20):
                connection = await connect_control(port.number, TOKEN, "0.9")
                await connection.close("Let in.")
            for _, writer in crowd:
                writer.close()

    run(scenario)


def test_many_programs_with_the_token_are_let_in_at_once():
    async def scenario():
        async with open_port() as (_, port):
            opened = await asyncio.gather(
                *(connect_control(port.number, TOKEN, "0.9") for _ in range(200))
            )
            for connection in opened:
                await connection.close("Done.")

    run(scenario)

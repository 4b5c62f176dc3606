"""Connections on loopback: honest peers, and every kind of the other sort."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import ssl
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import numpy as np
import pytest
from websockets.asyncio.client import connect as library_connect
from websockets.asyncio.server import serve as library_serve
from websockets.exceptions import ConnectionClosed, InvalidStatus

from engine.domain import MicroBatch, SequenceId, SequenceStep
from engine.errors import (
    KVCacheFullError,
    LocalProtocolError,
    NotTrustedError,
    PeerTimeoutError,
    PeerUnreachableError,
    PortInUseError,
    RemoteProtocolError,
    TransportError,
    UsageError,
    VersionMismatchError,
)
from engine.messages.codec import decode, encode_control, encode_micro_batch
from engine.messages.control import Cancel, Generate, Goodbye, Ping, Pong, TextDelta
from engine.messages.limits import MAX_FRAME_BYTES, MAX_HELLO_BYTES
from engine.transport import endpoint as endpoint_module
from engine.transport.admission import MAX_STRANGERS_PER_ADDRESS
from engine.transport.inbox import CAPACITY_FRAMES
from engine.transport.session import Liveness
from tests.paired import endpoint_of, hello_of, id_of, trust_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator

    from engine.transport.connection import Connection
    from engine.transport.endpoint import Endpoint, Listener

pytestmark = pytest.mark.together

# Between two looks of a busy PC at its clock may lie half a second.
LESS_QUICK = Liveness(hello_within_s=5.0, ping_after_s=0.3, dead_after_s=2.0, goodbye_within_s=1.0)
QUICK = Liveness(hello_within_s=0.5, ping_after_s=0.2, dead_after_s=0.6, goodbye_within_s=0.5)
CANCEL = encode_control(Cancel(request_id="r-1"))


HELLO = encode_control(hello_of("raw"))


def run(test: Callable[[], Coroutine[None, None, None]], within_s: float = 20) -> None:
    """Run a test's coroutine; it must end in time and leave no task behind."""

    async def main() -> None:
        async with asyncio.timeout(within_s):
            await test()
        await asyncio.sleep(0.01)  # the library's own tasks end one step after what they serve
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


async def echo(connection: Connection) -> None:
    while True:
        await connection.send(await connection.receive())


@asynccontextmanager
async def listening(
    on_connection: Callable[[Connection], Awaitable[None]] = echo,
    liveness: Liveness | None = None,
    host: str = "127.0.0.1",
) -> AsyncIterator[tuple[Endpoint, Listener, str]]:
    """Yield an endpoint to connect with, a listener that echoes, and its address."""
    liveness = liveness or Liveness()
    async with asyncio.TaskGroup() as group:
        server = endpoint_of("server", group, "client", "raw", liveness=liveness)
        listener = await server.listen(host, 0, on_connection)
        client = endpoint_of("client", group, "server", liveness=liveness)
        yield client, listener, f"wss://127.0.0.1:{listener.port}"
        await listener.close()


async def assert_serves(client: Endpoint, address: str) -> None:
    connection = await client.connect(address, None)
    await connection.send(CANCEL)
    assert await connection.receive() == CANCEL
    await connection.close("Done.")


def raw_context() -> ssl.SSLContext:
    """TLS of a member that speaks as a test wants."""
    return trust_of("raw", "server").client_context(id_of("server"))


@asynccontextmanager
async def raw_peer(address: str, *first: bytes) -> AsyncIterator:
    """The library's own client, saying what a test wants."""
    async with library_connect(
        address, ssl=raw_context(), compression=None, proxy=None, max_size=None
    ) as websocket:
        for frame in first:
            await websocket.send(frame)
        yield websocket


async def code_of_close(websocket: object) -> int:
    """Read until the peer closes, and return its code."""
    try:
        while True:
            await websocket.recv()
    except ConnectionClosed as exc:
        return exc.rcvd.code if exc.rcvd is not None else 1006


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Nothing a peer does may log a warning, or a traceback."""
    caplog.set_level(logging.INFO)
    yield
    loud = [r for r in caplog.records if r.levelno >= logging.WARNING or r.exc_info]
    assert loud == []


# ---- honest peers ------------------------------------------------------------------------------


def test_two_nodes_introduce_themselves_and_exchange_frames_in_order() -> None:
    async def test() -> None:
        async with listening() as (client, _, address):
            connection = await client.connect(address, None)
            assert connection.peer == hello_of("server")
            frames = [
                encode_control(TextDelta(request_id="r", number=i, text="x", token_ids=()))
                for i in range(200)
            ]
            for frame in frames:
                await connection.send(frame)
            assert [await connection.receive() for _ in frames] == frames
            await connection.close("Done.")

    run(test)


def test_a_prefill_chunk_of_33_mb_passes_both_ways() -> None:
    async def test() -> None:
        rows = 2048
        hidden = np.arange(rows * 4096, dtype=np.float32).reshape(rows, 4096)
        step = SequenceStep(SequenceId(1), past_len=0, num_tokens=rows, num_logits=1)
        batch = MicroBatch(1, 1, (step,), np.zeros(rows, np.int32), hidden)
        async with listening() as (client, _, address):
            connection = await client.connect(address, None)
            await connection.send(encode_micro_batch(batch))
            got = decode(await connection.receive())
            np.testing.assert_array_equal(got.hidden_states, hidden)
            await connection.close("Done.")

    run(test)


def test_s17_both_sides_send_at_once_and_uncompressed() -> None:
    async def test() -> None:
        accepted: list[Connection] = []

        async def keep(connection: Connection) -> None:
            accepted.append(connection)
            await echo(connection)

        async with listening(keep) as (client, _, address):
            connection = await client.connect(address, None)
            await connection.send(CANCEL)
            await connection.receive()
            for side in (connection, accepted[0]):
                library = side._websocket._connection
                tcp = library.transport.get_extra_info("socket")
                assert tcp.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
                assert library.protocol.extensions == []
            await connection.close("Done.")

    run(test)


def test_a_goodbye_arrives_after_the_frames_before_it() -> None:
    async def test() -> None:
        seen: list[object] = []

        async def listen(connection: Connection) -> None:
            try:
                while True:
                    seen.append(await connection.receive())
            except TransportError as exc:
                seen.append(exc)
                raise

        async with listening(listen) as (client, _, address):
            connection = await client.connect(address, None)
            await connection.send(CANCEL)
            await connection.close("The window was closed.")
            await connection.close("Again.")
            with pytest.raises(TransportError, match="This side closed it"):
                await connection.receive()
            with pytest.raises(TransportError, match="This side closed it"):
                await connection.send(CANCEL)
        assert seen[0] == CANCEL
        assert isinstance(seen[1], PeerUnreachableError)
        assert "It left. The window was closed." in seen[1].what

    run(test)


def test_a_stopping_listener_says_so_to_everyone() -> None:
    async def test() -> None:
        async with listening() as (client, listener, address):
            connections = [await client.connect(address, None) for _ in range(3)]
            await listener.close()
            for connection in connections:
                with pytest.raises(PeerUnreachableError, match="This PC is stopping"):
                    await connection.receive()
            with pytest.raises(PeerUnreachableError):
                await client.connect(address, None)

    run(test)


def test_a_cancelled_receive_loses_nothing() -> None:
    async def test() -> None:
        async with listening() as (client, _, address):
            connection = await client.connect(address, None)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await connection.receive()
            await connection.send(CANCEL)
            assert await connection.receive() == CANCEL
            await connection.close("Done.")

    run(test)


def test_cancelling_the_group_closes_everything() -> None:
    async def test() -> None:
        async def all_of_it() -> None:
            async with listening() as (client, _, address):
                await client.connect(address, None)
                started.set()
                await asyncio.sleep(60)

        started = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            node = group.create_task(all_of_it())
            await started.wait()
            node.cancel()

    run(test, within_s=5)


def test_idle_connections_stay_open_and_measure_the_round_trip() -> None:
    async def test() -> None:
        async with listening(liveness=QUICK) as (client, _, address):
            connection = await client.connect(address, None)
            await asyncio.sleep(1.5)
            assert connection.round_trip_s is not None
            assert connection.round_trip_s < 0.5
            await connection.send(CANCEL)
            assert await connection.receive() == CANCEL
            await connection.close("Done.")

    run(test)


def test_a_busy_program_holds_the_sender_back_and_is_not_taken_for_dead() -> None:
    """The listener reads nothing for longer than ``dead_after_s``; 200 MB are on their way."""

    async def test() -> None:
        # A ping waits behind 16 MB that both ends of TLS work on, here in one loop.
        patient = Liveness(hello_within_s=0.5, ping_after_s=0.2, dead_after_s=2.0)
        num_frames, go_on = 3 * CAPACITY_FRAMES, asyncio.Event()
        received: list[int] = []

        async def slow(connection: Connection) -> None:
            await go_on.wait()
            received.extend([len(await connection.receive()) for _ in range(num_frames)])
            await connection.send(CANCEL)
            await connection.receive()

        frame = encode_control(Generate(request_id="r", prompt="x" * 1_000_000))
        async with listening(slow, patient) as (client, _, address):
            connection = await client.connect(address, None)

            async def send_all() -> None:
                for _ in range(num_frames):
                    await connection.send(frame)

            async with asyncio.TaskGroup() as group:
                sending = group.create_task(send_all())
                await asyncio.sleep(patient.dead_after_s + 2)
                assert not sending.done()
                go_on.set()
            assert await connection.receive() == CANCEL
            assert received == [len(frame)] * num_frames
            await connection.close("Done.")

    run(test)


# ---- what the program does with a connection ---------------------------------------------------


def test_an_error_of_ours_in_one_connection_ends_that_one_only() -> None:
    async def test() -> None:
        async def fail(connection: Connection) -> None:
            if decode(await connection.receive()) == Cancel(request_id="r-1"):
                raise KVCacheFullError(2, 0)
            raise RemoteProtocolError("That is no message for a listener.")

        async with listening(fail) as (client, _, address):
            connection = await client.connect(address, None)
            await connection.send(CANCEL)
            with pytest.raises(PeerUnreachableError, match="2 more KV blocks"):
                await connection.receive()
            connection = await client.connect(address, None)
            await connection.send(encode_control(Cancel(request_id="other")))
            with pytest.raises(LocalProtocolError, match="no message for a listener"):
                await connection.receive()

    run(test)


def test_a_bug_in_one_connection_is_the_groups() -> None:
    async def test() -> None:
        async def bug(connection: Connection) -> None:
            await connection.receive()
            raise ZeroDivisionError

        async def node() -> None:
            async with listening(bug) as (client, _, address):
                connection = await client.connect(address, None)
                await connection.send(CANCEL)
                await asyncio.sleep(10)

        with pytest.raises(ExceptionGroup) as caught:
            await node()
        assert caught.group_contains(ZeroDivisionError)

    run(test)


# ---- connecting to something else --------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    [
        "",
        "127.0.0.1:7300",
        "http://127.0.0.1:7300",
        "ws://127.0.0.1:7300",
        "wss://127.0.0.1",
        "wss://127.0.0.1:99999",
        "wss://127.0.0.1:0",
        "wss://:7300",
        "wss://user:secret@127.0.0.1:7300",
        "wss://127.0.0.1:7300/chat",
        "wss://[::1",
    ],
)
def test_what_is_no_address_is_refused_at_once(address: str) -> None:
    async def test() -> None:
        async with asyncio.TaskGroup() as group:
            with pytest.raises(UsageError, match="is no address"):
                await endpoint_of("client", group, "server").connect(address, None)

    run(test)


def test_nobody_there_is_unreachable() -> None:
    async def test() -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        async with asyncio.TaskGroup() as group:
            endpoint = endpoint_of("client", group, "server")
            with pytest.raises(PeerUnreachableError, match=f"wss://127.0.0.1:{port}: It can't"):
                await endpoint.connect(f"wss://127.0.0.1:{port}", None)
            with pytest.raises(PeerUnreachableError, match="can't be reached"):
                await endpoint.connect("wss://no-such-host.invalid:7300", None)

    run(test)


async def assert_connect_fails(
    answer: bytes | None, error: type[TransportError], says: str, within_s: float = 1
) -> None:
    """Connect to a TCP server that answers with some bytes and closes, or never answers."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        if answer is None:
            await reader.read()
        else:
            writer.write(answer)
        writer.close()

    context = trust_of("server", "client").server_context
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    async with asyncio.TaskGroup() as group:
        with pytest.raises(error, match=says):
            await endpoint_of("client", group, "server").connect(
                f"wss://127.0.0.1:{port}", None, within_s
            )
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize(
    ("answer", "error", "says"),
    [
        (b"", NotTrustedError, "does not know it"),
        (b"HTTP/1.1 101 Swi", NotTrustedError, "does not know it"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", RemoteProtocolError, "does not answer as Daisy does"),
        (
            os.urandom(300).replace(b"\n", b"") + b"\r\n",
            RemoteProtocolError,
            "does not answer as Daisy does",
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
            RemoteProtocolError,
            "does not answer as Daisy does",
        ),
        (
            b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n",
            PeerUnreachableError,
            "HTTP 503",
        ),
        (None, PeerTimeoutError, "No answer within 0.2 s"),
    ],
)
def test_what_is_not_daisy_gives_a_typed_error(
    answer: bytes | None, error: type[TransportError], says: str
) -> None:
    run(lambda: assert_connect_fails(answer, error, says, 1 if answer is not None else 0.2))


def test_a_redirect_is_not_followed() -> None:
    async def test() -> None:
        async with listening() as (_, listener, address):
            target = f"{address}/".encode()
            answer = b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: " + target + b"\r\n\r\n"
            await assert_connect_fails(answer, RemoteProtocolError, "HTTP 302")
            assert listener.num_strangers == 0

    run(test)


@asynccontextmanager
async def raw_listener(on_websocket: Callable[..., Awaitable[None]]) -> AsyncIterator[str]:
    """Yield the address of the library's own server, which says what a test wants."""
    context = trust_of("server", "client").server_context
    async with library_serve(on_websocket, "127.0.0.1", 0, ssl=context, compression=None) as server:
        yield f"wss://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def test_a_server_that_never_introduces_itself_is_given_up() -> None:
    async def test() -> None:
        async def silent(websocket: object) -> None:
            await websocket.wait_closed()

        async with raw_listener(silent) as address, asyncio.TaskGroup() as group:
            with pytest.raises(PeerTimeoutError, match=r"introduce itself within 0\.5 s"):
                await endpoint_of("client", group, "server", liveness=QUICK).connect(address, None)

    run(test)


def test_a_server_of_another_version_is_named() -> None:
    async def test() -> None:
        async def other(websocket: object) -> None:
            await websocket.recv()
            await websocket.send(HELLO[:2] + b"\x05" + HELLO[3:])
            await websocket.wait_closed()

        async with raw_listener(other) as address, asyncio.TaskGroup() as group:
            with pytest.raises(VersionMismatchError, match="version 5, and this PC version 1"):
                await endpoint_of("client", group, "server").connect(address, None)

    run(test)


# ---- being connected to by something else ------------------------------------------------------


def test_s26_a_client_of_another_version_is_answered_with_ours() -> None:
    async def test() -> None:
        async with listening() as (client, _, address):
            async with raw_peer(address, HELLO[:2] + b"\x02" + HELLO[3:]) as peer:
                assert decode(await peer.recv()) == hello_of("server")
                assert await code_of_close(peer) == 1002
            await assert_serves(client, address)

    run(test)


@pytest.mark.parametrize(
    ("first", "code"),
    [
        (["text instead of bytes"], 1002),
        ([b"garbage"], 1002),
        ([CANCEL], 1002),
        ([encode_control(Ping(number=1))], 1002),
        ([b"x" * (MAX_HELLO_BYTES + 1)], 1009),
        ([HELLO, "text"], 1002),
        ([HELLO, HELLO], 1002),
        ([HELLO, b"garbage"], 1002),
        ([HELLO, encode_control(Pong(number=3))], 1002),
        ([HELLO, encode_control(Goodbye(reason="Bye."))], 1000),
    ],
)
def test_a_peer_that_breaks_the_protocol_is_told_and_closed(first: list, code: int) -> None:
    async def test() -> None:
        async with listening() as (client, _, address):
            async with raw_peer(address, *first) as peer:
                assert await code_of_close(peer) == code
            await assert_serves(client, address)

    run(test)


def test_s17_a_message_beyond_the_frame_limit_is_refused_by_its_length() -> None:
    """Ten bytes of header claim 64 MiB and one byte; nothing is waited for or kept."""

    async def test() -> None:
        async with listening() as (client, _, address):
            async with raw_peer(address, HELLO) as peer:
                await peer.recv()
                claim = b"\x82\xff" + (MAX_FRAME_BYTES + 1).to_bytes(8, "big") + b"mask"
                peer.transport.write(claim)
                assert await code_of_close(peer) == 1009
            await assert_serves(client, address)

    run(test)


@pytest.mark.parametrize("compression", ["deflate", None])
def test_s17_an_offer_to_compress_is_declined(compression: str | None) -> None:
    """A megabyte of zeros is a kilobyte on the wire: who may not deflate can't send a bomb."""

    async def test() -> None:
        async with (
            listening() as (_, _, address),
            library_connect(
                address, ssl=raw_context(), compression=compression, proxy=None
            ) as websocket,
        ):
            offered = websocket.request.headers.get("Sec-WebSocket-Extensions")
            assert (offered is not None) == (compression is not None)
            assert "Sec-WebSocket-Extensions" not in websocket.response.headers
            assert websocket.protocol.extensions == []

    run(test)


def test_s17_a_frame_that_says_it_is_compressed_closes_its_connection() -> None:
    async def test() -> None:
        async with listening() as (client, _, address):
            async with raw_peer(address, HELLO) as peer:
                await peer.recv()
                peer.transport.write(b"\xc2\x84mask" + bytes(4))  # FIN, RSV1, binary, 4 bytes
                assert await code_of_close(peer) == 1002
            await assert_serves(client, address)

    run(test)


@pytest.mark.parametrize("num_bytes", [MAX_HELLO_BYTES + 1, 1 << 20, (1 << 20) + 1])
def test_s17_before_its_hello_nobody_sends_more_than_one(num_bytes: int) -> None:
    async def test() -> None:
        async with listening() as (client, _, address):
            async with raw_peer(address) as peer:
                await peer.send(bytes(num_bytes))
                assert await code_of_close(peer) == 1009
            await assert_serves(client, address)

    run(test)


def test_a_peer_that_vanishes_in_the_middle_of_a_frame_is_reported_to_the_program() -> None:
    async def test() -> None:
        ended: asyncio.Future[TransportError] = asyncio.get_running_loop().create_future()

        async def receive(connection: Connection) -> None:
            try:
                await connection.receive()
            except TransportError as exc:
                ended.set_result(exc)

        async with listening(receive) as (_, _, address), raw_peer(address, HELLO) as peer:
            await peer.recv()
            peer.transport.write(b"\x82\xff" + (1000).to_bytes(8, "big") + b"mask" + b"x" * 500)
            await asyncio.sleep(0.05)
            peer.transport.abort()
            error = await ended
            assert isinstance(error, PeerUnreachableError)
            assert "127.0.0.1:" in error.what

    run(test)


def test_a_peer_that_goes_silent_is_given_up() -> None:
    async def test() -> None:
        ended: asyncio.Future[TransportError] = asyncio.get_running_loop().create_future()

        async def receive(connection: Connection) -> None:
            try:
                await connection.receive()
            except TransportError as exc:
                ended.set_result(exc)

        async with listening(receive, QUICK) as (_, _, address), raw_peer(address, HELLO):
            error = await ended
            assert isinstance(error, PeerTimeoutError)
            assert "Nothing has been heard" in error.what

    run(test)


def test_a_peer_that_reads_nothing_and_then_falls_silent_does_not_hold_the_sender() -> None:
    """The socket's buffers are full and the sender waits; the peer's silence ends the wait."""

    async def test() -> None:
        ended: asyncio.Future[TransportError] = asyncio.get_running_loop().create_future()
        frame = encode_control(Generate(request_id="r", prompt="x" * 1_000_000))

        async def flood(connection: Connection) -> None:
            try:
                while True:
                    await connection.send(frame)
            except TransportError as exc:
                ended.set_result(exc)

        async with listening(flood, QUICK) as (_, _, address), raw_peer(address, HELLO) as peer:
            peer.transport.pause_reading()
            error = await ended
            assert isinstance(error, PeerTimeoutError | PeerUnreachableError)
            peer.transport.abort()

    run(test)


RAW_BYTES = {
    "random": os.urandom(4096),
    "http get": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "http post": b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello",
    "long line": b"GET /" + b"a" * 20_000,
    "many headers": b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 1000,
    "nothing": b"",
}


def tls_hello() -> bytes:
    """The first bytes of a TLS client."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


@pytest.mark.parametrize("what", [*RAW_BYTES, "tls"])
def test_the_listener_survives_what_is_no_websocket(what: str) -> None:
    async def test() -> None:
        data = tls_hello() if what == "tls" else RAW_BYTES[what]
        async with listening(liveness=QUICK) as (client, _, address):
            port = int(address.rsplit(":", 1)[1])
            for ends_politely in (True, False):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(data)
                if ends_politely:
                    answer = await reader.read()  # it is closed, with an error of HTTP or none
                    assert b"101" not in answer.split(b"\r\n")[0]
                else:
                    writer.transport.abort()
                writer.close()
            await assert_serves(client, address)

    run(test)


def test_random_websocket_frames_close_their_connection_only() -> None:
    async def test() -> None:
        random = np.random.default_rng(7)
        async with listening(liveness=QUICK) as (client, _, address):
            for _ in range(30):
                async with raw_peer(address, HELLO) as peer:
                    peer.transport.write(random.bytes(200))
                    assert await code_of_close(peer) in {1002, 1006, 1007, 1009}
            await assert_serves(client, address)

    run(test)


@pytest.mark.parametrize("origin", ["http://localhost", "https://evil.example", "null"])
def test_s21_a_browser_is_refused(origin: str) -> None:
    async def test() -> None:
        async with listening() as (_, _, address):
            with pytest.raises(InvalidStatus, match="403"):
                async with library_connect(address, ssl=raw_context(), origin=origin, proxy=None):
                    pass

    run(test)


def test_s02_a_member_reaches_no_other_path() -> None:
    async def test() -> None:
        async with listening() as (_, _, address):
            with pytest.raises(InvalidStatus, match="403"):
                async with library_connect(f"{address}/pair", ssl=raw_context(), proxy=None):
                    pass

    run(test)


def test_s18_200_half_open_connections_shut_nobody_else_out_and_end_by_themselves() -> None:
    async def test() -> None:
        patient = Liveness(hello_within_s=3.0)
        async with listening(liveness=patient, host="0.0.0.0") as (client, listener, address):  # noqa: S104
            port = listener.port
            source = ("127.0.0.2", 0)
            half_open = await asyncio.to_thread(
                lambda: [
                    socket.create_connection(("127.0.0.1", port), source_address=source)
                    for _ in range(200)
                ]
            )
            for tcp in half_open[::2]:
                with contextlib.suppress(OSError):  # it was refused already
                    tcp.send(b"\x16\x03\x01")  # a record of TLS begins
            await until(lambda: listener.num_strangers == MAX_STRANGERS_PER_ADDRESS)
            await assert_serves(client, address)
            await until(lambda: listener.num_strangers == 0)
            await assert_serves(client, address)
            for tcp in half_open:
                tcp.close()

    run(test)


async def until(is_so: Callable[[], bool]) -> None:
    """Wait for something; ``run`` has the deadline."""
    while not is_so():  # noqa: ASYNC110 - it tells nobody
        await asyncio.sleep(0.02)


def test_s24_one_member_opens_only_so_many_connections_and_the_others_go_on(monkeypatch) -> None:
    monkeypatch.setattr(endpoint_module, "MAX_OF_ONE_MEMBER", 3)

    async def test() -> None:
        async with listening() as (client, listener, address):
            opened = [await client.connect(address, None) for _ in range(3)]
            with pytest.raises(TransportError):
                await client.connect(address, None)
            async with raw_peer(address, HELLO) as other:  # another member
                assert decode(await other.recv()) is not None
            assert listener.num_strangers == 0
            await opened[0].close("Done.")
            await opened[1].send(CANCEL)
            assert await opened[1].receive() == CANCEL
            while True:  # the other end takes note of it a moment later
                with contextlib.suppress(TransportError):
                    again = await client.connect(address, None)
                    break
                await asyncio.sleep(0.02)
            for one in (*opened[1:], again):
                await one.close("Done.")

    run(test)


def test_a_stopping_listener_waits_for_no_stranger() -> None:
    async def test() -> None:
        async with listening() as (client, listener, address):
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
            await assert_serves(client, address)
            assert listener.num_strangers == 1
            async with asyncio.timeout(1), raw_peer(address):
                await listener.close()
            assert await reader.read() == b""
            writer.close()

    run(test)


def test_ipv6_works_where_there_is_any() -> None:
    async def test() -> None:
        seen: list[str] = []

        async def see(connection: Connection) -> None:
            seen.append(connection.address)
            await echo(connection)

        async with listening(see, host="::1") as (client, listener, _):
            await assert_serves(client, f"wss://[::1]:{listener.port}")
        assert seen[0].startswith("[::1]:")

    if not socket.has_dualstack_ipv6():
        pytest.skip("this PC has no IPv6")
    run(test)


def test_a_stranger_that_finishes_the_handshake_and_says_nothing_is_given_up() -> None:
    async def test() -> None:
        async with listening(liveness=QUICK) as (_, listener, address), raw_peer(address) as peer:
            assert listener.num_strangers == 1
            assert await code_of_close(peer) == 1006
            assert listener.num_strangers == 0

    run(test)


# ---- the port ----------------------------------------------------------------------------------


def test_a_port_in_use_is_named_with_its_holder() -> None:
    async def test() -> None:
        async with listening() as (client, listener, _):
            with pytest.raises(
                PortInUseError, match=f"Port {listener.port} is taken by .*{os.getpid()}"
            ):
                await client.listen("127.0.0.1", listener.port, echo)

    run(test)


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
def test_an_address_that_is_not_this_pcs_is_refused(host: str) -> None:
    async def test() -> None:
        async with asyncio.TaskGroup() as group:
            with pytest.raises(UsageError, match="is not an address of this PC"):
                await endpoint_of("client", group, "server").listen(host, 0, echo)

    run(test)


def test_a_frame_for_nobody_is_refused_before_it_is_sent() -> None:
    async def test() -> None:
        async with listening() as (client, _, address):
            connection = await client.connect(address, None)
            for frame in (b"garbage!", HELLO):
                with pytest.raises(LocalProtocolError):
                    await connection.send(frame)
            await connection.send(CANCEL)
            assert await connection.receive() == CANCEL
            await connection.close("Done.")

    run(test)

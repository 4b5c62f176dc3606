"""Parts of files over real connections: in order, bounded, and through what peers do wrong."""

import asyncio
import threading
import time
from collections import Counter

import pytest

from engine.errors import (
    DaisyError,
    ModelNotFoundError,
    NotTrustedError,
    PeerUnreachableError,
    RemoteProtocolError,
    TransportError,
    UsageError,
)
from engine.messages.codec import decode, encode_chunk, encode_control
from engine.messages.control import ErrorReport, Ping
from engine.messages.pool_control import AskChunk, AskChunkList, ChunksThere
from engine.pool.chunk_pieces import PIECE_BYTES
from engine.pool.chunk_service import ChunkService
from engine.pool.chunk_wire import PeerChunkSource
from engine.pool.chunks import CHUNK_BYTES
from engine.pool.pull import Pulls
from engine.pool.store import ShardStore
from engine.pool.store_threads import StoreThreads
from engine.transport.websocket import WRITE_BUFFER_BYTES
from tests.paired import endpoint_of, hello_of, id_of, trust_of
from tests.unit.pool.files import chunked, pieces, random_bytes
from tests.unit.pool.serving import a_source, asking, listening, serving, serving_in_tasks

DATA = random_bytes(4 * CHUNK_BYTES + 77, 3)
CHUNKS = chunked(DATA)
NAME = CHUNKS.sha256
OTHER = "ab" * 32


def first_piece(index):
    return pieces(DATA)[index][:PIECE_BYTES]


@pytest.fixture
def store(tmp_path):
    """A store with one file."""
    opened = ShardStore(tmp_path / "server")
    (tmp_path / "file").write_bytes(DATA)
    opened.add_hashed(tmp_path / "file", CHUNKS)
    return opened


def run(test):
    """Run a test's coroutine; it must end in time and leave no task behind."""

    async def main():
        async with asyncio.timeout(30):
            await test()
        await asyncio.sleep(0.02)  # the library's own tasks end one step after what they serve
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


@pytest.mark.parametrize("how", [serving, serving_in_tasks])
def test_all_three_questions_are_answered(store, how):
    async def test():
        async with a_source(store, how) as source:
            assert await source.chunk_list(NAME) == CHUNKS.encoded()
            assert await source.chunks_there(NAME) == frozenset(range(5))
            assert await source.piece(NAME, 4, 0) == pieces(DATA)[4]
            last = await source.piece(NAME, 3, 3)
            assert last == pieces(DATA)[3][3 * PIECE_BYTES :]

    run(test)


def test_a_file_that_is_still_on_its_way_is_served_as_far_as_it_is_there(tmp_path):
    half = ShardStore(tmp_path / "half")
    half.begin(CHUNKS)
    half.write_chunk(NAME, 1, pieces(DATA)[1])
    half.write_chunk(NAME, 4, pieces(DATA)[4])

    async def test():
        async with a_source(half) as source:
            assert await source.chunks_there(NAME) == {1, 4}
            assert await source.piece(NAME, 1, 0) == first_piece(1)
            with pytest.raises(ModelNotFoundError, match="Chunk 0"):
                await source.piece(NAME, 0, 0)

    run(test)


@pytest.mark.parametrize("how", [serving, serving_in_tasks])
def test_a_whole_file_is_pulled_through_it(store, tmp_path, how):
    mine = ShardStore(tmp_path / "client")

    async def test():
        async with a_source(store, how) as source, StoreThreads() as threads:
            done = await Pulls(mine, threads).pull(NAME, [source])
            assert done.fetched_bytes == len(DATA)
            assert done.set_aside == {}

    run(test)
    assert mine.object_path(NAME).read_bytes() == DATA


def test_a_chunk_is_read_once_for_all_its_pieces_and_again_when_it_failed(store):
    reads = []
    read = store.serve_chunk

    def counted(name, index):
        reads.append(index)
        if index == 3:
            raise ModelNotFoundError("Not yet.")
        return read(name, index)

    store.serve_chunk = counted

    async def test():
        async with a_source(store) as source:
            got = [await source.piece(NAME, 2, piece) for piece in range(4)]
            assert b"".join(got) == pieces(DATA)[2]
            with pytest.raises(ModelNotFoundError, match="Not yet"):
                await source.piece(NAME, 3, 0)
            assert await source.piece(NAME, 2, 0) == first_piece(2)
            assert reads == [2, 3, 2]

    run(test)


def test_chunks_asked_for_in_order_are_read_ahead_and_others_are_not(store):
    """The next is being read while one is sent; one that can't be is told when it is asked for."""
    reads = []
    read = store.serve_chunk

    def counted(name, index):
        reads.append(index)
        if index == 2:
            raise ModelNotFoundError("Not yet.")
        return read(name, index)

    store.serve_chunk = counted

    async def test():
        async with a_source(store) as source:
            assert await source.piece(NAME, 0, 0) == first_piece(0)
            assert await source.piece(NAME, 1, 0) == first_piece(1)
            assert await source.piece(NAME, 0, 1) == pieces(DATA)[0][PIECE_BYTES : 2 * PIECE_BYTES]
            with pytest.raises(ModelNotFoundError, match="Not yet"):
                await source.piece(NAME, 2, 0)
            assert await source.piece(NAME, 4, 0) == first_piece(4)

    run(test)
    # 0 and 1 after it, and 2 after that; 0 once more, and again 1 after it; 2; 4 alone.
    assert Counter(reads) == {0: 2, 1: 2, 2: 2, 4: 1}


class SlowStore:
    """A store whose first reads take longest."""

    def __init__(self):
        self.reading = 0
        self.most = 0
        self._lock = threading.Lock()

    def serve_chunk(self, _name, index):
        with self._lock:
            self.reading += 1
            self.most = max(self.most, self.reading)
        time.sleep(0.04 if index % 4 == 0 else 0.005)
        with self._lock:
            self.reading -= 1
        return str(index).encode()


@pytest.mark.parametrize("how", [serving, serving_in_tasks])
def test_answers_come_in_the_order_of_the_questions_and_one_chunk_is_read_at_a_time(how):
    store = SlowStore()

    async def test():
        async with (
            StoreThreads(16) as threads,
            listening(how(ChunkService(store, threads))) as address,
            asking(address) as source,
        ):
            order = []

            async def ask(index):
                assert await source.piece(OTHER, index, 0) == str(index).encode()
                order.append(index)

            async with asyncio.TaskGroup() as tasks:
                for index in range(12):
                    tasks.create_task(ask(index))
            assert order == list(range(12))

    run(test)
    assert store.most == 1


def test_what_is_not_there_is_the_other_pcs_error_and_the_connection_goes_on(store):
    async def test():
        async with a_source(store) as source:
            with pytest.raises(ModelNotFoundError, match=OTHER):
                await source.chunk_list(OTHER)
            with pytest.raises(ModelNotFoundError):
                await source.chunks_there(OTHER)
            with pytest.raises(UsageError, match="no chunk 5 of 5"):
                await source.piece(NAME, 5, 0)
            with pytest.raises(ModelNotFoundError, match="no piece 1"):
                await source.piece(NAME, 4, 1)
            assert await source.piece(NAME, 0, 0) == first_piece(0)

    run(test)


def test_s14_a_path_is_no_name(store):
    """Decoding refuses it; so does the store behind it."""
    sent = []

    class Recorder:
        async def send(self, frame):
            sent.append(decode(frame))

    async def test():
        async with StoreThreads() as threads:
            service = ChunkService(store, threads)
            await service.serve(AskChunk(name="../../format", index=0, piece=0), Recorder())

    run(test)
    assert sent[0].code == "usage"


def test_nobody_is_connected_to_before_the_first_question(store):
    num_connections = 0

    async def test():
        nonlocal num_connections
        async with StoreThreads() as threads:
            serve = serving(ChunkService(store, threads))

            async def attend(connection):
                nonlocal num_connections
                num_connections += 1
                await serve(connection)

            async with listening(attend) as address:
                async with asking(address):
                    await asyncio.sleep(0.05)
                    assert num_connections == 0
                async with asking(address) as source:
                    await asyncio.gather(*(source.piece(NAME, i, 0) for i in range(5)))
                    assert num_connections == 1

    run(test)


def test_a_question_nobody_waits_for_any_more_does_not_shift_the_answers(store):
    gate = asyncio.Event()

    def late(service):
        async def attend(connection):
            while True:
                message = decode(await connection.receive())
                await gate.wait()
                await service.serve(message, connection)

        return attend

    async def test():
        async with a_source(store, late) as source:
            for index in (0, 1):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(source.piece(NAME, index, 0), 0.05)
            gate.set()
            assert await source.piece(NAME, 2, 0) == first_piece(2)
            assert await source.piece(NAME, 3, 0) == first_piece(3)

    run(test)


class Breaking:
    """A node that hangs up on the first few connections when it is asked something."""

    def __init__(self, times):
        self.times = times
        self.num_connections = 0

    def __call__(self, service):
        async def attend(connection):
            self.num_connections += 1
            while True:
                message = decode(await connection.receive())
                if self.times:
                    self.times -= 1
                    connection.abort()
                    return
                await service.serve(message, connection)

        return attend


@pytest.mark.parametrize("times", [0, 1])
def test_a_lost_connection_is_opened_again(store, times):
    node = Breaking(times)

    async def test():
        async with a_source(store, node) as source:
            assert await source.piece(NAME, 1, 0) == first_piece(1)
            assert node.num_connections == times + 1

    run(test)


def test_a_connection_is_opened_again_only_once_for_a_question(store):
    node = Breaking(2)

    async def test():
        async with a_source(store, node) as source:
            with pytest.raises(TransportError, match=r"127\.0\.0\.1"):
                await source.piece(NAME, 1, 0)
            assert node.num_connections == 2
            assert await source.piece(NAME, 2, 0) == first_piece(2)

    run(test)


def test_a_lost_connection_fails_all_that_wait_for_it(store):
    """Each of them asks once more; then each is told."""

    async def test():
        node = Breaking(100)
        async with a_source(store, node) as source:
            questions = (source.piece(NAME, index, 0) for index in range(5))
            answers = await asyncio.gather(*questions, return_exceptions=True)
            assert all(isinstance(answer, TransportError) for answer in answers)
            assert len({id(answer) for answer in answers}) == 5
            assert 2 <= node.num_connections <= 10

    run(test)


def test_a_pc_that_is_not_there_is_told_at_once():
    async def test():
        async with asking("wss://127.0.0.1:9") as source:
            with pytest.raises(PeerUnreachableError):
                await source.chunk_list(NAME)

    run(test)


def test_another_pc_at_the_address_is_not_asked(store):
    async def test():
        async with (
            StoreThreads() as threads,
            listening(serving(ChunkService(store, threads)), "somebody-else") as address,
            asking(address) as source,
        ):
            with pytest.raises(NotTrustedError, match="not the PC that this pool knows"):
                await source.chunk_list(NAME)

    run(test)


@pytest.mark.parametrize(
    "answer",
    [
        encode_chunk(OTHER, 0, 0, b"x"),
        encode_chunk(NAME, 1, 0, b"x"),
        encode_chunk(NAME, 0, 1, b"x"),
        encode_control(ChunksThere(name=NAME, bitmap=b"\x01")),
        encode_control(Ping(number=1))[:8] + b"\xc0",
        encode_control(ErrorReport(code="model", what="No.", advice="", request_id=NAME)),
        encode_control(ErrorReport(code="model", what="No.", advice="")),
        encode_control(AskChunkList(name=NAME)),
    ],
)
def test_an_answer_to_another_question_breaks_the_protocol_and_is_not_asked_for_again(answer):
    num_connections = 0

    async def attend(connection):
        nonlocal num_connections
        num_connections += 1
        await connection.receive()
        await connection.send(b"DZ\x01\0\x06\x01\0\0bad" if answer[4] == 4 else answer)
        await connection.receive()

    async def test():
        async with listening(attend) as address, asking(address) as source:
            with pytest.raises(RemoteProtocolError):
                await source.piece(NAME, 0, 0)
        assert num_connections == 1

    run(test)


def test_an_answer_nobody_asked_for_ends_the_connection():
    async def attend(connection):
        await connection.receive()
        for _ in range(2):
            await connection.send(encode_chunk(NAME, 0, 0, b"x"))
        with pytest.raises(TransportError):
            await connection.receive()
        ended.set()

    ended = asyncio.Event()

    async def test():
        async with listening(attend) as address, asking(address) as source:
            assert await source.piece(NAME, 0, 0) == b"x"
            await ended.wait()

    run(test)


def test_what_another_pc_says_went_wrong_is_shown_on_one_printable_line():
    async def attend(connection):
        await connection.receive()
        await connection.send(
            encode_control(
                ErrorReport(code="storage", what="a\x1b[2J\nb", advice="\x07", request_id=NAME)
            )
        )
        await connection.receive()

    async def test():
        async with listening(attend) as address, asking(address) as source:
            with pytest.raises(DaisyError) as caught:
                await source.chunk_list(NAME)
        assert caught.value.code == "storage"
        assert caught.value.what == "a [2J b"

    run(test)


def test_closing_tells_who_waits_and_nothing_is_asked_afterwards(store):
    async def attend(connection):
        await connection.receive()
        await connection.receive()

    async def test():
        async with listening(attend) as address, asking(address) as source:
            waiting = asyncio.gather(source.piece(NAME, 0, 0), return_exceptions=True)
            await asyncio.sleep(0.05)
            await source.aclose()
            assert isinstance((await waiting)[0], TransportError)
            with pytest.raises(TransportError, match="nothing more"):
                await source.piece(NAME, 1, 0)
            await source.aclose()

    run(test)


def test_closing_while_it_is_being_connected_to_leaves_nothing_open():
    async def attend(connection):
        await connection.receive()

    async def test():
        async with listening(attend) as address, asking(address) as source:
            waiting = asyncio.gather(source.piece(NAME, 0, 0), return_exceptions=True)
            await asyncio.sleep(0)
            await source.aclose()
            assert isinstance((await waiting)[0], TransportError)

    run(test)


def test_a_pc_that_does_not_read_is_held_back_and_nothing_grows(store):
    """What is read for it: the write buffer, the system's buffers, and one piece more."""
    reads = []
    read = store.serve_chunk

    def counted(name, index):
        reads.append(index)
        return read(name, index)

    store.serve_chunk = counted

    async def test():
        async with StoreThreads() as threads:
            service = serving(ChunkService(store, threads))
            async with listening(service) as address:
                host, port = address.removeprefix("wss://").split(":")
                reader, writer = await asyncio.open_connection(
                    host,
                    int(port),
                    limit=1024,
                    ssl=trust_of("client", "server").client_context(None),
                )
                questions = [AskChunk(name=NAME, index=i % 4, piece=0) for i in range(60)]
                await greet(reader, writer, [encode_control(question) for question in questions])
                await asyncio.sleep(1.5)
                writer.transport.abort()

    run(test)
    assert WRITE_BUFFER_BYTES // PIECE_BYTES < len(reads) < 45


async def greet(reader, writer, frames):
    """Speak as a client that says hello and asks, and never reads an answer."""
    writer.write(
        b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    await reader.readuntil(b"\r\n\r\n")
    for frame in (encode_control(hello_of("client")), *frames):
        mask = bytes(4)
        size = bytes([0x80 | len(frame)]) if len(frame) < 126 else b"\xfe" + len(frame).to_bytes(2)
        writer.write(b"\x82" + size + mask + frame)


def test_a_pc_that_is_stopping_asks_nobody():
    """Its connections' task group is being cancelled: nothing can be started in it."""

    async def attend(connection):
        await connection.receive()

    async def test():
        async with listening(attend) as address:
            stopped = asyncio.TaskGroup()
            async with stopped:
                pass
            source = PeerChunkSource(
                endpoint_of("client", stopped, "server"), id_of("server"), address
            )
            with pytest.raises(TransportError, match="stopping"):
                await source.piece(NAME, 0, 0)

    run(test)

"""Answering what other PCs ask about the files of a store."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from engine.errors import DaisyError
from engine.messages.codec import encode_chunk, encode_chunk_list, encode_control
from engine.messages.control import ErrorReport
from engine.messages.pool_control import AskChunk, AskChunkList, AskChunksThere, ChunksThere
from engine.pool.chunk_wire import subject
from engine.pool.chunks import ChunkBitmap

if TYPE_CHECKING:
    from engine.pool.chunk_wire import Question
    from engine.pool.store import ShardStore
    from engine.pool.store_threads import StoreThreads
    from engine.transport.connection import Connection

MAX_READS = 4  # of one connection at once, each with a chunk in memory


class _Turns:
    """Whose answer is next on one connection."""

    def __init__(self) -> None:
        self.room = asyncio.Semaphore(MAX_READS)
        self.last = asyncio.Event()  # set when the answer before has been sent
        self.last.set()


class ChunkService:
    """Answers what other PCs ask about the files of a store; never takes a path from them.

    Await ``serve`` in the loop that receives from the connection. Then one chunk is read while up
    to four lie in the connection's write buffer, and who asks faster than the link carries is
    held back by TCP. Only that connection waits: its pings are answered by the transport, and
    heartbeats travel on others. Where a connection does carry more, run ``serve`` as a task for
    each question, in their order: up to ``MAX_READS`` chunks are then read at once.
    """

    def __init__(self, store: ShardStore, threads: StoreThreads) -> None:
        """Serve a store.

        Args:
            store: Has the files.
            threads: For its disk work.
        """
        self._store = store
        self._threads = threads
        self._turns: WeakKeyDictionary[Connection, _Turns] = WeakKeyDictionary()

    async def serve(self, message: Question, connection: Connection) -> None:
        """Answer one question; answers leave in the order of the calls.

        What goes wrong here is told to the other side.

        Args:
            message: The question.
            connection: It came through this one.

        Fails with ``TransportError`` if that has ended. Thread: the loop's. Cancellation: there is
        no answer, and the connection must not be used further.
        """
        turns = self._turns.setdefault(connection, _Turns())
        before, turns.last = turns.last, asyncio.Event()
        done = turns.last
        try:
            async with turns.room:
                frame = await self._answer(message)
                await before.wait()
                await connection.send(frame)
        finally:
            done.set()

    async def _answer(self, message: Question) -> bytes:
        try:
            return await self._threads.call(self._read, message)
        except DaisyError as exc:
            report = ErrorReport(
                code=exc.code, what=exc.what, advice=exc.advice, request_id=subject(message)
            )
            return encode_control(report)

    def _read(self, message: Question) -> bytes:
        """Return the answer's frame; runs in a thread."""
        name = message.name
        match message:
            case AskChunkList():
                return encode_chunk_list(name, self._store.chunk_list(name).encoded())
            case AskChunksThere():
                return encode_control(ChunksThere(name=name, bitmap=self._bitmap(name)))
            case AskChunk(index=index):
                return encode_chunk(name, index, self._store.serve_chunk(name, index))

    def _bitmap(self, name: str) -> bytes:
        there = ChunkBitmap(self._store.chunk_list(name).num_chunks)
        missing = frozenset(self._store.missing_chunks(name))
        for index in range(there.num_chunks):
            if index not in missing:
                there.add(index)
        return there.encoded()

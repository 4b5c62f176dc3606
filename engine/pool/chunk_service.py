"""Answering what other PCs ask about the files of a store."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from engine.errors import DaisyError, ModelNotFoundError
from engine.messages.codec import encode_chunk, encode_chunk_list, encode_control
from engine.messages.control import ErrorReport
from engine.messages.pool_control import AskChunk, AskChunkList, AskChunksThere, ChunksThere
from engine.pool.chunk_pieces import piece_of
from engine.pool.chunk_wire import subject
from engine.pool.chunks import ChunkBitmap

if TYPE_CHECKING:
    from engine.pool.chunk_wire import Question
    from engine.pool.store import ShardStore
    from engine.pool.store_threads import StoreThreads
    from engine.transport.connection import Connection


class _Desk:
    """One connection's.

    Attributes:
        turn: One question is answered at a time, in the order they came.
        name: Of the file of the chunk that was read last.
        index: Of that chunk.
        chunk: That chunk: its other pieces are asked for next.
    """

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.name = ""
        self.index = 0
        self.chunk = b""


class ChunkService:
    """Answers what other PCs ask about the files of a store; never takes a path from them.

    Await ``serve`` in the loop that receives from the connection. A chunk is read while the pieces
    before it lie in the connection's write buffer; who asks for more than the link carries is
    held back by TCP, and this PC keeps one chunk and one write buffer for it. Only that connection
    waits: its pings are answered by the transport, and heartbeats travel on others. Where a
    connection does carry more, ``serve`` may run as a task for each question: they are still
    answered one by one, in the order of the tasks.
    """

    def __init__(self, store: ShardStore, threads: StoreThreads) -> None:
        """Serve a store.

        Args:
            store: Has the files.
            threads: For its disk work.
        """
        self._store = store
        self._threads = threads
        self._desks: WeakKeyDictionary[Connection, _Desk] = WeakKeyDictionary()

    async def serve(self, message: Question, connection: Connection) -> None:
        """Answer one question; answers leave in the order of the calls.

        What goes wrong here is told to the other side.

        Args:
            message: The question.
            connection: It came through this one.

        Fails with ``TransportError`` if that has ended. Thread: the loop's. Cancellation: there is
        no answer, and the connection must not be used further.
        """
        desk = self._desks.setdefault(connection, _Desk())
        async with desk.turn:  # first come, first served
            await connection.send(await self._answer(message, desk))

    async def _answer(self, message: Question, desk: _Desk) -> bytes:
        try:
            return await self._threads.call(self._read, message, desk)
        except DaisyError as exc:
            report = ErrorReport(
                code=exc.code, what=exc.what, advice=exc.advice, request_id=subject(message)
            )
            return encode_control(report)

    def _read(self, message: Question, desk: _Desk) -> bytes:
        """Return the answer's frame; runs in a thread."""
        name = message.name
        match message:
            case AskChunkList():
                return encode_chunk_list(name, self._store.chunk_list(name).encoded())
            case AskChunksThere():
                return encode_control(ChunksThere(name=name, bitmap=self._bitmap(name)))
            case AskChunk():
                return self._piece(message, desk)

    def _piece(self, asked: AskChunk, desk: _Desk) -> bytes:
        """Return the frame of a piece.

        Raises:
            ModelNotFoundError: The chunk has fewer pieces.
        """
        if (asked.name, asked.index) != (desk.name, desk.index):
            desk.name, desk.chunk = "", b""  # one chunk in memory at a time, and none on failure
            desk.chunk = self._store.serve_chunk(asked.name, asked.index)
            desk.name, desk.index = asked.name, asked.index
        data = piece_of(desk.chunk, asked.piece)
        if not data:
            raise ModelNotFoundError(
                f"Chunk {asked.index} of {asked.name} has no piece {asked.piece}."
            )
        return encode_chunk(asked.name, asked.index, asked.piece, data)

    def _bitmap(self, name: str) -> bytes:
        there = ChunkBitmap(self._store.chunk_list(name).num_chunks)
        missing = frozenset(self._store.missing_chunks(name))
        for index in range(there.num_chunks):
            if index not in missing:
                there.add(index)
        return there.encoded()

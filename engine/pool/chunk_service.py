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
        place: File and number of the chunk that was read last; None for none.
        chunk: That chunk: its other pieces are asked for next.
        place_ahead: Of the chunk after it, which is likely to be asked for then.
        ahead: That one, being read; None in it if it can't be.
    """

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.place: tuple[str, int] | None = None
        self.chunk = b""
        self.place_ahead: tuple[str, int] | None = None
        self.ahead: asyncio.Future[bytes | None] | None = None


class ChunkService:
    """Answers what other PCs ask about the files of a store; never takes a path from them.

    Await ``serve`` in the loop that receives from the connection. Who asks for chunks in order has
    the next one read while the one before is sent; who asks for more than the link carries is
    held back by TCP, and this PC keeps two chunks and one write buffer for it. Only that connection
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
            if isinstance(message, AskChunk):
                return await self._piece(message, desk)
            return await self._threads.call(self._about, message)
        except DaisyError as exc:
            report = ErrorReport(
                code=exc.code, what=exc.what, advice=exc.advice, request_id=subject(message)
            )
            return encode_control(report)

    async def _piece(self, asked: AskChunk, desk: _Desk) -> bytes:
        """Return the frame of a piece.

        Raises:
            ModelNotFoundError: The chunk has fewer pieces.
        """
        place = (asked.name, asked.index)
        if place != desk.place:
            await self._open(place, desk)
        data = piece_of(desk.chunk, asked.piece)
        if not data:
            raise ModelNotFoundError(
                f"Chunk {asked.index} of {asked.name} has no piece {asked.piece}."
            )
        return encode_chunk(asked.name, asked.index, asked.piece, data)

    async def _open(self, place: tuple[str, int], desk: _Desk) -> None:
        """Have a chunk at hand, and begin to read the next where they are asked for in order."""
        name, index = place
        is_in_order = index == 0 or desk.place == (name, index - 1)
        ahead = desk.ahead if desk.place_ahead == place else None
        desk.place, desk.chunk, desk.ahead = None, b"", None
        data = None if ahead is None else await ahead
        if data is None:
            data = await self._threads.call(self._store.serve_chunk, name, index)
        desk.place, desk.chunk = place, data
        if is_in_order:
            desk.place_ahead = (name, index + 1)
            desk.ahead = self._threads.begin(self._chunk_if_there, name, index + 1)

    def _chunk_if_there(self, name: str, index: int) -> bytes | None:
        try:
            return self._store.serve_chunk(name, index)
        except DaisyError:  # whoever asks for it is told
            return None

    def _about(self, message: AskChunkList | AskChunksThere) -> bytes:
        """Return the frame that says something about a file; runs in a thread."""
        name = message.name
        if isinstance(message, AskChunkList):
            return encode_chunk_list(name, self._store.chunk_list(name).encoded())
        return encode_control(ChunksThere(name=name, bitmap=self._bitmap(name)))

    def _bitmap(self, name: str) -> bytes:
        there = ChunkBitmap(self._store.chunk_list(name).num_chunks)
        missing = frozenset(self._store.missing_chunks(name))
        for index in range(there.num_chunks):
            if index not in missing:
                there.add(index)
        return there.encoded()

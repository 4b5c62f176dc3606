"""Asking another PC for files, over a connection of their own.

Questions are answered in their order, so an answer needs no number: there is a queue of what is
waited for. A question nobody waits for any more keeps its place in the queue, and its answer is
dropped when it comes. ``engine.pool.chunk_service`` is the other side.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Generic, Self, TypeAlias, TypeVar

from engine.errors import (
    DaisyError,
    RemoteProtocolError,
    TransportError,
    rebuilt,
)
from engine.messages.codec import (
    ChunkFrame,
    ChunkListFrame,
    decode,
    encode_control,
    shown,
)
from engine.messages.control import ErrorReport
from engine.messages.pool_control import AskChunk, AskChunkList, AskChunksThere, ChunksThere
from engine.pool.chunks import ChunkBitmap

if TYPE_CHECKING:
    from types import TracebackType

    from engine.domain import NodeId
    from engine.transport.connection import Connection
    from engine.transport.endpoint import Endpoint

Question: TypeAlias = AskChunkList | AskChunksThere | AskChunk
A = TypeVar("A", ChunkListFrame, ChunksThere, ChunkFrame)


def subject(about: Question | ChunkListFrame | ChunksThere | ChunkFrame) -> str:
    """Return what an ``ErrorReport`` calls a question, and to what an answer belongs.

    Args:
        about: A question, or an answer.
    """
    if isinstance(about, AskChunk | ChunkFrame):
        return f"{about.name}/{about.index}/{about.piece}"
    return about.name


class _Waiting(Generic[A]):
    """A question on its way, and who waits for what of it.

    Attributes:
        answer: What was asked for, or the error the other side answered with; None if the
            connection ended before.
    """

    def __init__(self, question: Question, kind: type[A]) -> None:
        self.answer: asyncio.Future[A | DaisyError | None]
        self.answer = asyncio.get_running_loop().create_future()
        self._subject = subject(question)
        self._kind: type[A] = kind

    def take(self, message: object) -> None:
        """Hand the answer to whoever still waits for it.

        Raises:
            RemoteProtocolError: It is none to this question.
        """
        answer: A | DaisyError
        if isinstance(message, ErrorReport) and message.request_id == self._subject:
            answer = rebuilt(message.code, shown(message.what), shown(message.advice))
        elif isinstance(message, self._kind) and subject(message) == self._subject:
            answer = message
        else:
            raise RemoteProtocolError(f"It was asked for {self._subject} and answers otherwise.")
        self._set(answer)

    def lose(self) -> None:
        """Say that there will be no answer."""
        self._set(None)

    def _set(self, answer: A | DaisyError | None) -> None:
        if not self.answer.done():  # nobody waits any more: the deadline passed
            self.answer.set_result(answer)


class _Line:
    """One connection, and the questions on it that are not answered yet."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._waiting: deque[_Waiting[Any]] = deque()
        self._why_lost: TransportError | None = None

    @property
    def is_lost(self) -> bool:
        """Whether there will be no more answers."""
        return self._why_lost is not None

    async def ask(self, question: Question, kind: type[A]) -> A | DaisyError:
        """Return the answer, or the error the other side answered with.

        Raises:
            TransportError: The connection ended before it came.
        """
        waiting = _Waiting(question, kind)
        # In the queue before anything is awaited: its place is that of the frame.
        self._waiting.append(waiting)
        await self._connection.send(encode_control(question))
        answer = await waiting.answer
        if answer is None:
            raise self._reason()
        return answer

    async def read(self) -> None:
        """Hand out answers until the connection ends."""
        try:
            while True:
                self._take(await self._connection.receive())
        except RemoteProtocolError as exc:
            self._lose(exc)
            await self._connection.refuse(exc)
        except TransportError as exc:
            self._lose(exc)
        finally:
            self._lose(TransportError("This PC is stopping."))

    def _take(self, frame: bytes) -> None:
        """Hand out one answer.

        Raises:
            RemoteProtocolError: It is none to the oldest question.
        """
        if not self._waiting:
            raise RemoteProtocolError("It answers what nobody asked.")
        self._waiting[0].take(decode(frame))
        self._waiting.popleft()

    async def close(self) -> None:
        """Say goodbye; who waits is told."""
        await self._connection.close("It needs no more of this PC's files.")

    def _lose(self, why: TransportError) -> None:
        if self._why_lost is None:
            self._why_lost = why
        while self._waiting:
            self._waiting.popleft().lose()

    def _reason(self) -> TransportError:
        lost = self._why_lost or TransportError("The connection was lost.")
        return type(lost)(lost.what, lost.advice)


class PeerChunkSource:
    """A PC that may have files, asked over a connection of its own; an async context manager.

    The connection is opened at the first question. One that is lost meanwhile is opened again,
    once for a question.

    Attributes:
        node_id: Which PC.

    Thread: the loop's. Any number of tasks may ask at once.
    """

    def __init__(self, endpoint: Endpoint, node_id: NodeId, address: str) -> None:
        """Connect to nobody yet.

        Args:
            endpoint: This PC's; its task group is the parent of the task that reads.
            node_id: Who must answer there.
            address: ``wss://host:port``.
        """
        self.node_id = node_id
        self._address = address
        self._endpoint = endpoint
        self._connecting = asyncio.Lock()
        self._line: _Line | None = None
        self._is_closed = False

    async def __aenter__(self) -> Self:
        """Return self."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the connection, if there is one."""
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connection; whoever waits for an answer gets a ``TransportError``.

        Cancellation: the socket is closed at once.
        """
        self._is_closed = True
        if self._line is not None:
            await self._line.close()

    async def chunk_list(self, name: str) -> bytes:
        """Return the encoded chunk list of a file, unread.

        Args:
            name: SHA-256 of the file, in hex.

        Fails as ``piece`` does.
        """
        answer = await self._ask(AskChunkList(name=name), ChunkListFrame)
        return bytes(answer.data)

    async def chunks_there(self, name: str) -> frozenset[int]:
        """Return which chunks of a file there are.

        Args:
            name: SHA-256 of the file, in hex.

        Fails as ``piece`` does.
        """
        answer = await self._ask(AskChunksThere(name=name), ChunksThere)
        bitmap = ChunkBitmap(8 * len(answer.bitmap), answer.bitmap)
        return frozenset(index for index in range(bitmap.num_chunks) if index in bitmap)

    async def piece(self, name: str, index: int, piece: int) -> bytes:
        """Return a piece of a chunk, unverified.

        Args:
            name: SHA-256 of the file, in hex.
            index: Of the chunk.
            piece: Of the chunk.

        Fails with ``TransportError`` if the PC can't be asked, or the connection was lost twice;
        with whatever error the other PC reports. Cancellation: safe; the answer is dropped when it
        comes.
        """
        answer = await self._ask(AskChunk(name=name, index=index, piece=piece), ChunkFrame)
        return bytes(answer.data)

    async def _ask(self, question: Question, kind: type[A]) -> A:
        """Return the answer.

        Raises:
            DaisyError: As the other PC reports it.
            TransportError: It answers what it was not asked.
        """
        line = await self._open_line()
        try:
            answer = await line.ask(question, kind)
        except TransportError as exc:
            if not exc.retryable:
                raise
            line = await self._open_line()
            answer = await line.ask(question, kind)
        if isinstance(answer, DaisyError):
            raise answer
        return answer

    async def _open_line(self) -> _Line:
        """Return the connection there is, or a new one."""
        async with self._connecting:
            if self._line is None or self._line.is_lost:
                self._check_not_closed()
                self._line = await self._connected()
            return self._line

    async def _connected(self) -> _Line:
        """Connect to the PC, and read what it answers as a task of the endpoint's."""
        connection = await self._endpoint.connect(self._address, self.node_id)
        with ExitStack() as undo:
            undo.callback(connection.abort)
            self._check_not_closed()
            line = _Line(connection)
            self._start(line)
            undo.pop_all()
        return line

    def _start(self, line: _Line) -> None:
        """Let answers be read.

        Raises:
            TransportError: All of this PC's connections are being closed.
        """
        reading = line.read()
        try:
            self._endpoint.group.create_task(reading)
        except RuntimeError as exc:
            reading.close()
            raise TransportError("This PC is stopping.") from exc

    def _check_not_closed(self) -> None:
        """Return if nobody closed it.

        Raises:
            TransportError: Somebody did.
        """
        if self._is_closed:
            raise TransportError(f"{self._address}: This side asks it nothing more.")

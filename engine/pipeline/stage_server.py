"""One stage of the chain, as its node sees it: frames in, the stage process, frames out.

Knows nothing of requests or text. Whatever arrives is passed on in order: a frame through the
stage process and then to the next stage; the opening and closing of a sequence to both at once.

Whatever breaks the chain here is told to the head, with the stage that is to blame: this one, or
the next. Where the head can't be reached it is told to the stage before, which passes it on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from engine.errors import DaisyError, RemoteProtocolError, rebuilt
from engine.messages.chain import BatchFailed, CloseSequence, OpenSequence, StageFailed
from engine.messages.codec import FrameHead, decode, encode_control, peek_head, peek_type
from engine.messages.control import MessageType
from engine.pipeline.blame import blamed
from engine.pipeline.layer_time import LayerTime

if TYPE_CHECKING:
    from types import TracebackType

    from engine.domain import SequenceId
    from engine.stages.host import StageProcess

Send = Callable[[bytes], Awaitable[None]]
Receive = Callable[[], Awaitable[bytes]]

STAGE_FRAMES = frozenset({
    MessageType.MICRO_BATCH,
    MessageType.OPEN_SEQUENCE,
    MessageType.CLOSE_SEQUENCE,
})


class _Computing(NamedTuple):
    """A micro-batch that the process has."""

    num_tokens: int
    computed_before_us: int


class _Blaming:
    """Says in an error which stage it is about: whoever reads it sees the chain as a whole.

    Made once and entered for each frame.
    """

    def __init__(
        self, blame: Callable[[DaisyError, int, str], DaisyError], stage_index: int, where: str = ""
    ) -> None:
        self._blame = blame
        self._stage_index = stage_index
        self._where = where

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, DaisyError):
            raise self._blame(error, self._stage_index, self._where) from error


class StageServer:
    """Passes frames through one stage.

    Attributes:
        num_stale_frames: Dropped: of another placement.
        open_sequences: What the stage process holds of sequences.

    Thread: the node's loop. Everything here is owned by it.
    """

    def __init__(
        self,
        process: StageProcess,
        stage_index: int,
        epoch: int,
        send_next: Send | None,
        send_head: Send,
        work: float = 1.0,
    ) -> None:
        """Join a loaded stage to its neighbours.

        Args:
            process: Holds the stage, loaded.
            stage_index: Its place in the chain, from 0.
            epoch: Of the placement; frames of any other are dropped and counted.
            send_next: Reaches the next stage; None on the last one.
            send_head: Reaches the head.
            work: Of the stage for one token, in average layers of the model.
        """
        self._blaming_own = _Blaming(self._blame, stage_index)
        self._blaming_next = _Blaming(self._blame, stage_index + 1)
        self._blaming_head = _Blaming(self._blame, stage_index, "The head is lost to it: ")
        self._process = process
        self._stage_index = stage_index
        self._epoch = epoch
        self._send_next = send_next
        self._send_head = send_head
        self._send_back: Send | None = None  # to the stage before, as far as it has sent anything
        # What was handed to the process and not passed on: micro-batches it computes, and the
        # openings and closings that must not overtake those before them.
        self._pending: deque[_Computing | bytes] = deque()
        self._layer_time = LayerTime(work)
        self._error: DaisyError | None = None  # what broke the chain here
        self._failed: StageFailed | None = None  # the same, as the head is told it
        self._told = False
        self.num_stale_frames = 0
        self.open_sequences: set[SequenceId] = set()

    @property
    def layer_ms(self) -> float | None:
        """Milliseconds of one token through one layer; None before it was measured."""
        return self._layer_time.ms

    async def accept(self, frame: bytes, send_back: Send | None = None) -> None:
        """Take one frame from the stage before, or from the head.

        Args:
            frame: A micro-batch, or the opening or closing of a sequence.
            send_back: Reaches the sender, unless that is the head.

        Raises:
            RemoteProtocolError: It is none of those, or a micro-batch that breaks a rule.
            DaisyError: The chain is broken here; the head has been told if it can be.

        Cancellation: safe between frames; a frame is either taken whole or not at all.
        """
        head = peek_head(frame)
        if _epoch_of(frame, head) != self._epoch:
            # Sequence ids begin anew with each placement: a late closing would hit another's.
            self.num_stale_frames += 1
            return
        self._send_back = send_back
        if self._error is not None:
            raise self._error
        try:
            await self._take(frame, head)
        except DaisyError:
            await self._tell()
            raise

    async def _take(self, frame: bytes, head: FrameHead | None) -> None:
        if head is not None:
            self._pending.append(_Computing(head.num_tokens, head.compute_us))
            await self._to_process(frame)
            return
        self._note_sequence(frame)
        await self._to_process(frame)
        if self._pending:
            self._pending.append(frame)
        else:
            await self._to_next(frame)

    def _note_sequence(self, frame: bytes) -> None:
        message = decode(frame)
        if isinstance(message, OpenSequence):
            self.open_sequences.add(message.sequence_id)
        elif isinstance(message, CloseSequence):
            self.open_sequences.discard(message.sequence_id)

    async def run_loop(self) -> None:
        """Carry what the stage process gives to where it goes, until the process ends.

        Raises:
            DaisyError: The process or a connection ended; the head has been told if it can be.

        Cancellation: stops between frames.
        """
        try:
            while True:
                with self._blaming_own:
                    frame = await self._process.receive()
                head = peek_head(frame)
                if head is None:
                    await self._report_failed(frame)
                else:
                    self._measure(head)
                    await self._deliver(head, frame)
                self._pending.popleft()
                await self._pass_on_pending()
        except DaisyError:
            await self._tell()
            raise

    def _measure(self, answer: FrameHead) -> None:
        computing = self._pending[0]
        if isinstance(computing, _Computing):
            own_us = answer.compute_us - computing.computed_before_us
            self._layer_time.add(computing.num_tokens, own_us)

    async def _pass_on_pending(self) -> None:
        """Send the openings and closings that waited for the micro-batch before them."""
        while self._pending and isinstance(frame := self._pending[0], bytes):
            await self._to_next(frame)
            self._pending.popleft()

    async def watch_loop(self, receive: Receive) -> None:
        """Watch the connection to the next stage for its end, and for what that stage reports.

        It sends nothing but that the chain broke, where it can't tell the head itself.

        Args:
            receive: The connection's.

        Raises:
            DaisyError: The connection ended; the head has been told if it can be.

        Cancellation: safe.
        """
        try:
            while True:
                with self._blaming_next:
                    frame = await receive()
                    is_failure = peek_type(frame) is MessageType.STAGE_FAILED
                if is_failure:
                    await self._send_on(frame)
        except DaisyError:
            await self._tell()
            raise

    async def watch_head_loop(self, receive: Receive) -> None:
        """Watch the connection to the head, which sends nothing over it, for its end.

        Args:
            receive: The connection's.

        Raises:
            DaisyError: The connection ended; the stage before has been told if it can be.

        Cancellation: safe.
        """
        try:
            while True:
                with self._blaming_head:
                    await receive()
        except DaisyError:
            self._told = False  # what was told may have been lost with the connection
            await self._tell()
            raise

    def _blame(self, error: DaisyError, stage_index: int, where: str) -> DaisyError:
        """Return an error that says which stage it is about; the first one broke the chain."""
        what = blamed(stage_index, f"{where}{error.what}")
        named = rebuilt(error.code, what, error.advice)
        if self._error is None:
            self._error = named
            self._failed = StageFailed(
                epoch=self._epoch,
                stage_index=stage_index,
                code=named.code,
                what=named.what,
                advice=named.advice,
            )
        return named

    async def _to_process(self, frame: bytes) -> None:
        with self._blaming_own:
            await self._process.send(frame)

    async def _to_next(self, frame: bytes) -> None:
        if self._send_next is not None:
            with self._blaming_next:
                await self._send_next(frame)

    async def _to_head(self, frame: bytes) -> None:
        with self._blaming_head:
            await self._send_head(frame)

    async def _tell(self) -> None:
        """Tell the head what broke the chain, once; the first reason stands."""
        if self._failed is not None and not self._told:
            self._told = True
            await self._send_on(encode_control(self._failed))

    async def _send_on(self, failure: bytes) -> None:
        """Send a failure to the head, or else to the stage before; or else nobody can be told."""
        for send in (self._send_head, self._send_back):
            if send is None:
                continue
            try:
                await send(failure)
            except DaisyError:
                continue  # what is raised is the reason, not that nobody heard it
            return

    async def _deliver(self, head: FrameHead, frame: bytes) -> None:
        if head.type is MessageType.MICRO_BATCH:
            await self._to_next(frame)
        else:
            await self._to_head(frame)

    async def _report_failed(self, frame: bytes) -> None:
        """Tell the head that a micro-batch failed, and where."""
        failure = decode(frame)
        if isinstance(failure, BatchFailed):
            named = msgspec.structs.replace(
                failure,
                stage_index=self._stage_index,
                what=blamed(self._stage_index, failure.what),
            )
            await self._to_head(encode_control(named))


def _epoch_of(frame: bytes, head: FrameHead | None) -> int:
    """Return the placement a frame for a stage was made for.

    Raises:
        RemoteProtocolError: It is no frame for a stage, or breaks a rule.
    """
    if head is not None and head.type is MessageType.MICRO_BATCH:
        return head.epoch
    message = decode(frame)
    if isinstance(message, OpenSequence | CloseSequence):
        return message.epoch
    raise RemoteProtocolError("A stage was sent something that is not for a stage.")

"""One stage of the chain, as its node sees it: frames in, the stage process, frames out.

Knows nothing of requests or text. Whatever arrives is passed on in order: a frame through the
stage process and then to the next stage; the opening and closing of a sequence to both at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import msgspec

from engine.errors import DaisyError, RemoteProtocolError, rebuilt
from engine.messages.codec import decode, encode_control, peek_batch, peek_type
from engine.messages.control import (
    BatchFailed,
    CloseSequence,
    MessageType,
    OpenSequence,
    StageFailed,
)

if TYPE_CHECKING:
    from engine.stages.host import StageProcess

Send = Callable[[bytes], Awaitable[None]]

STAGE_FRAMES = frozenset({
    MessageType.MICRO_BATCH,
    MessageType.OPEN_SEQUENCE,
    MessageType.CLOSE_SEQUENCE,
})


@contextmanager
def _named(stage_index: int) -> Iterator[None]:
    """Say in an error which stage it is about: whoever reads it sees the chain as a whole.

    Yields:
        Nothing.

    Raises:
        DaisyError: As raised within, naming the stage.
    """  # noqa: DOC501 - rebuilt, with its own class
    try:
        yield
    except DaisyError as error:
        raise rebuilt(error.code, f"Stage {stage_index}: {error.what}", error.advice) from error


class StageServer:
    """Passes frames through one stage.

    Thread: the node's loop. Everything here is owned by it.
    """

    def __init__(
        self,
        process: StageProcess,
        stage_index: int,
        epoch: int,
        send_next: Send | None,
        send_head: Send,
    ) -> None:
        """Join a loaded stage to its neighbours.

        Args:
            process: Holds the stage, loaded.
            stage_index: Its place in the chain, from 0.
            epoch: Of the placement; frames of any other are dropped and counted.
            send_next: Reaches the next stage; None on the last one.
            send_head: Reaches the head.
        """
        self._process = process
        self._stage_index = stage_index
        self._epoch = epoch
        self._send_next = send_next
        self._send_head = send_head
        # What was handed to the process and not passed on: None for a micro-batch it computes,
        # a frame for an opening or closing that must not overtake those before it.
        self._pending: deque[bytes | None] = deque()
        self.num_stale_frames = 0

    async def accept(self, frame: bytes) -> None:
        """Take one frame from the stage before, or from the head.

        Args:
            frame: A micro-batch, or the opening or closing of a sequence.

        Raises:
            RemoteProtocolError: It is none of those, or a micro-batch that breaks a rule.
            StageProcessDiedError: The stage is gone.

        Cancellation: safe between frames; a frame is either taken whole or not at all.
        """
        if _epoch_of(frame) != self._epoch:
            # Sequence ids begin anew with each placement: a late closing would hit another's.
            self.num_stale_frames += 1
        elif peek_type(frame) is MessageType.MICRO_BATCH:
            self._pending.append(None)
            await self._to_process(frame)
        else:
            await self._to_process(frame)
            if self._pending:
                self._pending.append(frame)
            else:
                await self._to_next(frame)

    async def run_loop(self) -> None:
        """Carry what the stage process gives to where it goes, until the process ends.

        Raises:
            DaisyError: The process or a connection ended; the head has been told if it can be.

        Cancellation: stops between frames.
        """
        try:
            while True:
                with _named(self._stage_index):
                    frame = await self._process.receive()
                await self._deliver(frame)
                self._pending.popleft()
                await self._pass_on_pending()
        except DaisyError as error:
            await self._tell(error)
            raise

    async def _pass_on_pending(self) -> None:
        """Send the openings and closings that waited for the micro-batch before them."""
        while self._pending and (frame := self._pending[0]) is not None:
            await self._to_next(frame)
            self._pending.popleft()

    async def watch_loop(self, receive: Callable[[], Awaitable[bytes]]) -> None:
        """Watch the connection to the next stage, which sends nothing, for its end.

        Args:
            receive: The connection's.

        Raises:
            DaisyError: The connection ended; the head has been told if it can be.

        Cancellation: safe.
        """
        try:
            while True:
                with _named(self._stage_index + 1):
                    await receive()
        except DaisyError as error:
            await self._tell(error)
            raise

    async def _to_process(self, frame: bytes) -> None:
        with _named(self._stage_index):
            await self._process.send(frame)

    async def _to_next(self, frame: bytes) -> None:
        if self._send_next is not None:
            with _named(self._stage_index + 1):
                await self._send_next(frame)

    async def _tell(self, error: DaisyError) -> None:
        told = StageFailed(
            epoch=self._epoch,
            stage_index=self._stage_index,
            code=error.code,
            what=error.what,
            advice=error.advice,
        )
        with suppress(DaisyError):  # what is raised is the reason, not that nobody heard it
            await self._send_head(encode_control(told))

    async def _deliver(self, frame: bytes) -> None:
        kind = peek_type(frame)
        if kind is MessageType.MICRO_BATCH:
            await self._to_next(frame)
        elif kind is MessageType.SAMPLED_TOKENS:
            await self._send_head(frame)
        elif kind is MessageType.BATCH_FAILED:
            failure = decode(frame)
            if isinstance(failure, BatchFailed):
                named = msgspec.structs.replace(
                    failure,
                    stage_index=self._stage_index,
                    what=f"Stage {self._stage_index}: {failure.what}",
                )
                await self._send_head(encode_control(named))


def _epoch_of(frame: bytes) -> int:
    """Return the placement a frame for a stage was made for.

    Raises:
        RemoteProtocolError: It is no frame for a stage, or breaks a rule.
    """
    if peek_type(frame) is MessageType.MICRO_BATCH:
        return peek_batch(frame).epoch
    message = decode(frame)
    if isinstance(message, OpenSequence | CloseSequence):
        return message.epoch
    raise RemoteProtocolError("A stage was sent something that is not for a stage.")

"""Frames received and not yet taken: one task puts, one takes, and the room is bounded.

When it is full the putting task waits, so the socket is not read and the sender is held back by
TCP; nothing is dropped. Knows no socket and no protocol.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from engine.errors import LocalProtocolError
from engine.messages.limits import MAX_FRAME_BYTES

if TYPE_CHECKING:
    from engine.errors import TransportError

# Frames of one row arrive in bursts of at most one a sequence; 64 is the whole of a small pool.
CAPACITY_FRAMES = 64
# One frame of the largest kind, so that two of them are never both held here and being received.
CAPACITY_BYTES = MAX_FRAME_BYTES


class Inbox:
    """A bounded queue of frames that ends with the reason why there are no more."""

    def __init__(self) -> None:
        self._frames: deque[bytes] = deque()
        self._num_bytes = 0
        self._failure: TransportError | None = None
        self._taker: asyncio.Future[None] | None = None
        self._putter: asyncio.Future[None] | None = None

    @property
    def is_full(self) -> bool:
        """Whether ``put`` would wait."""
        return len(self._frames) >= CAPACITY_FRAMES or self._num_bytes >= CAPACITY_BYTES

    async def put(self, frame: bytes) -> None:
        """Add a frame, waiting for room; after the end it is dropped.

        Cancellation: safe; the frame was not added.
        """
        while self.is_full and self._failure is None:
            self._putter = asyncio.get_running_loop().create_future()
            await self._putter
        if self._failure is None:
            self._frames.append(frame)
            self._num_bytes += len(frame)
            _wake(self._taker)

    async def take(self) -> bytes:
        """Return the oldest frame, waiting for one.

        Raises:
            TransportError: There are no more; the error says why.
            LocalProtocolError: Another task is waiting here already.

        Cancellation: safe; no frame is lost.
        """
        if self._taker is not None:
            raise LocalProtocolError("Two tasks receive from the same connection.")
        while not self._frames:
            if self._failure is not None:
                raise self._failure.with_traceback(None)
            self._taker = asyncio.get_running_loop().create_future()
            try:
                await self._taker
            finally:
                self._taker = None
        frame = self._frames.popleft()
        self._num_bytes -= len(frame)
        if not self.is_full:
            _wake(self._putter)
        return frame

    def end(self, failure: TransportError) -> None:
        """Let ``take`` raise this once the frames are taken; the first reason stands."""
        if self._failure is None:
            self._failure = failure
            _wake(self._taker)
            _wake(self._putter)


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)

"""Frames on the pipe between a node and its stage process: a u32 length, then the message.

A length is checked before anything of that size is made. Pure.
"""

from __future__ import annotations

import struct
from typing import Final

from engine.errors import RemoteProtocolError
from engine.messages.limits import MAX_FRAME_BYTES

LENGTH: Final = struct.Struct("<I")


def unpack_length(header: bytes | bytearray | memoryview) -> int:
    """Read the length of the frame that follows.

    Args:
        header: 4 bytes.

    Raises:
        RemoteProtocolError: It is 0, or more than ``MAX_FRAME_BYTES``.
    """
    length: int = LENGTH.unpack(header)[0]
    if not 1 <= length <= MAX_FRAME_BYTES:
        raise RemoteProtocolError(
            f"A frame on the pipe claims {length} bytes; 1 to {MAX_FRAME_BYTES} are allowed."
        )
    return length


class FrameAssembler:
    """Makes frames of a stream's pieces, however they are cut."""

    def __init__(self) -> None:
        """Begin at a frame's start."""
        self._header = bytearray()
        self._frame: bytearray | None = None  # of its full length, filled up to _filled
        self._filled = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Take the next piece; return the frames it completes, in order.

        Args:
            data: Any number of bytes.

        Raises:
            RemoteProtocolError: A length is out of its range; the stream is of no more use.
        """
        frames: list[bytes] = []
        piece = memoryview(data)
        while piece:
            piece = self._take(piece, frames)
        return frames

    def _take(self, piece: memoryview, frames: list[bytes]) -> memoryview:
        """Take what belongs to one frame; return the rest."""
        if self._frame is None:
            return self._begin(piece, frames)
        taken = min(len(piece), len(self._frame) - self._filled)
        self._frame[self._filled : self._filled + taken] = piece[:taken]
        self._filled += taken
        if self._filled == len(self._frame):
            frames.append(bytes(self._frame))
            self._frame = None
        return piece[taken:]

    def _begin(self, piece: memoryview, frames: list[bytes]) -> memoryview:
        missing = LENGTH.size - len(self._header)
        self._header += piece[:missing]
        piece = piece[missing:]
        if len(self._header) < LENGTH.size:
            return piece
        length = unpack_length(self._header)
        self._header.clear()
        if len(piece) >= length:  # the usual case: whole, and copied once
            frames.append(bytes(piece[:length]))
            return piece[length:]
        self._frame = bytearray(length)
        self._filled = 0
        return piece

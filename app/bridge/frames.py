"""The control port's stream cut into frames: a length (u32, little-endian) before each. Pure."""

from __future__ import annotations

import struct

from engine.errors import RemoteProtocolError
from engine.messages.limits import MAX_CONTROL_BYTES

_LENGTH = struct.Struct("<I")
_KEPT_READ_BYTES = 256 << 10  # read bytes are dropped in one go: moving the rest costs a copy


def framed(frame: bytes) -> bytes:
    """Return a frame as it goes over the stream.

    Args:
        frame: As the codec made it.
    """
    return _LENGTH.pack(len(frame)) + frame


class FrameBuffer:
    """What came and is not read yet."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._bytes = bytearray()
        self._read = 0

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Take what came.

        Args:
            data: Any piece of the stream.
        """
        self._bytes += data

    def next_frame(self) -> bytes | None:
        """Return the next whole frame; None if it is not there yet.

        Raises:
            RemoteProtocolError: It says to be longer than a control message may be.
        """
        if len(self._bytes) - self._read < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._bytes, self._read)
        if length > MAX_CONTROL_BYTES:
            raise RemoteProtocolError(f"The node sent a frame of {length} bytes.")
        begin = self._read + _LENGTH.size
        if len(self._bytes) < begin + length:
            return None
        frame = bytes(memoryview(self._bytes)[begin : begin + length])
        self._read = begin + length
        if self._read >= _KEPT_READ_BYTES or self._read == len(self._bytes):
            del self._bytes[: self._read]
            self._read = 0
        return frame

"""Bytes to messages and back; one websocket message, or one pipe frame, is one message.

Every frame begins with the same 8 bytes, little-endian:

    offset  size  field
    0       2     magic       "DZ"
    2       1     version     of the protocol; this place never moves, in any version
    3       1     flags       0
    4       2     type        ``MessageType``; an even one must be understood, an odd one may not
    6       2     reserved    0

After them a control message has its body in msgpack, a map from field name to value; the data
frames are laid out in ``engine.messages.frames`` and ``engine.messages.chunk_frames``. Pure: bytes
in, values out. Nothing is made from a length that has not been checked against the bytes that are
there, and whatever the bytes are, the only exception is ``RemoteProtocolError``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec

from engine.errors import LocalProtocolError, RemoteProtocolError
from engine.messages.chunk_frames import (
    ChunkFrame,
    ChunkListFrame,
    decode_chunk,
    decode_chunk_list,
    encode_chunk,
    encode_chunk_list,
)
from engine.messages.control import CONTROL_TYPES, PROTOCOL_VERSION, MessageType
from engine.messages.frames import (
    MAGIC,
    PREFIX,
    FrameHead,
    decode_micro_batch,
    decode_sampled_tokens,
    encode_micro_batch,
    encode_sampled_tokens,
    peek_header,
)
from engine.messages.limits import MAX_CONTROL_BYTES, MAX_FRAME_BYTES
from engine.messages.ranges import check_heard, check_ranges

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.domain import MicroBatch, SampledTokens
    from engine.messages.message import Message

__all__ = [
    "ChunkFrame",
    "ChunkListFrame",
    "FrameHead",
    "Unknown",
    "decode",
    "encode_chunk",
    "encode_chunk_list",
    "encode_control",
    "encode_micro_batch",
    "encode_sampled_tokens",
    "peek_batch",
    "peek_head",
    "peek_type",
    "peek_version",
    "shown",
]

Received: TypeAlias = bytes | bytearray | memoryview
Data: TypeAlias = "MicroBatch | SampledTokens | ChunkListFrame | ChunkFrame"


class Unknown(msgspec.Struct, frozen=True):
    """A message of a number this version does not know and may ignore, because it is odd."""

    number: int


_SHOWN_CHARACTERS = 200  # of what another side wrote, in a sentence of ours
_ENCODER = msgspec.msgpack.Encoder()
_TYPE_OF_CLASS = {cls: number for number, cls in CONTROL_TYPES.items()}
_DECODERS = {number: msgspec.msgpack.Decoder(cls) for number, cls in CONTROL_TYPES.items()}
_PREFIXES = {number: PREFIX.pack(MAGIC, PROTOCOL_VERSION, 0, number, 0) for number in CONTROL_TYPES}
_KNOWN = {int(number): number for number in MessageType}
_BATCH_TYPES = frozenset({MessageType.MICRO_BATCH, MessageType.SAMPLED_TOKENS})
_DATA: dict[MessageType, Callable[[memoryview], Data]] = {
    MessageType.MICRO_BATCH: decode_micro_batch,
    MessageType.SAMPLED_TOKENS: decode_sampled_tokens,
    MessageType.CHUNK_LIST: decode_chunk_list,
    MessageType.CHUNK: decode_chunk,
}


def encode_control(message: Message) -> bytes:
    """Return a control message as one frame.

    It is decoded once on the way out, as the receiver will: a control message costs microseconds,
    and a field of the wrong type is then found where it was made.

    Raises:
        LocalProtocolError: A field has the wrong type or is out of its range, or the message is
            longer than ``MAX_CONTROL_BYTES``.
    """
    number = _TYPE_OF_CLASS.get(type(message))
    if number is None:
        raise LocalProtocolError(f"{type(message).__name__} is not a control message.")
    try:
        body = _ENCODER.encode(message)
        check_ranges(_DECODERS[number].decode(body))
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as exc:
        raise LocalProtocolError(f"{number.name} can't be sent: {exc}.") from exc
    frame = _PREFIXES[number] + body
    if len(frame) > MAX_CONTROL_BYTES:
        raise LocalProtocolError(
            f"{number.name} takes {len(frame)} bytes; a control message has at most "
            f"{MAX_CONTROL_BYTES}."
        )
    return frame


def decode(data: Received) -> Message | Data | Unknown:
    """Read one frame.

    Args:
        data: The whole frame, contiguous. A ``bytes`` object is aligned well enough for its
            arrays; a slice of a larger buffer gives arrays aligned as the slice is.

    Returns:
        The message. Arrays and chunks are read-only views of ``data`` and keep it alive.

    Raises:
        RemoteProtocolError: The bytes are not a frame of this protocol.
    """
    frame = memoryview(data).toreadonly()
    number = peek_type(frame)
    if number is None:
        return Unknown(PREFIX.unpack_from(frame)[3])
    decode_data = _DATA.get(number)
    return _decode_control(number, frame) if decode_data is None else decode_data(frame)


def peek_version(data: Received) -> int:
    """Return the protocol version of a frame, whatever follows it.

    Raises:
        RemoteProtocolError: It is not a frame of this program in any version.
    """
    if len(data) < PREFIX.size or bytes(data[:2]) != MAGIC:
        raise RemoteProtocolError(
            f"A message of {len(data)} bytes does not begin as a frame of Daisy does."
        )
    return data[2]


def peek_type(data: Received) -> MessageType | None:
    """Return what a frame is, without reading further than its first 8 bytes.

    Returns:
        None for an odd number this version does not know: to be ignored.

    Raises:
        RemoteProtocolError: It is too short or too long, of another program or version, of an
            even number this version does not know, or its reserved fields are not 0.
    """
    if len(data) > MAX_FRAME_BYTES:
        raise RemoteProtocolError(
            f"A frame has {len(data)} bytes; at most {MAX_FRAME_BYTES} are allowed."
        )
    if len(data) < PREFIX.size:
        raise RemoteProtocolError(f"A frame has {len(data)} bytes; it must have 8 at least.")
    magic, version, flags, number, reserved = PREFIX.unpack_from(data)
    if magic != MAGIC or flags or reserved:
        raise RemoteProtocolError("A message does not begin as a frame of Daisy does.")
    if version != PROTOCOL_VERSION:
        raise RemoteProtocolError(
            f"A frame has protocol version {version}; this is version {PROTOCOL_VERSION}."
        )
    known = _KNOWN.get(number)
    if known is None and number % 2 == 0:
        raise RemoteProtocolError(f"A frame has number {number}, which must be understood.")
    return known


def peek_batch(data: Received) -> FrameHead:
    """Return the header of a micro-batch or of sampled tokens; a forwarder needs no more.

    Raises:
        RemoteProtocolError: It is neither, or the header breaks a rule.
    """
    head = peek_head(data)
    if head is None:
        number = peek_type(data)
        raise RemoteProtocolError(f"{number.name if number else 'A frame'} is no batch.")
    return head


def peek_head(data: Received) -> FrameHead | None:
    """Return the header of a micro-batch or of sampled tokens; None for any other frame.

    Raises:
        RemoteProtocolError: It is no frame, or the header breaks a rule.
    """
    return peek_header(memoryview(data)) if peek_type(data) in _BATCH_TYPES else None


def shown(text: str) -> str:
    """Return foreign text as it may stand in a sentence of ours: one line, short, printable."""
    printable = "".join(c if c.isprintable() else " " for c in text[:_SHOWN_CHARACTERS])
    return printable.strip()


def _decode_control(number: MessageType, frame: memoryview) -> Message:
    if len(frame) > MAX_CONTROL_BYTES:
        raise RemoteProtocolError(
            f"{number.name} has {len(frame)} bytes; a control message has at most "
            f"{MAX_CONTROL_BYTES}."
        )
    try:
        message = _DECODERS[number].decode(frame[PREFIX.size :])
        check_ranges(message)
        check_heard(message)
    # RecursionError: a body nested a thousand deep. ValueError: an integer or date beyond Python.
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError) as exc:
        raise RemoteProtocolError(f"{number.name} can't be read: {shown(str(exc))}.") from exc
    return message

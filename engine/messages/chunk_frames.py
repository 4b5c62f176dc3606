"""The layout of the two frames that carry parts of files: a piece of a chunk, and a chunk list.

Both begin with the prefix of every frame; all integers are little-endian:

    offset  size  field         CHUNK                           CHUNK_LIST
    0       8     prefix        type 0x106                      type 0x104
    8       32    name          SHA-256 of the whole file       SHA-256 of the whole file
    40      4     index         of the chunk, from 0            there is none
    44      4     piece         of the chunk, from 0            there is none
    then    4     num_bytes     of the data, 1 or more          of the list, 1 or more
    then          data          as it stands in the file        msgpack

Nothing follows. Whether a chunk or a list is what it should be, its hash tells; here only the
layout is checked. The data is a view of the frame. Knows no socket and no control message.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, TypeAlias

from engine.errors import LocalProtocolError, RemoteProtocolError
from engine.messages.control import PROTOCOL_VERSION, MessageType
from engine.messages.frames import MAGIC, PREFIX
from engine.messages.limits import MAX_CHUNK_LIST_BYTES, MAX_CHUNKS, MAX_PIECE_BYTES, MAX_PIECES

# Whose fault a broken rule is: ours when encoding, the peer's when decoding.
_Fault: TypeAlias = type[LocalProtocolError] | type[RemoteProtocolError]

_CHUNK = struct.Struct("<32sIII")
_CHUNK_LIST = struct.Struct("<32sI")
_CHUNK_PREFIX = PREFIX.pack(MAGIC, PROTOCOL_VERSION, 0, MessageType.CHUNK, 0)
_CHUNK_LIST_PREFIX = PREFIX.pack(MAGIC, PROTOCOL_VERSION, 0, MessageType.CHUNK_LIST, 0)


@dataclass(frozen=True, slots=True)
class ChunkFrame:
    """A piece of one chunk of a file.

    Attributes:
        name: SHA-256 of the whole file, in hex.
        index: Of the chunk, from 0.
        piece: Of the chunk, from 0.
        data: Its bytes, 1 to ``MAX_PIECE_BYTES``.
    """

    name: str
    index: int
    piece: int
    data: memoryview


@dataclass(frozen=True, slots=True)
class ChunkListFrame:
    """The chunk list of a file.

    Attributes:
        name: SHA-256 of the whole file, in hex.
        data: The list, encoded; 1 to ``MAX_CHUNK_LIST_BYTES`` bytes.
    """

    name: str
    data: memoryview


def encode_chunk(name: str, index: int, piece: int, data: bytes | memoryview) -> bytes:
    """Lay a piece of a chunk out as one frame; its bytes are copied once.

    Args:
        name: SHA-256 of the whole file, in hex.
        index: Of the chunk, from 0.
        piece: Of the chunk, from 0.
        data: Its bytes.

    Raises:
        LocalProtocolError: The name is none, or a number is out of its range.
    """
    _check_place(index, piece, LocalProtocolError)
    _check_size("piece", len(data), MAX_PIECE_BYTES, LocalProtocolError)
    return b"".join((_CHUNK_PREFIX, _CHUNK.pack(_digest(name), index, piece, len(data)), data))


def encode_chunk_list(name: str, data: bytes | memoryview) -> bytes:
    """Lay a chunk list out as one frame.

    Args:
        name: SHA-256 of the whole file, in hex.
        data: The list, encoded.

    Raises:
        LocalProtocolError: The name is none, or the list too long.
    """
    _check_size("chunk list", len(data), MAX_CHUNK_LIST_BYTES, LocalProtocolError)
    return b"".join((_CHUNK_LIST_PREFIX, _CHUNK_LIST.pack(_digest(name), len(data)), data))


def decode_chunk(frame: memoryview) -> ChunkFrame:
    """Read a piece of a chunk; its data is a view of the frame.

    Args:
        frame: A whole frame whose prefix has been checked, as a read-only view of bytes.

    Raises:
        RemoteProtocolError: The frame breaks a rule of the layout.
    """
    digest, index, piece, num_bytes = _fields(_CHUNK, frame)
    _check_place(index, piece, RemoteProtocolError)
    _check_size("piece", num_bytes, MAX_PIECE_BYTES, RemoteProtocolError)
    data = _data(frame, PREFIX.size + _CHUNK.size, num_bytes)
    return ChunkFrame(digest.hex(), index, piece, data)


def decode_chunk_list(frame: memoryview) -> ChunkListFrame:
    """Read a chunk list's frame; the list itself is not read.

    Args:
        frame: A whole frame whose prefix has been checked, as a read-only view of bytes.

    Raises:
        RemoteProtocolError: The frame breaks a rule of the layout.
    """
    digest, num_bytes = _fields(_CHUNK_LIST, frame)
    _check_size("chunk list", num_bytes, MAX_CHUNK_LIST_BYTES, RemoteProtocolError)
    return ChunkListFrame(digest.hex(), _data(frame, PREFIX.size + _CHUNK_LIST.size, num_bytes))


# ---- one rule each -----------------------------------------------------------------------------


def _digest(name: str) -> bytes:
    try:
        digest = bytes.fromhex(name)
    except ValueError:
        digest = b""
    if len(digest) != 32 or digest.hex() != name:
        raise LocalProtocolError(f"{name[:80]!r} is no SHA-256 in small hex digits.")
    return digest


def _fields(layout: struct.Struct, frame: memoryview) -> tuple[Any, ...]:
    if len(frame) < PREFIX.size + layout.size:
        raise RemoteProtocolError(
            f"A part of a file has {len(frame)} bytes; its header alone has "
            f"{PREFIX.size + layout.size}."
        )
    return layout.unpack_from(frame, PREFIX.size)


def _check_place(index: int, piece: int, fault: _Fault) -> None:
    if not 0 <= index < MAX_CHUNKS:
        raise fault(f"A chunk has number {index}; a file has at most {MAX_CHUNKS}.")
    if not 0 <= piece < MAX_PIECES:
        raise fault(f"A piece has number {piece}; a chunk has at most {MAX_PIECES}.")


def _check_size(what: str, num_bytes: int, most: int, fault: _Fault) -> None:
    if not 1 <= num_bytes <= most:
        raise fault(f"A {what} has {num_bytes} bytes; it must have 1 to {most}.")


def _data(frame: memoryview, start: int, num_bytes: int) -> memoryview:
    if len(frame) != start + num_bytes:
        raise RemoteProtocolError(
            f"A part of a file has {len(frame)} bytes; by its header it must have "
            f"{start + num_bytes}."
        )
    return frame[start:]

"""The frames that carry files: exactly as long as they say, named by a hash, and never copied."""

import tracemalloc

import numpy as np
import pytest

from engine.errors import LocalProtocolError, RemoteProtocolError
from engine.messages.codec import decode, encode_chunk, encode_chunk_list
from engine.messages.limits import MAX_CHUNK_LIST_BYTES, MAX_CHUNKS, MAX_PIECE_BYTES, MAX_PIECES
from tests.unit.messages.examples import CHUNK, CHUNK_LIST

NAME = CHUNK.name
FRAME = encode_chunk(NAME, CHUNK.index, CHUNK.piece, CHUNK.data)
LIST = encode_chunk_list(NAME, CHUNK_LIST.data)


def patched(frame, offset, value):
    return frame[:offset] + value.to_bytes(4, "little") + frame[offset + 4 :]


def test_a_chunk_and_a_list_come_back_equal():
    assert decode(FRAME) == CHUNK
    assert decode(LIST) == CHUNK_LIST


@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_the_data_is_a_read_only_view_of_the_frame(kind):
    for frame in (kind(FRAME), kind(LIST)):
        data = decode(frame).data
        assert data.readonly
        start = np.frombuffer(frame, np.uint8).ctypes.data
        assert 0 < np.frombuffer(data, np.uint8).ctypes.data - start < len(frame)


def test_the_largest_of_both_pass_and_are_copied_once():
    data = bytes(MAX_PIECE_BYTES)
    tracemalloc.start()
    frame = encode_chunk(NAME, MAX_CHUNKS - 1, MAX_PIECES - 1, data)
    got = decode(frame)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (got.index, got.piece) == (MAX_CHUNKS - 1, MAX_PIECES - 1)
    assert len(got.data) == MAX_PIECE_BYTES
    assert peak < 1.1 * MAX_PIECE_BYTES
    assert len(decode(encode_chunk_list(NAME, bytes(MAX_CHUNK_LIST_BYTES))).data) > 2**21


@pytest.mark.parametrize(
    ("frame", "says"),
    [
        (FRAME[:51], "has 51 bytes; its header alone has 52"),
        (FRAME[:-1], "by its header it must have 57"),
        (FRAME + b"x", "by its header it must have 57"),
        (patched(FRAME, 40, MAX_CHUNKS), "A chunk has number 65536"),
        (patched(FRAME, 44, MAX_PIECES), "A piece has number 4"),
        (patched(FRAME, 48, 0), "has 0 bytes"),
        (patched(FRAME, 48, 2**32 - 1), "4294967295 bytes; it must have 1 to 1048576"),
        (patched(FRAME, 48, 4), "by its header it must have 56"),
        (LIST[:43], "has 43 bytes; its header alone has 44"),
        (LIST[:-1], "by its header"),
        (LIST + b"x", "by its header"),
        (patched(LIST, 40, 0), "A chunk list has 0 bytes"),
        (patched(LIST, 40, MAX_CHUNK_LIST_BYTES + 1), "A chunk list has 2098177 bytes"),
    ],
)
def test_a_frame_that_breaks_a_rule_is_refused(frame, says):
    with pytest.raises(RemoteProtocolError, match=says):
        decode(frame)


@pytest.mark.parametrize("name", ["", "ab", "AB" * 32, "../" + "a" * 61, "zz" * 32, " ab" * 32])
def test_a_name_that_is_no_hash_is_never_sent(name):
    for encode in (
        lambda: encode_chunk(name, 0, 0, b"x"),
        lambda: encode_chunk_list(name, b"x"),
    ):
        with pytest.raises(LocalProtocolError, match="no SHA-256"):
            encode()


@pytest.mark.parametrize(
    ("index", "piece", "num_bytes", "says"),
    [
        (-1, 0, 1, "number -1"),
        (MAX_CHUNKS, 0, 1, "number 65536"),
        (0, -1, 1, "number -1"),
        (0, MAX_PIECES, 1, "number 4"),
        (0, 0, 0, "has 0 bytes"),
        (0, 0, MAX_PIECE_BYTES + 1, "has 1048577 bytes"),
    ],
)
def test_a_piece_out_of_range_is_never_sent(index, piece, num_bytes, says):
    with pytest.raises(LocalProtocolError, match=says):
        encode_chunk(NAME, index, piece, bytes(num_bytes))


def test_a_list_out_of_range_is_never_sent():
    for num_bytes in (0, MAX_CHUNK_LIST_BYTES + 1):
        with pytest.raises(LocalProtocolError, match="A chunk list has"):
            encode_chunk_list(NAME, bytes(num_bytes))

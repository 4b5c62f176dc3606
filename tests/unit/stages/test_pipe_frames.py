"""Frames come out of a stream whole, however it is cut; a false length costs no memory."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import RemoteProtocolError
from engine.messages.limits import MAX_FRAME_BYTES
from engine.stages.pipe_frames import LENGTH, FrameAssembler


@given(st.lists(st.binary(min_size=1, max_size=60), max_size=8), st.data())
def test_any_cut_of_the_stream_gives_the_same_frames(frames, data):
    stream = b"".join(LENGTH.pack(len(frame)) + frame for frame in frames)
    assembler, found = FrameAssembler(), []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        found += assembler.feed(stream[:size])
        stream = stream[size:]
    assert found == frames


@pytest.mark.parametrize("length", [0, MAX_FRAME_BYTES + 1, 2**32 - 1])
def test_a_length_out_of_range_is_refused_before_anything_is_made(length):
    tracemalloc.start()
    try:
        with pytest.raises(RemoteProtocolError, match=f"claims {length} bytes"):
            FrameAssembler().feed(LENGTH.pack(length) + bytes(100))
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()

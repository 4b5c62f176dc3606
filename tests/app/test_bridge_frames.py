import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.bridge.frames import FrameBuffer, framed
from engine.errors import RemoteProtocolError
from engine.messages.limits import MAX_CONTROL_BYTES


@given(st.lists(st.binary(max_size=2000), max_size=30), st.integers(1, 700))
def test_whatever_pieces_come_the_frames_are_the_same(frames, size):
    stream = b"".join(map(framed, frames))
    buffer, found = FrameBuffer(), []
    for begin in range(0, len(stream), size):
        buffer.feed(stream[begin : begin + size])
        while (frame := buffer.next_frame()) is not None:
            found.append(frame)
    assert found == frames


def test_many_frames_leave_nothing_behind():
    buffer = FrameBuffer()
    for _ in range(100):
        buffer.feed(framed(b"x" * 10_000) * 3)
        assert [buffer.next_frame() for _ in range(4)][3] is None
    assert len(buffer._bytes) == 0


def test_a_length_no_message_may_have_is_refused_before_anything_is_kept():
    buffer = FrameBuffer()
    buffer.feed((MAX_CONTROL_BYTES + 1).to_bytes(4, "little"))
    with pytest.raises(RemoteProtocolError, match=str(MAX_CONTROL_BYTES + 1)):
        buffer.next_frame()

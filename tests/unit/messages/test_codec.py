"""What the codec promises: bytes and messages agree, and of anything else comes one error."""

from __future__ import annotations

import gc
import time
import tracemalloc
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from engine.domain import LayerRange, MicroBatch, SampledRow, SampledTokens
from engine.errors import LocalProtocolError, RemoteProtocolError
from engine.messages.chain import OpenSequence
from engine.messages.codec import (
    Unknown,
    decode,
    encode_chunk,
    encode_control,
    encode_micro_batch,
    encode_sampled_tokens,
    peek_batch,
    peek_type,
    peek_version,
    shown,
)
from engine.messages.control import CONTROL_TYPES, Generate, Goodbye, MessageType, Ping, TextDelta
from engine.messages.limits import MAX_CONTROL_BYTES, MAX_FRAME_BYTES
from engine.messages.message import Message
from engine.sampling.parameters import SamplingParameters
from tests.unit.messages.examples import (
    CHUNK,
    COMPUTE_US,
    CONTROL,
    INT8_BATCH,
    MICRO_BATCH,
    SAMPLED_TOKENS,
)


def frame_of(number: int, body: bytes = b"", *, version: int = 1) -> bytes:
    return b"DZ" + bytes([version, 0]) + number.to_bytes(2, "little") + b"\0\0" + body


def test_every_control_message_has_an_example() -> None:
    assert set(CONTROL) == set(CONTROL_TYPES)


@pytest.mark.parametrize("number", CONTROL, ids=lambda n: n.name)
def test_a_control_message_comes_back_equal(number: MessageType) -> None:
    frame = encode_control(CONTROL[number])
    assert decode(frame) == CONTROL[number]
    assert peek_type(frame) is number


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_kind_of_buffer_is_read(kind: type) -> None:
    assert decode(kind(encode_control(Ping(number=1)))) == Ping(number=1)


# ---- the prefix --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "0 bytes"),
        (b"DZ\x01\0\x04\0\0", "7 bytes"),
        (b"XX\x01\0\x04\0\0\0", "does not begin"),
        (b"DZ\x01\x01\x04\0\0\0", "does not begin"),
        (b"DZ\x01\0\x04\0\x01\0", "does not begin"),
        (b"DZ\x02\0\x04\0\0\0", "version 2"),
        (b"DZ\x01\0\x00\x40\0\0", "number 16384"),
        (b"DZ\x01\0\x00\x00\0\0", "number 0"),
    ],
)
def test_a_wrong_prefix_is_refused(data: bytes, says: str) -> None:
    with pytest.raises(RemoteProtocolError, match=says):
        decode(data)


def test_an_unknown_odd_message_is_marked_to_be_ignored() -> None:
    frame = frame_of(4095, b"whatever")
    assert decode(frame) == Unknown(4095)
    assert peek_type(frame) is None


def test_the_version_is_read_whatever_follows() -> None:
    assert peek_version(frame_of(2, b"?", version=9)) == 9
    for data in (b"DZ", b"GET / HTTP/1.1\r\n"):
        with pytest.raises(RemoteProtocolError, match="does not begin"):
            peek_version(data)


def test_a_frame_beyond_the_limit_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match=str(MAX_FRAME_BYTES)):
        decode(memoryview(bytearray(MAX_FRAME_BYTES + 1)))


# ---- control messages --------------------------------------------------------------------------


def refuse(number: MessageType, fields: object, says: str) -> None:
    with pytest.raises(RemoteProtocolError, match=says):
        decode(frame_of(number, msgspec.msgpack.encode(fields)))


def test_types_are_not_bent() -> None:
    refuse(MessageType.PING, {"number": True}, "Expected `int`, got `bool`")
    refuse(MessageType.PING, {"number": 1.0}, "Expected `int`, got `float`")
    refuse(MessageType.PING, {"number": "1"}, "Expected `int`, got `str`")
    refuse(MessageType.PING, {}, "missing required field `number`")
    refuse(MessageType.PING, {"number": 1, "more": 1}, "unknown field `more`")
    refuse(MessageType.PING, [1], "Expected `object`")


def test_a_body_followed_by_more_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="trailing"):
        decode(encode_control(Ping(number=1)) + b"\0")


@pytest.mark.parametrize("head", [b"\xdd", b"\xdf", b"\xdb", b"\xc6"])
def test_a_claimed_length_is_not_believed(head: bytes) -> None:
    """Four billion elements are claimed in five bytes; nothing of that size is made."""
    body = b"\x82\xaarequest_id\xa1a\xa5tools\x91\x81\xa1x" + head + b"\xff\xff\xff\xff"
    tracemalloc.start()
    with pytest.raises(RemoteProtocolError, match="truncated"):
        decode(frame_of(MessageType.GENERATE, body))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


def test_a_bottomless_body_is_refused() -> None:
    deep = b"\x91" * 500_000 + b"\xc0"
    body = b"\x82\xaarequest_id\xa1a\xa5tools\x91\x81\xa1x" + deep
    with pytest.raises(RemoteProtocolError, match="recursion"):
        decode(frame_of(MessageType.GENERATE, body))


def test_a_body_nested_too_deep_for_its_readers_is_refused() -> None:
    value: object = 1
    for _ in range(40):
        value = [value]
    refuse(
        MessageType.GENERATE,
        {"request_id": "a", "prompt": "p", "tools": [{"x": value}]},
        "nested more than",
    )


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (b"bytes", "JSON"),
        (msgspec.msgpack.Ext(5, b"x"), "JSON"),
        ({1: 2}, "not text"),
        (float("nan"), "not a number"),
    ],
)
def test_free_fields_hold_json_only(value: object, says: str) -> None:
    fields = {"request_id": "a", "prompt": "p", "tools": [{"x": [None, True, -3, 0.5, value]}]}
    refuse(MessageType.GENERATE, fields, says)


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (Generate(request_id="a"), "exactly one"),
        (Generate(request_id="a", prompt="p", messages=()), "exactly one"),
        (Generate(request_id="a", prompt="p", max_tokens=-1), "max_tokens is -1"),
        (
            OpenSequence(
                epoch=2**32, sequence_id=1, num_prompt_tokens=1, sampling=SamplingParameters()
            ),
            "epoch is 4294967296",
        ),
        (
            OpenSequence(
                epoch=1, sequence_id=1, num_prompt_tokens=1, sampling=SamplingParameters(top_p=2)
            ),
            "top_p is 2",
        ),
        (TextDelta(request_id="a", number=0, text="", token_ids=(2**31,)), "token_ids"),
        (Ping(number=2**70), "PING"),
        (Ping(number="1"), "Expected `int`"),
        (Ping(number=np.int64(1)), "PING"),
        (Goodbye(reason="\ud800"), "GOODBYE"),
        (
            CONTROL[MessageType.STAGE_READY].__class__(
                epoch=1,
                stage_index=0,
                description=msgspec.structs.replace(
                    CONTROL[MessageType.STAGE_READY].description, layers=LayerRange(3, 3)
                ),
            ),
            "are none",
        ),
        (
            msgspec.structs.replace(CONTROL[MessageType.FINISHED], decode_s=float("inf")),
            "decode_s is inf",
        ),
        (Goodbye(reason="x" * 16_385), "more than 16384"),
        (Generate(request_id="a", prompt="x" * MAX_CONTROL_BYTES), "at most"),
        (Message(), "not a control message"),
    ],
)
def test_a_wrong_message_of_ours_is_our_error(message: Message, says: str) -> None:
    with pytest.raises(LocalProtocolError, match=says):
        encode_control(message)


def test_ranges_are_checked_on_what_arrives_too() -> None:
    refuse(MessageType.PING, {"number": -1}, "number is -1")
    refuse(MessageType.CLOSE_SEQUENCE, {"epoch": 1, "sequence_id": 2**32}, "sequence_id")


def test_a_control_message_beyond_the_limit_is_refused() -> None:
    body = msgspec.msgpack.encode({"request_id": "a", "prompt": "x" * MAX_CONTROL_BYTES})
    with pytest.raises(RemoteProtocolError, match="at most 1048576"):
        decode(frame_of(MessageType.GENERATE, body))


def test_a_prompt_of_128k_tokens_fits() -> None:
    text = "word " * 128_000
    message = Generate(request_id="a", messages=({"role": "user", "content": text},))
    assert decode(encode_control(message)) == message


def test_foreign_text_is_shown_on_one_printable_line() -> None:
    assert shown("a\x1b[31m\nb\u202e") == "a [31m b"
    assert len(shown("x" * 1000)) == 200


def test_a_long_foreign_name_does_not_make_a_long_sentence() -> None:
    body = msgspec.msgpack.encode({"number": 1, "x\n" * 100_000: 1})
    with pytest.raises(RemoteProtocolError) as caught:
        decode(frame_of(MessageType.PING, body))
    assert len(caught.value.what) < 300
    assert caught.value.what.isprintable()


# ---- data frames -------------------------------------------------------------------------------


def test_a_micro_batch_comes_back_equal() -> None:
    got = decode(encode_micro_batch(MICRO_BATCH, COMPUTE_US))
    assert isinstance(got, MicroBatch)
    assert (got.batch_id, got.epoch, got.steps) == (41, 3, MICRO_BATCH.steps)
    np.testing.assert_array_equal(got.token_ids, MICRO_BATCH.token_ids)
    np.testing.assert_array_equal(got.hidden_states, MICRO_BATCH.hidden_states)
    assert got.token_ids.dtype == np.int32
    assert got.hidden_states.dtype == np.float32


def test_what_is_no_number_in_f16_is_not_sent() -> None:
    half = np.full(MICRO_BATCH.hidden_states.shape, np.inf, np.float16)
    with pytest.raises(LocalProtocolError, match="not a number"):
        encode_micro_batch(replace(MICRO_BATCH, hidden_states=half))


@pytest.mark.parametrize("bits", [0x7BFF, 0xFBFF, 0x0001, 0x8000])
def test_the_largest_and_the_smallest_f16_are_numbers(bits: int) -> None:
    got = decode(patched(F16_FRAME, len(F16_FRAME) - 2, bits, 2))
    assert got.hidden_states.view(np.uint16)[-1, -1] == bits


def test_f16_and_no_hidden_states_come_back_as_such() -> None:
    half = MICRO_BATCH.hidden_states.astype(np.float16)
    batch = MicroBatch(1, 1, MICRO_BATCH.steps, MICRO_BATCH.token_ids, half)
    got = decode(encode_micro_batch(batch))
    assert got.hidden_states.dtype == np.float16
    np.testing.assert_array_equal(got.hidden_states, half)
    bare = MicroBatch(1, 1, MICRO_BATCH.steps, MICRO_BATCH.token_ids)
    assert decode(encode_micro_batch(bare)).hidden_states is None


def test_int8_comes_back_with_the_scale_of_each_row() -> None:
    got = decode(INT8_FRAME)
    assert (got.hidden_states.dtype, got.row_scales.dtype) == (np.int8, np.float32)
    np.testing.assert_array_equal(got.hidden_states, INT8_BATCH.hidden_states)
    np.testing.assert_array_equal(got.row_scales, INT8_BATCH.row_scales)
    assert encode_micro_batch(got) == INT8_FRAME
    start = np.frombuffer(INT8_FRAME, np.uint8).ctypes.data
    assert (got.hidden_states.ctypes.data - start) % 64 == 0


def test_an_array_in_any_order_of_memory_is_sent_right() -> None:
    wide = np.asfortranarray(np.arange(12, dtype=np.float32).reshape(3, 4))
    ids = np.arange(6, dtype=np.int32)[::2]
    got = decode(encode_micro_batch(MicroBatch(1, 1, MICRO_BATCH.steps, ids, wide)))
    np.testing.assert_array_equal(got.hidden_states, wide)
    np.testing.assert_array_equal(got.token_ids, ids)


@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_decoded_arrays_are_read_only_views_of_the_frame(kind: type) -> None:
    frame = kind(encode_micro_batch(MICRO_BATCH))
    got = decode(frame)
    start = np.frombuffer(frame, np.uint8).ctypes.data
    for array in (got.token_ids, got.hidden_states):
        assert not array.flags.writeable
        assert 0 <= array.ctypes.data - start < len(frame)
    assert (got.hidden_states.ctypes.data - start) % 64 == 0


def test_encoding_copies_the_payload_once() -> None:
    hidden = np.zeros((1000, 1000), np.float32)
    steps = (msgspec.structs.replace(MICRO_BATCH.steps[0], num_tokens=1000),)
    batch = MicroBatch(1, 1, steps, np.zeros(1000, np.int32), hidden)
    gc.collect()
    tracemalloc.start()
    encode_micro_batch(batch)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert hidden.nbytes < peak < 1.1 * hidden.nbytes


def test_sampled_tokens_come_back_equal() -> None:
    assert decode(encode_sampled_tokens(SAMPLED_TOKENS)) == SAMPLED_TOKENS
    nothing = SampledTokens(1, 1, ())
    assert decode(encode_sampled_tokens(nothing)) == nothing


def test_a_forwarder_sees_the_header_alone() -> None:
    head = peek_batch(encode_micro_batch(MICRO_BATCH, COMPUTE_US)[:32])
    assert head == (MessageType.MICRO_BATCH, 41, 3, 2, 3, COMPUTE_US)
    head = peek_batch(encode_sampled_tokens(SAMPLED_TOKENS, COMPUTE_US))
    assert head == (MessageType.SAMPLED_TOKENS, 41, 3, 2, 2, COMPUTE_US)
    with pytest.raises(RemoteProtocolError, match="PING is no batch"):
        peek_batch(encode_control(Ping(number=1)))
    with pytest.raises(RemoteProtocolError, match="A frame is no batch"):
        peek_batch(frame_of(4095))
    with pytest.raises(RemoteProtocolError, match="CHUNK is no batch"):
        peek_batch(encode_chunk(CHUNK.name, CHUNK.index, CHUNK.piece, CHUNK.data))
    with pytest.raises(RemoteProtocolError, match="has 31 bytes"):
        peek_batch(encode_micro_batch(MICRO_BATCH)[:31])


def patched(frame: bytes, offset: int, value: int, size: int = 4) -> bytes:
    return frame[:offset] + value.to_bytes(size, "little") + frame[offset + size :]


FRAME = encode_micro_batch(MICRO_BATCH)
INT8_FRAME = encode_micro_batch(INT8_BATCH)
SAMPLED = encode_sampled_tokens(SAMPLED_TOKENS)
F16_FRAME = encode_micro_batch(
    replace(MICRO_BATCH, hidden_states=MICRO_BATCH.hidden_states.astype(np.float16))
)


@pytest.mark.parametrize(
    ("frame", "says"),
    [
        (patched(FRAME, 16, 0, 2), "0 steps"),
        (patched(FRAME, 16, 1025, 2), "1025 steps"),
        (patched(FRAME, 18, 4, 1), "dtype 4"),
        (patched(FRAME, 18, 3, 1), "has 152 bytes; by its header it must have 134"),
        (patched(INT8_FRAME, 18, 1, 1), "by its header"),
        (INT8_FRAME[:-1], "by its header"),
        (patched(INT8_FRAME, 76, 0), "scale"),
        (patched(INT8_FRAME, 80, 0x7FC00000), "scale"),
        (patched(INT8_FRAME, 80, 0x7F800000), "scale"),
        (patched(INT8_FRAME, 84, 0x80000001), "scale"),
        (patched(INT8_FRAME, 88, 1), "padding"),
        (patched(FRAME, 18, 0, 1), "dtype 0 with hidden size 2"),
        (patched(FRAME, 18, 2, 1), "has 152 bytes; by its header"),
        (patched(FRAME, 19, 1, 1), "Byte 19"),
        (patched(FRAME, 20, 0), "0 tokens"),
        (patched(FRAME, 20, 2), "by its header"),
        (patched(FRAME, 20, 2**32 - 1), "4294967295 tokens"),
        (patched(FRAME, 24, 0), "dtype 1 with hidden size 0"),
        (patched(FRAME, 24, 2**32 - 1), "hidden size 4294967295"),
        (patched(FRAME, 36, 2**31 - 1), "begins at 2147483647"),
        (patched(FRAME, 40, 0), "A step has 0"),
        (patched(FRAME, 40, 4), "A step has 4"),
        (patched(FRAME, 40, 2), "4 tokens together, and the batch has 3"),
        (patched(FRAME, 44, 2), "2 logits of 1"),
        (patched(FRAME, 48, 5), "same sequence twice"),
        (patched(FRAME, 64, 2**31), "Token id -2147483648 is negative"),
        (patched(FRAME, 80, 1), "padding"),
        (FRAME + b"\0", "by its header"),
        (FRAME[:-1], "by its header"),
        (FRAME[:31], "its header alone"),
        (patched(SAMPLED, 16, 1025, 2), "1025 rows"),
        (patched(SAMPLED, 18, 1, 1), "carry none"),
        (patched(SAMPLED, 24, 1), "carry none"),
        (patched(SAMPLED, 20, 8193), "8193 sampled tokens"),
        (patched(F16_FRAME, len(F16_FRAME) - 2, 0x7C00, 2), "not a number"),
        (patched(F16_FRAME, len(F16_FRAME) - 2, 0xFC00, 2), "not a number"),
        (patched(F16_FRAME, len(F16_FRAME) - 2, 0x7E01, 2), "not a number"),
        (patched(SAMPLED, 20, 3), "by its header"),
        (patched(SAMPLED, 36, 2**31 - 1), "begins at 2147483647"),
        (patched(SAMPLED, 40, 3), "more than the 2"),
        (patched(SAMPLED, 40, 1), "claim 1 of 2"),
        (patched(SAMPLED, 44, 5), "same sequence twice"),
        (patched(SAMPLED, 56, 2**31), "is negative"),
    ],
)
def test_a_data_frame_that_breaks_a_rule_is_refused(frame: bytes, says: str) -> None:
    with pytest.raises(RemoteProtocolError, match=says):
        decode(frame)


def batch_with(**changes: object) -> MicroBatch:
    fields = {
        "batch_id": 1,
        "epoch": 1,
        "steps": MICRO_BATCH.steps,
        "token_ids": MICRO_BATCH.token_ids,
        "hidden_states": MICRO_BATCH.hidden_states,
        "row_scales": None,
    }
    return MicroBatch(**(fields | changes))


STEP = MICRO_BATCH.steps[0]
INT8 = {"hidden_states": INT8_BATCH.hidden_states, "row_scales": np.ones(3, np.float32)}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"token_ids": np.zeros(3, np.int64)}, "int64"),
        ({"token_ids": np.zeros((3, 1), np.int32)}, "2 axes"),
        ({"token_ids": np.zeros(0, np.int32)}, "0 tokens"),
        ({"token_ids": np.array([1, -1, 1], np.int32)}, "Token id -1"),
        ({"hidden_states": np.zeros((3, 2), np.float64)}, "float64"),
        ({"hidden_states": np.zeros((3, 2), ">f4")}, "hidden states are >f4|Hidden states are >f4"),
        ({"hidden_states": np.zeros(3, np.float32)}, "two axes"),
        ({"hidden_states": np.zeros((3, 0), np.float32)}, r"\[3, 0\]"),
        ({"hidden_states": np.zeros((2, 2), np.float32)}, "2 rows of hidden states for 3"),
        ({"hidden_states": np.zeros((3, 65537), np.float32)}, "hidden size 65537"),
        ({"hidden_states": np.zeros((3, 2), np.int8)}, "one float32 scale a row"),
        ({"row_scales": np.ones(3, np.float32)}, "one float32 scale a row"),
        (INT8 | {"row_scales": np.ones(2, np.float32)}, "one float32 scale a row"),
        (INT8 | {"row_scales": np.ones((3, 1), np.float32)}, "one float32 scale a row"),
        (INT8 | {"row_scales": np.ones(3)}, "one float32 scale a row"),
        (INT8 | {"row_scales": np.zeros(3, np.float32)}, "between 0 and"),
        (INT8 | {"hidden_states": None}, "one float32 scale a row"),
        ({"batch_id": 2**32}, "header is out of range"),
        ({"epoch": -1}, "header is out of range"),
        ({"steps": ()}, "0 steps"),
        ({"steps": (STEP,)}, "1 tokens together, and the batch has 3"),
        ({"steps": (msgspec.structs.replace(STEP, past_len=-1),)}, "not a u32"),
        ({"steps": (msgspec.structs.replace(STEP, sequence_id=2**32),)}, "not a u32"),
    ],
)
def test_a_wrong_batch_of_ours_is_our_error(changes: dict[str, object], says: str) -> None:
    with pytest.raises(LocalProtocolError, match=says):
        encode_micro_batch(batch_with(**changes))


def test_a_batch_beyond_the_frame_limit_is_our_error() -> None:
    num_tokens = 8192
    steps = (msgspec.structs.replace(STEP, num_tokens=num_tokens),)
    hidden = np.broadcast_to(np.float32(0), (num_tokens, 4096))
    with pytest.raises(LocalProtocolError, match="a frame has at most 67108864"):
        encode_micro_batch(MicroBatch(1, 1, steps, np.zeros(num_tokens, np.int32), hidden))


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (SampledRow(5, 0, (2**31,)), "not an int32"),
        (SampledRow(5, 0, (-1,)), "negative"),
        (SampledRow(2**32, 0, ()), "not a u32"),
        (SampledRow(6, 2, ()), "same sequence twice"),
        (SampledRow(5, 2**31 - 1, (1,)), "positions end"),
        (SampledRow(5, 0, (1,) * 8193), "8193 sampled"),
    ],
)
def test_wrong_sampled_tokens_of_ours_are_our_error(row: SampledRow, says: str) -> None:
    with pytest.raises(LocalProtocolError, match=says):
        encode_sampled_tokens(SampledTokens(1, 1, (row, SAMPLED_TOKENS.rows[1])))


def test_one_row_is_encoded_and_decoded_in_a_fraction_of_the_budget() -> None:
    """0.3 ms of Python a stage pass is the budget; the codec takes 11 us of it, 60 at the worst."""
    steps = (msgspec.structs.replace(STEP, num_logits=1),)
    batch = MicroBatch(1, 1, steps, np.zeros(1, np.int32), np.zeros((1, 576), np.float32))
    best = 1.0
    for _ in range(50):
        begin = time.perf_counter()
        for _ in range(20):
            decode(encode_micro_batch(batch))
        best = min(best, (time.perf_counter() - begin) / 20)
    assert best < 60e-6

"""The codec for any input: what goes in comes out, and what is wrong raises one error."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.domain import MicroBatch, SampledRow, SampledTokens, SequenceId, SequenceStep
from engine.errors import RemoteProtocolError
from engine.messages.chain import OpenSequence
from engine.messages.codec import (
    ChunkFrame,
    ChunkListFrame,
    Unknown,
    decode,
    encode_chunk,
    encode_chunk_list,
    encode_control,
    encode_micro_batch,
    encode_sampled_tokens,
    peek_batch,
    peek_type,
)
from engine.messages.control import Generate, MessageType, TextDelta
from engine.messages.message import Message
from engine.sampling.parameters import SamplingParameters
from engine.transport.session import Session
from tests.unit.messages.examples import (
    CHUNK,
    CHUNK_LIST,
    CONTROL,
    MICRO_BATCH,
    SAMPLED_TOKENS,
)

U32 = st.integers(0, 2**32 - 1)
TOKEN_ID = st.integers(0, 2**31 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | TEXT
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=10,
)


@st.composite
def micro_batches(draw: st.DrawFn) -> MicroBatch:
    counts = draw(st.lists(st.integers(1, 9), min_size=1, max_size=6))
    ids = draw(st.lists(U32, min_size=len(counts), max_size=len(counts), unique=True))
    steps = tuple(
        SequenceStep(
            SequenceId(sequence_id),
            past_len=draw(st.integers(0, 2**31 - 10)),
            num_tokens=count,
            num_logits=draw(st.integers(0, count)),
        )
        for sequence_id, count in zip(ids, counts, strict=True)
    )
    total = sum(counts)
    tokens = np.array(draw(st.lists(TOKEN_ID, min_size=total, max_size=total)), np.int32)
    dtype = draw(st.sampled_from([None, np.float32, np.float16, np.int8]))
    hidden = scales = None
    if dtype is not None:
        width = draw(st.integers(1, 70))
        bits = draw(st.binary(min_size=64, max_size=64))
        values = np.resize(np.frombuffer(bits, dtype), (total, width))
        hidden = np.ascontiguousarray(values)
    if dtype is np.float16:  # what is no finite number in f16 is refused
        hidden[~np.isfinite(hidden)] = 65504.0
    if dtype is np.int8:
        scale = st.floats(0, 2.0**120, exclude_min=True, width=32)
        scales = np.array(draw(st.lists(scale, min_size=total, max_size=total)), np.float32)
    return MicroBatch(draw(U32), draw(U32), steps, tokens, hidden, scales)


@st.composite
def sampled_tokens(draw: st.DrawFn) -> SampledTokens:
    ids = draw(st.lists(U32, max_size=6, unique=True))
    rows = tuple(
        SampledRow(
            SequenceId(sequence_id),
            draw(st.integers(0, 2**31 - 20)),
            tuple(draw(st.lists(TOKEN_ID, max_size=9))),
        )
        for sequence_id in ids
    )
    return SampledTokens(draw(U32), draw(U32), rows)


@given(micro_batches(), U32)
def test_a_micro_batch_comes_back_bit_for_bit(batch: MicroBatch, compute_us: int) -> None:
    frame = encode_micro_batch(batch, compute_us)
    got = decode(frame)
    assert (got.batch_id, got.epoch, got.steps) == (batch.batch_id, batch.epoch, batch.steps)
    assert got.token_ids.tobytes() == batch.token_ids.tobytes()
    if batch.hidden_states is None:
        assert got.hidden_states is None
    else:
        assert got.hidden_states.dtype == batch.hidden_states.dtype
        assert got.hidden_states.shape == batch.hidden_states.shape
        assert got.hidden_states.tobytes() == batch.hidden_states.tobytes()
    assert (got.row_scales is None) == (batch.row_scales is None)
    if batch.row_scales is not None:
        assert got.row_scales.tobytes() == batch.row_scales.tobytes()
    head = peek_batch(frame)
    assert head.compute_us == compute_us
    assert (head.num_entries, head.num_tokens) == (len(batch.steps), batch.num_tokens)
    assert encode_micro_batch(got, compute_us) == frame


@given(sampled_tokens(), U32)
def test_sampled_tokens_come_back_equal(tokens: SampledTokens, compute_us: int) -> None:
    frame = encode_sampled_tokens(tokens, compute_us)
    assert decode(frame) == tokens
    assert peek_batch(frame).compute_us == compute_us


@given(
    st.binary(min_size=32, max_size=32),
    st.integers(0, 2**16 - 1),
    st.integers(0, 3),
    st.binary(min_size=1),
)
def test_parts_of_files_come_back_bit_for_bit(
    name: bytes, index: int, piece: int, data: bytes
) -> None:
    chunk = ChunkFrame(name.hex(), index, piece, memoryview(data))
    assert decode(encode_chunk(name.hex(), index, piece, data)) == chunk
    chunk_list = ChunkListFrame(name.hex(), memoryview(data))
    assert decode(encode_chunk_list(name.hex(), data)) == chunk_list


MESSAGES = st.one_of(
    st.builds(
        TextDelta,
        request_id=TEXT,
        number=U32,
        text=TEXT,
        token_ids=st.lists(TOKEN_ID, max_size=5).map(tuple),
    ),
    st.builds(
        Generate,
        request_id=TEXT,
        messages=st.lists(st.dictionaries(TEXT, JSON, max_size=3), max_size=3).map(tuple),
        prompt=st.none(),
        tools=st.none() | st.lists(st.dictionaries(TEXT, JSON, max_size=3), max_size=2).map(tuple),
        max_tokens=st.none() | U32,
        stop=st.lists(TEXT, max_size=3).map(tuple),
        ignore_eos=st.booleans(),
        seed_given=st.booleans(),
    ),
    st.builds(
        OpenSequence,
        epoch=U32,
        sequence_id=U32,
        num_prompt_tokens=U32,
        sampling=st.builds(
            SamplingParameters,
            temperature=st.floats(0, 100),
            top_k=U32,
            top_p=st.floats(0, 1),
            min_p=st.floats(0, 1),
            repetition_penalty=st.floats(0.01, 100),
            presence_penalty=st.floats(-100, 100),
            frequency_penalty=st.floats(-100, 100),
            seed=st.integers(0, 2**64 - 1),
        ),
    ),
)


@given(MESSAGES)
def test_a_control_message_comes_back_equal(message: Message) -> None:
    assert decode(encode_control(message)) == message


FRAMES = [
    *(encode_control(message) for message in CONTROL.values()),
    encode_micro_batch(MICRO_BATCH),
    encode_sampled_tokens(SAMPLED_TOKENS),
    encode_chunk(CHUNK.name, CHUNK.index, CHUNK.piece, CHUNK.data),
    encode_chunk_list(CHUNK_LIST.name, CHUNK_LIST.data),
]
DECODED = Message | MicroBatch | SampledTokens | ChunkFrame | ChunkListFrame | Unknown


def decoded_or_refused(data: bytes) -> None:
    """Decode; an error other than ``RemoteProtocolError`` fails the test."""
    sentence = "It was read."
    try:
        got = decode(data)
    except RemoteProtocolError as exc:
        sentence = exc.what
    else:
        assert isinstance(got, DECODED)
    assert sentence.endswith(".")
    assert sentence.isprintable()
    assert len(sentence) < 400


@given(st.binary(max_size=300))
def test_random_bytes_raise_one_error(data: bytes) -> None:
    decoded_or_refused(data)


@given(st.sampled_from(list(MessageType)), st.binary(max_size=300))
def test_random_bodies_raise_one_error(number: MessageType, body: bytes) -> None:
    decoded_or_refused(b"DZ\x01\0" + int(number).to_bytes(2, "little") + b"\0\0" + body)


@given(st.sampled_from(list(CONTROL)), st.dictionaries(TEXT, JSON, max_size=3), st.data())
def test_random_fields_raise_one_error(
    number: MessageType, extra: dict[str, object], data: st.DataObject
) -> None:
    """A body that is right but for one field, which has any value at all."""
    fields = msgspec.to_builtins(CONTROL[number])
    if fields:
        fields[data.draw(st.sampled_from(sorted(fields)))] = data.draw(JSON)
    fields |= data.draw(st.sampled_from([{}, extra]))
    body = msgspec.msgpack.encode(fields)
    decoded_or_refused(b"DZ\x01\0" + int(number).to_bytes(2, "little") + b"\0\0" + body)


@pytest.mark.parametrize("frame", FRAMES, ids=lambda f: peek_type(f).name)
def test_every_truncation_is_refused(frame: bytes) -> None:
    for length in range(len(frame)):
        with pytest.raises(RemoteProtocolError):
            decode(frame[:length])


@pytest.mark.parametrize("frame", FRAMES, ids=lambda f: peek_type(f).name)
def test_every_changed_byte_gives_a_message_or_one_error(frame: bytes) -> None:
    changed = bytearray(frame)
    for position, original in enumerate(frame):
        for value in {0, 1, 0x7F, 0x80, 0xC0, 0xDD, 0xDF, 0xFF, original ^ 1, original ^ 0x80}:
            changed[position] = value
            decoded_or_refused(bytes(changed))
        changed[position] = original


@given(st.lists(st.binary(max_size=60) | st.sampled_from(FRAMES), max_size=8), st.booleans())
def test_a_session_survives_any_frames(frames: list[bytes], is_listener: bool) -> None:
    """Whatever a peer sends, a session goes on or raises an error that names the peer's fault."""
    session = Session(CONTROL[MessageType.HELLO], is_listener=is_listener, now_s=0.0)
    for now_s, frame in enumerate(frames):
        try:
            session.receive(frame, float(now_s))
        except RemoteProtocolError:
            return
        assert len(session.data_to_send()) <= 2

"""docs/protocol.md, the code and the golden bytes say the same.

Where one of these fails after an intended change: ``python -m tests.unit.messages.rendering``.
"""

from __future__ import annotations

import numpy as np
import pytest

from engine.messages.codec import (
    decode,
    encode_chunk,
    encode_chunk_list,
    encode_control,
    encode_micro_batch,
    encode_sampled_tokens,
    peek_batch,
)
from engine.messages.control import CONTROL_TYPES, MessageType
from tests.unit.messages.examples import (
    CHUNK,
    CHUNK_LIST,
    COMPUTE_US,
    CONTROL,
    INT8_BATCH,
    MICRO_BATCH,
    SAMPLED_TOKENS,
)
from tests.unit.messages.rendering import DOCUMENT, INT8_NAME, PARTS, VECTORS, marked


def golden(number: MessageType) -> bytes:
    return golden_named(number.name.lower())


def golden_named(name: str) -> bytes:
    lines = (VECTORS / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    return bytes.fromhex(" ".join(line.partition("#")[0] for line in lines))


@pytest.mark.parametrize("part", PARTS)
def test_a_rendered_part_of_the_document_is_current(part: str) -> None:
    found = marked(part).findall(DOCUMENT.read_text(encoding="utf-8"))
    assert found == [PARTS[part]()]


def test_every_number_is_named_in_the_document() -> None:
    document = DOCUMENT.read_text(encoding="utf-8")
    for number in MessageType:
        shown = f"{int(number):#x}" if number >= 0x100 else str(int(number))
        assert f"### {shown} `{number.name}`" in document


def test_there_are_golden_bytes_of_every_message_and_of_nothing_else() -> None:
    names = {path.stem for path in VECTORS.glob("*.txt")}
    assert names == {INT8_NAME, *(number.name.lower() for number in MessageType)}


@pytest.mark.parametrize("number", CONTROL_TYPES, ids=lambda n: n.name)
def test_a_control_message_has_its_golden_bytes(number: MessageType) -> None:
    assert encode_control(CONTROL[number]) == golden(number)
    assert decode(golden(number)) == CONTROL[number]


def test_the_data_frames_have_their_golden_bytes() -> None:
    micro_batch = golden(MessageType.MICRO_BATCH)
    assert encode_micro_batch(MICRO_BATCH, COMPUTE_US) == micro_batch
    assert decode(micro_batch).steps == MICRO_BATCH.steps
    np.testing.assert_array_equal(decode(micro_batch).hidden_states, MICRO_BATCH.hidden_states)
    assert peek_batch(micro_batch).compute_us == COMPUTE_US
    int8 = golden_named(INT8_NAME)
    assert encode_micro_batch(INT8_BATCH, COMPUTE_US) == int8
    np.testing.assert_array_equal(decode(int8).hidden_states, INT8_BATCH.hidden_states)
    np.testing.assert_array_equal(decode(int8).row_scales, INT8_BATCH.row_scales)
    sampled = golden(MessageType.SAMPLED_TOKENS)
    assert encode_sampled_tokens(SAMPLED_TOKENS, COMPUTE_US) == sampled
    assert decode(sampled) == SAMPLED_TOKENS
    chunk = golden(MessageType.CHUNK)
    assert encode_chunk(CHUNK.name, CHUNK.index, CHUNK.piece, CHUNK.data) == chunk
    assert decode(chunk) == CHUNK
    chunk_list = golden(MessageType.CHUNK_LIST)
    assert encode_chunk_list(CHUNK_LIST.name, CHUNK_LIST.data) == chunk_list
    assert decode(chunk_list) == CHUNK_LIST

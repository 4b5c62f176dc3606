"""What a peer may say of itself: bounded, so that no word of its can be passed on too long."""

from __future__ import annotations

import msgspec
import pytest

from engine.errors import LocalProtocolError, RemoteProtocolError
from engine.messages.codec import decode, encode_control
from engine.messages.control import MessageType, NodeHeartbeat, NodeReported
from engine.messages.frames import MAGIC, PREFIX
from engine.messages.limits import (
    MAX_CHUNKS,
    MAX_COUNTER,
    MAX_HEARD_COUNTER,
    MAX_SENTENCE_LENGTH,
)
from engine.messages.pool import Term
from tests.unit.messages.examples import CONTROL

BEAT = CONTROL[MessageType.NODE_HEARTBEAT].heartbeat
REPORT = CONTROL[MessageType.NODE_REPORTED].report


PLACEMENT = CONTROL[MessageType.PLACEMENT]
WISH = CONTROL[MessageType.MAKE_WISH]


def received(number, message):
    """Decode what another program might send: no check of ours on its way out."""
    return decode(PREFIX.pack(MAGIC, 1, 0, number, 0) + msgspec.msgpack.encode(message))


@pytest.mark.parametrize(
    "change",
    [
        {"term": Term(2**64 - 1, "evil", 77)},
        {"term": Term(1, "x" * 600_000, 77)},
        {"coordinator": "\x01" * 200_000},
        {"node_id": "x" * 65},
        {"hears": ("x" * 65,)},
        {"hears": ("x",) * 65},
    ],
)
def test_a_heartbeat_out_of_bounds_is_refused_and_never_sent(change):
    beat = NodeHeartbeat(heartbeat=msgspec.structs.replace(BEAT, **change))
    with pytest.raises(RemoteProtocolError):
        received(MessageType.NODE_HEARTBEAT, beat)
    with pytest.raises(LocalProtocolError):
        encode_control(beat)


@pytest.mark.parametrize(
    "change",
    [
        {"name": "x" * 257},
        {"devices": ("x" * 65,)},
        {"devices": ("x",) * 65},
        {"layers": {"start": 0, "stop": 2**63}},
        {"port": 65536},
        {"kept_models": ("cd" * 32,) * 65},
        {"kept_models": ("../../etc/passwd",)},
        {"epoch": 2**32},
        {"link_kind": "x" * 65},
    ],
)
def test_a_report_out_of_bounds_is_refused(change):
    report = msgspec.to_builtins(REPORT) | change
    with pytest.raises(RemoteProtocolError):
        received(MessageType.NODE_REPORTED, {"report": report})


def test_a_report_at_its_bounds_is_taken():
    report = msgspec.structs.replace(REPORT, name="x" * 256, devices=("x" * 64,) * 64)
    assert received(MessageType.NODE_REPORTED, NodeReported(report=report)).report == report


def fields_of(number):
    return msgspec.to_builtins(CONTROL[number], builtin_types=(bytes,))


def changed(fields, path, value):
    """Return the fields with one of them, however deep, replaced."""
    key, *rest = path
    fields = dict(fields) if isinstance(fields, dict) else list(fields)
    fields[key] = changed(fields[key], rest, value) if rest else value
    return fields


LINE = msgspec.to_builtins(CONTROL[MessageType.DEPLOYMENT_CHANGED].deployment.plan[0])
SHARE = msgspec.to_builtins(CONTROL[MessageType.DEPLOYMENT_CHANGED].deployment.stages[0])
STEP = msgspec.to_builtins(CONTROL[MessageType.PROGRESS_REPORTED].progress)
STAMP_PATHS = (("stamp", "pool_id"), ("stamp", "sender"), ("stamp", "term", "claimant"))
FILE_MESSAGES = (
    MessageType.ASK_CHUNK_LIST,
    MessageType.ASK_CHUNKS_THERE,
    MessageType.CHUNKS_THERE,
    MessageType.ASK_CHUNK,
)
NO_DIGESTS = ("", "ab" * 31, "AB" * 32, "../" + "a" * 61, "ab" * 32 + "\n", "g" * 64)


@pytest.mark.parametrize(
    ("number", "path", "value"),
    [
        *((number, ("name",), name) for number in FILE_MESSAGES for name in NO_DIGESTS),
        *((MessageType.KEEP_MODEL, ("model_sha256",), name) for name in NO_DIGESTS),
        *((MessageType.PLACEMENT, ("manifest_sha256",), name) for name in NO_DIGESTS),
        *((MessageType.MAKE_WISH, ("wish", "model_sha256"), name) for name in NO_DIGESTS),
        *((MessageType.WARM_UP, path, "x" * 65) for path in STAMP_PATHS),
        (MessageType.WARM_UP, ("stamp", "term", "counter"), 2**53 + 1),
        (MessageType.MAKE_WISH, ("wish_id",), "another"),
        (MessageType.MAKE_WISH, ("wish", "asked_on"), "x" * 65),
        (MessageType.MAKE_WISH, ("wish", "model", "name"), "x" * 257),
        (MessageType.MAKE_WISH, ("wish", "model", "layer_bytes"), [2**53 + 1]),
        (MessageType.MAKE_WISH, ("wish", "model", "head_size"), [1] * 10_001),
        (MessageType.MAKE_WISH, ("wish", "model", "eos_token_ids"), [2**31]),
        (MessageType.MAKE_WISH, ("wish", "model", "eos_token_ids"), [1] * 257),
        (MessageType.DEPLOYMENT_CHANGED, ("deployment", "version"), 2**53 + 1),
        (MessageType.DEPLOYMENT_CHANGED, ("deployment", "epoch"), 2**32),
        (MessageType.DEPLOYMENT_CHANGED, ("deployment", "plan"), [LINE] * 65),
        (MessageType.DEPLOYMENT_CHANGED, ("deployment", "plan", 0, "needed_bytes"), 2**53 + 1),
        (MessageType.DEPLOYMENT_CHANGED, ("deployment", "plan", 0, "remedy"), "x" * 16_385),
        (MessageType.DEPLOYMENT_CHANGED, ("deployment", "stages"), [SHARE] * 65),
        (MessageType.DEPLOYMENT_CHANGED, ("deployment", "reason"), "x" * 16_385),
        (MessageType.DEPLOYMENT_KNOWN, ("deployment", "trouble", "advice"), "x" * 16_385),
        (MessageType.DEPLOYMENT_KNOWN, ("deployment", "trouble", "code"), "x" * 65),
        (MessageType.DEPLOYMENT_REPORT, ("progress",), [STEP] * 257),
        (MessageType.PROGRESS_REPORTED, ("progress", "done"), 2**53 + 1),
        (MessageType.PROGRESS_REPORTED, ("progress", "total"), -1),
        (MessageType.PROGRESS_REPORTED, ("progress", "detail"), "x" * 257),
        (MessageType.PROGRESS_REPORTED, ("progress", "rate_per_s"), float("inf")),
        (MessageType.SPLIT_MODEL, ("layers",), [{"start": 0, "stop": 1}] * 65),
        (MessageType.LOAD_MODEL, ("source",), "x" * 32_768),
        (MessageType.GENERATE, ("committed_ids",), [2**31]),
        (MessageType.GENERATE, ("next_number",), 2**32),
        (MessageType.GENERATE, ("request_id",), "x" * 129),
        (MessageType.ERROR_REPORT, ("what",), "x" * 16_385),
        (MessageType.CHUNKS_THERE, ("bitmap",), bytes(MAX_CHUNKS // 8 + 1)),
        (MessageType.ASK_CHUNK, ("index",), MAX_CHUNKS),
        (MessageType.ASK_CHUNK, ("piece",), 4),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_field_out_of_bounds_is_refused(number, path, value):
    fields = fields_of(number)
    assert received(number, fields) == CONTROL[number]
    with pytest.raises(RemoteProtocolError):
        received(number, changed(fields, path, value))


def test_a_split_either_has_shards_or_says_why_not():
    split = fields_of(MessageType.MODEL_SPLIT)
    for change in ({"trouble": None}, {"manifest_sha256": "ab" * 32}):
        with pytest.raises(RemoteProtocolError, match="exactly one"):
            received(MessageType.MODEL_SPLIT, split | change)


def test_a_wish_for_nothing_has_an_id_of_its_own():
    wish = received(MessageType.MAKE_WISH, {"wish": None, "wish_id": "w-2"})
    assert (wish.wish, wish.wish_id) == (None, "w-2")


def test_a_chunks_error_names_file_and_chunk():
    """The longest name of a question fits where an error says what it answers."""
    report = fields_of(MessageType.ERROR_REPORT) | {
        "what": "x" * MAX_SENTENCE_LENGTH,
        "request_id": f"{'ab' * 32}/{MAX_CHUNKS - 1}/3",
    }
    assert received(MessageType.ERROR_REPORT, report).request_id.endswith("/65535/3")


@pytest.mark.parametrize("counter", [MAX_HEARD_COUNTER + 1, MAX_COUNTER])
def test_a_term_that_leaves_no_room_for_the_next_is_not_believed(counter):
    """Who heard it would claim the next one, and never be able to say so."""
    beat = CONTROL[MessageType.NODE_HEARTBEAT].heartbeat
    term = msgspec.structs.replace(beat.term, counter=counter)
    told = NodeHeartbeat(heartbeat=msgspec.structs.replace(beat, term=term))
    with pytest.raises(RemoteProtocolError, match="counter"):
        decode(encode_control(told))


def test_the_highest_term_that_may_be_heard_is_heard():
    beat = CONTROL[MessageType.NODE_HEARTBEAT].heartbeat
    term = msgspec.structs.replace(beat.term, counter=MAX_HEARD_COUNTER)
    told = NodeHeartbeat(heartbeat=msgspec.structs.replace(beat, term=term))
    assert decode(encode_control(told)) == told


@pytest.mark.parametrize("kind", [MessageType.DEPLOYMENT_CHANGED, MessageType.DEPLOYMENT_KNOWN])
def test_a_record_of_such_a_term_is_not_believed(kind):
    message = CONTROL[kind]
    record = message.deployment
    term = msgspec.structs.replace(record.term, counter=MAX_COUNTER)
    changed = msgspec.structs.replace(record, term=term)
    with pytest.raises(RemoteProtocolError, match="counter"):
        decode(encode_control(msgspec.structs.replace(message, deployment=changed)))


@pytest.mark.parametrize("narrow", ["f16", "int8"])
def test_exact_mode_with_hidden_states_that_are_not_is_neither_sent_nor_taken(narrow):
    """Neither a wish nor a placement: it would not give the unsplit model's tokens."""
    changes = {"mode": "exact", "link_precision": narrow}
    wish = msgspec.structs.replace(WISH, wish=msgspec.structs.replace(WISH.wish, **changes))
    stages = tuple(msgspec.structs.replace(place, **changes) for place in PLACEMENT.stages)
    placement = msgspec.structs.replace(PLACEMENT, stages=stages)
    for number, message in (
        (MessageType.MAKE_WISH, wish),
        (MessageType.PLACEMENT, placement),
    ):
        with pytest.raises(LocalProtocolError, match="Exact mode"):
            encode_control(message)
        with pytest.raises(RemoteProtocolError, match="Exact mode"):
            received(number, message)

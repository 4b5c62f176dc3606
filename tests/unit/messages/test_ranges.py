"""What a peer may say of itself: bounded, so that no word of its can be passed on too long."""

from __future__ import annotations

import msgspec
import pytest

from engine.errors import LocalProtocolError, RemoteProtocolError
from engine.messages.codec import decode, encode_control
from engine.messages.control import MessageType, NodeHeartbeat, NodeReported
from engine.messages.frames import MAGIC, PREFIX
from engine.messages.pool import Term
from tests.unit.messages.examples import CONTROL

BEAT = CONTROL[MessageType.NODE_HEARTBEAT].heartbeat
REPORT = CONTROL[MessageType.NODE_REPORTED].report


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
    ],
)
def test_a_report_out_of_bounds_is_refused(change):
    report = msgspec.to_builtins(REPORT) | change
    with pytest.raises(RemoteProtocolError):
        received(MessageType.NODE_REPORTED, {"report": report})


def test_a_report_at_its_bounds_is_taken():
    report = msgspec.structs.replace(REPORT, name="x" * 256, devices=("x" * 64,) * 64)
    assert received(MessageType.NODE_REPORTED, NodeReported(report=report)).report == report

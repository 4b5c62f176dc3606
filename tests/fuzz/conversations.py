"""Parsers that keep a state: what comes before a hello and after it, in pieces, and out of turn."""

from __future__ import annotations

import asyncio
from functools import cache
from pathlib import Path

import numpy as np

from engine.domain import MicroBatch, SequenceId, SequenceStep
from engine.errors import (
    NotTrustedError,
    PeerUnreachableError,
    RemoteProtocolError,
    VersionMismatchError,
)
from engine.messages.codec import decode, encode_control, encode_micro_batch, peek_type
from engine.messages.control import PROTOCOL_VERSION, SHARD_FORMAT, Goodbye, Hello, Ping, Pong
from engine.messages.limits import MAX_HELLO_BYTES
from engine.messages.pool_control import OpenControl
from engine.messages.roster_control import (
    Invite,
    JoinPool,
    PoolsListed,
    RenamePc,
    RosterTold,
)
from engine.pipeline.withheld_tokens import WithheldTokens
from engine.pool.roster import decode_roster
from engine.pool.roster_changes import remove_member
from engine.pool.roster_merge import learn
from engine.stages.pipe_frames import LENGTH, FrameAssembler
from engine.transport.control_port import ControlConnection
from engine.transport.session import FrameReceived, Session, State
from tests.fuzz.target import Target
from tests.unit.pool.people import crowd, entropy, pool_of

VECTORS = Path(__file__).parents[1] / "vectors" / "wire"
HELLO = Hello(
    protocol_version=PROTOCOL_VERSION,
    product_version="1",
    shard_format=SHARD_FORMAT,
    node_id="a" * 20,
)


def joined(*frames):
    """Frames, each behind its length, as on the pipe and the control port."""
    return b"".join(LENGTH.pack(len(frame)) + frame for frame in frames)


def parts(data):
    """Return frames out of bytes that need not hold any."""
    frames = []
    while len(data) > LENGTH.size:
        length = LENGTH.unpack_from(data)[0] % 5000
        frames.append(data[LENGTH.size : LENGTH.size + length])
        data = data[LENGTH.size + length :]
    return frames


# ---- a session ---------------------------------------------------------------------------------


def sessions():
    hello, ping = encode_control(HELLO), encode_control(Ping(number=1))
    bye = encode_control(Goodbye(reason="done"))
    return [
        joined(hello, ping, encode_control(Pong(number=1)), encode_control(Invite()), bye),
        joined(hello, bye),
        joined(ping, hello),
    ]


def run_session(data):
    """Both sides; whatever comes first, nothing of a program's comes before a hello."""
    errors = []
    for is_listener in (True, False):
        session = Session(HELLO, is_listener=is_listener, now_s=0.0)
        try:
            for number, frame in enumerate(parts(data)):
                was_greeted = session.peer is not None
                events = session.receive(frame, float(number))
                assert was_greeted or not any(isinstance(e, FrameReceived) for e in events)
                session.data_to_send()
        except (RemoteProtocolError, VersionMismatchError) as error:
            assert session.state is State.CLOSED
            errors.append(error)
    if len(errors) == 2:
        raise errors[0]


# ---- the control port, and the pipe ------------------------------------------------------------


@cache
def loop():
    return asyncio.new_event_loop()


def openings():
    opening = encode_control(OpenControl(token="f" * 32, product_version="1"))
    return [joined(opening), joined(opening, encode_control(Invite()))]


def run_control_port(data):
    """As a stranger to it: the first frame is a small one, and says who comes."""

    async def scenario():
        reader = asyncio.StreamReader(limit=1 << 16)
        reader.feed_data(data)
        reader.feed_eof()
        connection = ControlConnection(reader, None, "fuzz")
        frame = await connection.receive(MAX_HELLO_BYTES)
        assert len(frame) <= MAX_HELLO_BYTES
        decode(frame)

    loop().run_until_complete(scenario())


def run_pipe(data):
    """The same frames, however the stream is cut."""
    whole, cut = FrameAssembler(), FrameAssembler()
    frames = whole.feed(data)
    step = max(1, len(data) // 7)
    pieces = [data[at : at + step] for at in range(0, len(data), step)]
    assert [frame for piece in pieces for frame in cut.feed(piece)] == frames


# ---- who is in the pool ------------------------------------------------------------------------


@cache
def pools():
    founder, anna, ben, eve = crowd(4)
    pool = pool_of(founder, anna, ben)
    return pool, remove_member(pool, founder, ben.node_id, entropy(4)), pool_of(eve, founder)


def roster_messages():
    told = [encode_control(RosterTold(roster=known.roster.signed)) for known in pools()]
    names = {"roster_told", "invite", "join_pool", "pcs_listed", "rename_pc", "remove_pc"}
    vectors = [
        bytes.fromhex(" ".join(line.partition("#")[0] for line in file.read_text().splitlines()))
        for file in sorted(VECTORS.glob("*.txt"))
        if file.stem in names
    ]
    asked = [
        encode_control(JoinPool(code="123456")),
        encode_control(RenamePc(node_id="a" * 20, name="Küche")),
        encode_control(PoolsListed(pools=())),
    ]
    return [*told, *asked, *vectors]


def run_roster_messages(data):
    """A roster that is told is merged with the one that is known, as a node does."""
    message = decode(data)
    if not isinstance(message, RosterTold):
        return
    known, *_ = pools()
    learned = learn(known, decode_roster(message.roster))
    assert known.removed <= learned.known.removed
    assert not learned.known.removed & {member.node_id for member in learned.known.members}


# ---- what comes round a private chain ----------------------------------------------------------


def rounds():
    hidden = np.ones((2, 8), np.float16)
    step = (SequenceStep(SequenceId(3), 5, 2, 1),)
    batches = [MicroBatch(number, 7, step, np.zeros(2, np.int32), hidden) for number in range(1, 4)]
    steps = np.ones((2, 8), np.int8)
    scales = np.ones(2, np.float32)
    batches.append(MicroBatch(4, 7, step, np.zeros(2, np.int32), steps, scales))
    return [encode_micro_batch(batch) for batch in batches]


def run_round(data):
    withheld = WithheldTokens(7)
    for frame in rounds():
        withheld.withhold(frame)
    whole = withheld.restore(data)
    assert peek_type(whole) is peek_type(data)


CONVERSATIONS = (
    Target("session", run_session, (RemoteProtocolError, VersionMismatchError), sessions),
    Target("control_port", run_control_port, (RemoteProtocolError, PeerUnreachableError), openings),
    Target("pipe", run_pipe, (RemoteProtocolError,), openings),
    Target(
        "roster_messages",
        run_roster_messages,
        (RemoteProtocolError, NotTrustedError),
        roster_messages,
        "control",
    ),
    Target("private_round", run_round, (RemoteProtocolError,), rounds),
)

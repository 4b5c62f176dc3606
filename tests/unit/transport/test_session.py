"""How a connection begins, lives and ends; two sessions face to face, in virtual time."""

from __future__ import annotations

import msgspec
import pytest

from engine.errors import (
    LocalProtocolError,
    PeerTimeoutError,
    RemoteProtocolError,
    VersionMismatchError,
)
from engine.messages.codec import decode, encode_control, encode_micro_batch
from engine.messages.control import Cancel, Generate, Goodbye, Hello, MessageType, Ping, Pong
from engine.transport.session import (
    TRANSITIONS,
    FrameReceived,
    Input,
    Liveness,
    PeerGreeted,
    PeerLeft,
    Session,
    State,
)
from tests.unit.messages.examples import MICRO_BATCH

CANCEL = encode_control(Cancel(request_id="r-1"))
ODD = b"DZ\x01\0\xff\x0f\0\0"  # number 4095
LIVENESS = Liveness(hello_within_s=3, ping_after_s=5, dead_after_s=15, goodbye_within_s=1)


def hello(name: str) -> Hello:
    return Hello(protocol_version=1, product_version="0.1.0", shard_format=1, node_id=name)


class Pair:
    """A connecting and a listening session with a wire between them and one clock."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.caller = Session(hello("caller"), is_listener=False, now_s=100.0, liveness=LIVENESS)
        self.listener = Session(hello("listener"), is_listener=True, now_s=100.0, liveness=LIVENESS)

    def carry(self) -> dict[str, list]:
        """Carry frames until none are left; return each side's events."""
        events: dict[str, list] = {"caller": [], "listener": []}
        ends = [("caller", self.caller, self.listener), ("listener", self.listener, self.caller)]
        moved = True
        while moved:
            moved = False
            for name, to, source in ends:
                for frame in source.data_to_send():
                    events[name] += to.receive(frame, self.now_s)
                    moved = True
        return events

    def pass_time(self, seconds: float) -> None:
        self.now_s += seconds
        for session in (self.caller, self.listener):
            session.tick(self.now_s)


@pytest.fixture
def pair() -> Pair:
    """Two that have not met."""
    return Pair()


@pytest.fixture
def met(pair: Pair) -> Pair:
    """Two that have said hello."""
    pair.carry()
    return pair


# ---- hello -------------------------------------------------------------------------------------


def test_both_learn_who_the_other_is(pair: Pair) -> None:
    events = pair.carry()
    assert events["caller"] == [PeerGreeted(hello("listener"))]
    assert events["listener"] == [PeerGreeted(hello("caller"))]
    assert pair.caller.state is pair.listener.state is State.OPEN
    assert pair.caller.peer == hello("listener")


def test_the_listener_tells_a_stranger_nothing(pair: Pair) -> None:
    assert pair.listener.data_to_send() == []
    with pytest.raises(RemoteProtocolError):
        pair.listener.receive(b"GET / HTTP/1.1\r\n\r\n", 100)
    assert pair.listener.data_to_send() == []
    assert pair.listener.state is State.CLOSED


@pytest.mark.parametrize("frame", [CANCEL, encode_control(Ping(number=1)), ODD])
def test_nothing_may_precede_the_hello(pair: Pair, frame: bytes) -> None:
    for session in (pair.caller, pair.listener):
        with pytest.raises(RemoteProtocolError, match="not the time"):
            session.receive(frame, 100)
        assert session.state is State.CLOSED


def test_a_second_hello_is_refused(met: Pair) -> None:
    with pytest.raises(RemoteProtocolError, match="hello received, open"):
        met.listener.receive(encode_control(hello("again")), 100)


def test_a_stranger_may_not_send_more_than_a_hello(pair: Pair) -> None:
    long = encode_control(msgspec.structs.replace(hello("x"), product_version="v" * 9000))
    with pytest.raises(RemoteProtocolError, match="at most 8192"):
        pair.listener.receive(long, 100)


def test_s26_another_version_is_named_on_both_sides() -> None:
    """The listener answers with its own hello, so that the caller, too, can name both."""
    pair = Pair()
    theirs = bytearray(pair.caller.data_to_send()[0])
    theirs[2] = 2
    with pytest.raises(VersionMismatchError, match="version 2, and this PC version 1"):
        pair.listener.receive(bytes(theirs), 100)
    assert pair.listener.state is State.CLOSED
    (answer,) = pair.listener.data_to_send()
    assert decode(answer) == hello("listener")
    theirs = bytearray(answer)
    theirs[2] = 3
    with pytest.raises(VersionMismatchError, match="version 3, and this PC version 1"):
        pair.caller.receive(bytes(theirs), 100)
    assert pair.caller.data_to_send() == []


def test_s26_a_hello_that_contradicts_its_prefix_is_another_version(pair: Pair) -> None:
    odd = encode_control(msgspec.structs.replace(hello("x"), protocol_version=7))
    with pytest.raises(VersionMismatchError, match="version 7"):
        pair.listener.receive(odd, 100)


def test_another_version_after_the_hello_is_a_broken_protocol(met: Pair) -> None:
    with pytest.raises(RemoteProtocolError, match="version 2"):
        met.caller.receive(b"DZ\x02" + CANCEL[3:], 100)
    assert met.caller.state is State.CLOSED


def test_who_says_no_hello_is_given_up(pair: Pair) -> None:
    assert pair.listener.next_deadline_s == pair.caller.next_deadline_s == 103
    pair.pass_time(2.9)
    for session in (pair.caller, pair.listener):
        with pytest.raises(PeerTimeoutError, match="within 3 s"):
            session.tick(103.0)
        assert session.state is State.CLOSED
        assert session.next_deadline_s is None
        session.tick(1000.0)


# ---- frames ------------------------------------------------------------------------------------


def test_frames_pass_undecoded_and_in_order(met: Pair) -> None:
    batch = encode_micro_batch(MICRO_BATCH)
    met.caller.send(CANCEL)
    met.caller.send(batch)
    events = met.carry()
    assert events["listener"] == [
        FrameReceived(MessageType.CANCEL, CANCEL),
        FrameReceived(MessageType.MICRO_BATCH, batch),
    ]


def test_an_unknown_odd_frame_is_ignored_and_an_even_one_is_not(met: Pair) -> None:
    assert met.caller.receive(ODD, 100) == []
    with pytest.raises(RemoteProtocolError, match="must be understood"):
        met.caller.receive(ODD[:4] + b"\xfe\x0f\0\0", 100)


def test_garbage_closes_the_session(met: Pair) -> None:
    with pytest.raises(RemoteProtocolError):
        met.caller.receive(b"garbage!", 100)
    with pytest.raises(RemoteProtocolError):
        met.listener.receive(encode_control(Ping(number=1)) + b"x", 100)
    assert met.caller.state is met.listener.state is State.CLOSED
    with pytest.raises(RemoteProtocolError):
        met.caller.receive(CANCEL, 100)


def test_sending_before_the_hello_is_our_own_error(pair: Pair) -> None:
    for session in (pair.caller, pair.listener):
        with pytest.raises(LocalProtocolError, match="connection is"):
            session.send(CANCEL)


def test_only_the_session_sends_its_own_messages_and_only_frames_are_sent(met: Pair) -> None:
    for message in (hello("x"), Ping(number=1), Pong(number=1), Goodbye(reason="")):
        with pytest.raises(LocalProtocolError, match="by the session alone"):
            met.caller.send(encode_control(message))
    with pytest.raises(LocalProtocolError, match="own is wrong"):
        met.caller.send(b"garbage!")
    assert met.caller.data_to_send() == []


# ---- liveness ----------------------------------------------------------------------------------


def test_a_silent_peer_is_asked_and_its_answer_measured(met: Pair) -> None:
    met.pass_time(4.9)
    assert met.caller.data_to_send() == met.listener.data_to_send() == []
    met.pass_time(0.1)
    (ping,) = met.caller.data_to_send()
    assert decode(ping) == Ping(number=1)
    met.listener.receive(ping, met.now_s)
    met.now_s += 0.25
    answers = met.listener.data_to_send()
    assert decode(answers[-1]) == Pong(number=1)
    met.caller.receive(answers[-1], met.now_s)
    assert met.caller.round_trip_s == 0.25
    assert met.listener.round_trip_s is None


def test_a_peer_that_is_never_silent_is_measured_when_somebody_wants_to_know(met: Pair) -> None:
    met.caller.measure(met.now_s)
    met.caller.measure(met.now_s + 1)  # it may still answer
    (ping,) = met.caller.data_to_send()
    assert decode(ping) == Ping(number=1)
    met.listener.receive(ping, met.now_s)
    met.now_s += 0.5
    met.caller.receive(met.listener.data_to_send()[-1], met.now_s)
    assert met.caller.round_trip_s == 0.5
    met.caller.measure(met.now_s)
    met.caller.measure(met.now_s + 5)  # it never did
    assert [decode(f) for f in met.caller.data_to_send()] == [Ping(number=2), Ping(number=3)]


def test_before_the_hello_nobody_is_measured() -> None:
    caller = Pair().caller
    caller.data_to_send()
    caller.measure(1)
    assert caller.data_to_send() == []


def test_anything_received_is_a_sign_of_life(met: Pair) -> None:
    for _ in range(20):
        met.pass_time(4.0)
        met.caller.send(CANCEL)
        met.listener.send(CANCEL)
        sent = met.caller.data_to_send(), met.listener.data_to_send()
        assert sent == ([CANCEL], [CANCEL])
        met.listener.receive(CANCEL, met.now_s)
        met.caller.receive(CANCEL, met.now_s)


def test_a_dead_peer_is_given_up_after_three_pings(met: Pair) -> None:
    pings = []
    while met.now_s < 115:
        assert met.caller.next_deadline_s is not None
        met.now_s = met.caller.next_deadline_s
        if met.now_s == 115:
            break
        met.caller.tick(met.now_s)
        pings += met.caller.data_to_send()
    assert [decode(p) for p in pings] == [Ping(number=1), Ping(number=2)]
    with pytest.raises(PeerTimeoutError, match="for 15 s"):
        met.caller.tick(115.0)
    assert met.caller.state is State.CLOSED


def test_a_side_that_does_not_read_counts_no_silence_but_shows_that_it_lives(met: Pair) -> None:
    met.caller.stop_reading()
    for _ in range(10):
        assert met.caller.next_deadline_s is not None
        met.now_s = met.caller.next_deadline_s
        met.caller.tick(met.now_s)
    assert len(met.caller.data_to_send()) == 10
    met.caller.resume_reading(met.now_s)
    met.caller.tick(met.now_s + 14.9)
    with pytest.raises(PeerTimeoutError):
        met.caller.tick(met.now_s + 15)


def test_a_flood_of_pings_owes_one_answer(met: Pair) -> None:
    for number in range(1000):
        assert met.listener.receive(encode_control(Ping(number=number)), 100) == []
    assert [decode(f) for f in met.listener.data_to_send()] == [Pong(number=999)]


def test_an_answer_to_nothing_is_refused_and_a_late_one_is_not(met: Pair) -> None:
    met.pass_time(5)
    met.pass_time(5)
    met.caller.receive(encode_control(Pong(number=1)), met.now_s)
    assert met.caller.round_trip_s is None
    with pytest.raises(RemoteProtocolError, match="ping 3, which was not sent"):
        met.caller.receive(encode_control(Pong(number=3)), met.now_s)
    with pytest.raises(RemoteProtocolError, match="ping 0"):
        met.listener.receive(encode_control(Pong(number=0)), met.now_s)


# ---- the end -----------------------------------------------------------------------------------


def test_a_goodbye_reaches_the_other_side_after_what_was_sent_before(met: Pair) -> None:
    met.caller.send(CANCEL)
    met.caller.leave("Enough.", 100)
    met.caller.leave("Really.", 100)
    assert met.caller.state is State.LEAVING
    events = met.carry()
    assert events["listener"] == [FrameReceived(MessageType.CANCEL, CANCEL), PeerLeft("Enough.")]
    assert met.listener.state is State.CLOSED
    with pytest.raises(LocalProtocolError, match="is leaving"):
        met.caller.send(CANCEL)


def test_what_arrives_while_leaving_is_dropped(met: Pair) -> None:
    met.caller.leave("Enough.", 100)
    met.caller.data_to_send()
    for frame in (CANCEL, encode_control(Ping(number=1)), ODD):
        assert met.caller.receive(frame, 100) == []
    assert met.caller.data_to_send() == []
    assert met.caller.receive(encode_control(Goodbye(reason="Too.")), 100) == [PeerLeft("Too.")]
    assert met.caller.state is State.CLOSED
    met.caller.leave("Again.", 100)
    met.caller.lose()
    assert met.caller.data_to_send() == []


def test_leaving_does_not_wait_for_ever(met: Pair) -> None:
    met.caller.leave("Enough.", 100)
    assert met.caller.next_deadline_s == 101
    met.caller.tick(101)
    assert met.caller.state is State.CLOSED


def test_one_may_leave_before_the_hello(pair: Pair) -> None:
    pair.listener.leave("No.", 100)
    assert pair.listener.state is State.CLOSED
    assert pair.listener.data_to_send() == []
    pair.caller.leave("No.", 100)
    sent = [decode(f) for f in pair.caller.data_to_send()]
    assert sent == [hello("caller"), Goodbye(reason="No.")]
    assert pair.caller.receive(encode_control(hello("late")), 100) == []
    long = encode_control(Generate(request_id="r", prompt="p" * 9000))
    assert pair.caller.receive(long, 100) == []


def test_a_peer_may_refuse_with_a_goodbye_instead_of_a_hello(pair: Pair) -> None:
    goodbye = encode_control(Goodbye(reason="Busy."))
    for session in (pair.caller, pair.listener):
        assert session.receive(goodbye, 100) == [PeerLeft("Busy.")]
        assert session.state is State.CLOSED


def test_a_lost_connection_is_closed_in_any_state(pair: Pair) -> None:
    pair.caller.lose()
    pair.caller.lose()
    assert pair.caller.state is State.CLOSED


# ---- the table ---------------------------------------------------------------------------------


def test_every_state_can_end_and_the_end_is_final() -> None:
    for state in State:
        assert TRANSITIONS[state, Input.LOST] is State.CLOSED
    after_end = {after for (state, _), after in TRANSITIONS.items() if state is State.CLOSED}
    assert after_end == {State.CLOSED}


def test_default_waits_are_in_proportion() -> None:
    waits = Liveness()
    assert waits.dead_after_s >= 3 * waits.ping_after_s
    assert Session(hello("x"), is_listener=True, now_s=0).next_deadline_s == waits.hello_within_s

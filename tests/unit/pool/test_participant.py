from __future__ import annotations

import pytest

from engine.domain import NodeId
from engine.errors import LocalProtocolError
from engine.messages.pool import Heartbeat, Preference, Stamp, Term
from engine.pool.actions import BecameCoordinator, CoordinatorLost, Following, Persist, SteppedDown
from engine.pool.election import LISTEN_S, STAND_BACK_S, State
from engine.pool.heartbeat import HEARTBEAT_EVERY_S, LEASE_S
from engine.pool.participant import TICK_EVERY_S, Broadcast, Identity, Output, Participant
from engine.pool.peer_address import PeerAddress
from tests.unit.pool.beats import VERSIONS, leader, term

ME = NodeId("me")
HERE = PeerAddress("10.0.0.2", 7420)
IDENTITY = Identity("pool", ME, 77, VERSIONS)
OWN = Term(1, ME, 77)


class Driven:
    """A participant and its clock."""

    def __init__(self, accepted: Term | None = None) -> None:
        self.now_s = 10.0
        self.node = Participant(IDENTITY, Preference(), accepted, self.now_s)

    def wait(self, seconds: float) -> list[Output]:
        outputs: list[Output] = []
        for _ in range(round(seconds / TICK_EVERY_S)):
            self.now_s += TICK_EVERY_S
            outputs += self.node.tick(Preference(), self.now_s)
        return outputs

    def hear(self, heartbeat: Heartbeat) -> list[Output]:
        return self.node.receive(heartbeat, HERE, self.now_s)

    def written(self, term: Term) -> list[Output]:
        return self.node.written(term, self.now_s)


def said(outputs: list[Output]) -> list[Heartbeat]:
    return [output.heartbeat for output in outputs if isinstance(output, Broadcast)]


def rest(outputs: list[Output]) -> list[Output]:
    return [output for output in outputs if not isinstance(output, Broadcast)]


def following() -> Driven:
    driven = Driven()
    driven.hear(leader("a", 3))
    driven.written(term(3, "a"))
    return driven


def test_a_heartbeat_goes_out_once_a_second_with_a_new_number() -> None:
    driven = Driven()
    beats = said(driven.wait(LISTEN_S - TICK_EVERY_S))
    assert [beat.number for beat in beats] == [1, 2]
    assert {(beat.node_id, beat.incarnation, beat.term) for beat in beats} == {(ME, 77, None)}


def test_a_change_is_told_at_once_and_the_next_is_due_a_second_later() -> None:
    driven = Driven()
    driven.wait(0.25)
    (beat,) = said(driven.hear(leader("a", 3)))
    assert beat.hears == ("a",)
    assert said(driven.wait(HEARTBEAT_EVERY_S - TICK_EVERY_S)) == []
    assert len(said(driven.wait(TICK_EVERY_S))) == 1


def test_the_same_again_is_not_told_at_once() -> None:
    driven = following()
    assert driven.hear(leader("a", 3, number=2)) == []


def test_alone_it_coordinates_itself() -> None:
    driven = Driven()
    assert rest(driven.wait(LISTEN_S)) == [Persist(OWN)]
    outputs = driven.written(OWN)
    assert rest(outputs) == [BecameCoordinator(OWN)]
    (beat,) = said(outputs)
    assert (beat.term, beat.coordinator, beat.vouches) == (OWN, ME, True)


def test_commands_are_admitted_once_the_term_is_on_disk_and_not_before() -> None:
    driven = Driven(accepted=term(1, "z"))
    old, new = Stamp("pool", term(1, "z"), NodeId("z")), Stamp("pool", term(3, "a"), NodeId("a"))
    assert driven.node.fence.admit(old)
    assert rest(driven.hear(leader("a", 3))) == [Persist(term(3, "a"))]
    assert driven.node.fence.admit(old)
    assert not driven.node.fence.admit(new)
    outputs = driven.written(term(3, "a"))
    assert rest(outputs) == [Following(NodeId("a"), term(3, "a"))]
    assert not driven.node.fence.admit(old)
    assert driven.node.fence.admit(new)
    (beat,) = said(outputs)
    assert (beat.coordinator, beat.vouches) == ("a", True)  # one heartbeat says it all


def test_who_does_not_hear_us_is_not_followed() -> None:
    driven = Driven()
    assert rest(driven.hear(leader("a", 3, hears=()))) == []
    assert driven.node.election.state is State.LISTENING


def test_a_goodbye_of_the_coordinator_is_felt_at_once() -> None:
    driven = following()
    outputs = driven.node.left(NodeId("a"), ord("a"), driven.now_s)
    assert rest(outputs) == [CoordinatorLost(NodeId("a"))]
    assert said(outputs)[0].hears == ()


def test_a_coordinator_that_falls_silent_is_missed_within_four_seconds() -> None:
    driven = following()
    assert rest(driven.wait(LEASE_S)) == []
    assert CoordinatorLost(NodeId("a")) in driven.wait(4.0 - LEASE_S)


def test_a_refused_node_is_noted() -> None:
    driven = Driven()
    driven.node.refused(NodeId("a"), VERSIONS, HERE, driven.now_s)
    assert set(driven.node.membership.strangers) == {"a"}


def test_a_failed_write_is_asked_for_again_by_what_is_seen_next_and_not_at_once() -> None:
    driven = Driven()
    driven.hear(leader("a", 3))
    outputs = driven.node.write_failed(term(3, "a"), driven.now_s)
    assert rest(outputs) == []
    assert Persist(term(3, "a")) in driven.wait(TICK_EVERY_S)


def test_a_coordinator_resigns_and_stands_back() -> None:
    driven = Driven()
    driven.wait(LISTEN_S)
    driven.written(OWN)
    assert rest(driven.node.resign(driven.now_s)) == [SteppedDown(OWN)]
    assert rest(driven.wait(STAND_BACK_S - TICK_EVERY_S)) == []


def test_a_follower_does_not_resign() -> None:
    driven = following()
    with pytest.raises(LocalProtocolError):
        driven.node.resign(driven.now_s)


def test_the_preference_of_the_last_tick_is_told() -> None:
    driven = Driven()
    driven.node.tick(Preference(wired=True), driven.now_s)
    assert driven.node.heartbeat().preference == Preference(wired=True)


def test_sleep_is_nobodys_silence() -> None:
    driven = following()
    driven.now_s += 3600
    assert rest(driven.node.tick(Preference(), driven.now_s)) == []
    assert driven.node.election.state is State.FOLLOWING

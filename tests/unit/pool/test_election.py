from __future__ import annotations

import pytest

from engine.domain import NodeId
from engine.errors import LocalProtocolError
from engine.messages.pool import Heartbeat, Preference, Term
from engine.pool.actions import (
    Action,
    Announce,
    BecameCoordinator,
    CoordinatorLost,
    Following,
    Persist,
    SteppedDown,
)
from engine.pool.election import (
    LISTEN_S,
    STAGGER_S,
    STAND_BACK_S,
    TRANSITIONS,
    Input,
    Resign,
    State,
    WriteFailed,
    Written,
    begin,
    step,
)
from engine.pool.heartbeat import LEASE_S
from engine.pool.office import Observed
from tests.unit.pool.beats import beat, follower, leader, term

ME = NodeId("me")
MINE = Preference(uptime_step=1)
BETTER = Preference(uptime_step=2)


def own(counter: int) -> Term:
    return term(counter, "me")


class Node:
    """An election, its clock, and what it asked for last."""

    def __init__(self, accepted: Term | None = None) -> None:
        self.now_s = 50.0
        self.election = begin(ME, own(1).incarnation, accepted, self.now_s)
        self.done: list[Action] = []

    def take(self, happened: Observed | Written | WriteFailed | Resign) -> list[Action]:
        self.election, self.done = step(self.election, happened, self.now_s)
        return self.done

    def see(self, *mutual: Heartbeat, gone: tuple[str, ...] = ()) -> list[Action]:
        return self.take(Observed(mutual, MINE, frozenset(map(NodeId, gone))))

    def wait(self, seconds: float, *mutual: Heartbeat) -> list[Action]:
        """See the same for a while; return everything asked for."""
        actions: list[Action] = []
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            self.now_s = min(self.now_s + 0.25, until_s)
            actions += self.see(*mutual)
        return actions

    def write(self) -> list[Action]:
        return self.take(Written(self.election.unwritten[-1]))

    @property
    def state(self) -> State:
        return self.election.state


def in_office(*mutual: Heartbeat) -> Node:
    """Return a node that coordinates in term 1/me."""
    node = Node()
    node.wait(LISTEN_S + 9, *mutual)
    node.write()
    node.see(*mutual)
    assert node.state is State.COORDINATING
    return node


def following(coordinator: Heartbeat, *others: Heartbeat) -> Node:
    node = Node()
    node.see(coordinator, *others)
    node.write()
    node.see(coordinator, *others)
    assert node.state is State.FOLLOWING
    return node


# ---- listening and claiming ------------------------------------------------------------------


def test_a_node_that_hears_nobody_claims_when_it_has_listened() -> None:
    node = Node()
    assert node.wait(LISTEN_S - 0.25) == []
    assert node.wait(0.25) == [Persist(own(1))]
    assert node.state is State.CLAIMING
    assert node.election.coordinator is None
    assert node.write() == [BecameCoordinator(own(1)), Announce()]
    assert node.election.is_in_office
    assert node.election.vouches


def test_nothing_is_announced_before_it_is_written() -> None:
    node = Node(term(4, "old"))
    node.wait(LISTEN_S)
    assert node.election.accepted == term(4, "old")
    node.write()
    assert node.election.accepted == own(5)


def test_each_preferred_node_gives_it_a_turn_more_to_wait() -> None:
    node = Node()
    others = beat("a", preference=BETTER), beat("b", preference=BETTER), beat("c")
    assert node.wait(LISTEN_S + 2 * STAGGER_S - 0.25, *others) == []
    assert node.wait(0.25, *others) == [Persist(own(1))]


def test_a_claim_is_newer_than_every_term_heard_or_written() -> None:
    node = Node(term(3, "z"))
    node.wait(LISTEN_S, beat("a", term=term(8, "z")), beat("b"))
    assert node.election.unwritten == (own(9),)


def test_a_node_follows_the_coordinator_it_finds() -> None:
    node = Node()
    assert node.see(leader("a", 3)) == [Persist(term(3, "a"))]
    assert node.state is State.ADOPTING
    assert node.see(leader("a", 3)) == []
    assert node.write() == [Following(NodeId("a"), term(3, "a")), Announce()]
    assert not node.election.vouches
    assert node.see(leader("a", 3)) == [Announce()]
    assert node.election.vouches


def test_it_follows_the_newest_of_two() -> None:
    node = Node()
    assert node.see(leader("a", 3), leader("b", 4)) == [Persist(term(4, "b"))]


def test_it_follows_no_term_older_than_its_own_and_leaves_the_claim_to_the_coordinator() -> None:
    node = Node(term(9, "z"))
    assert node.wait(30, leader("a", 3)) == []
    assert node.state is State.LISTENING
    assert node.see(leader("a", 10)) == [Persist(term(10, "a"))]


def test_it_returns_to_the_term_it_had() -> None:
    node = Node(term(3, "a"))
    assert node.see(leader("a", 3)) == [Persist(term(3, "a"))]


def test_a_coordinator_that_appears_during_a_claim_is_followed() -> None:
    node = Node(term(1, "z"))
    node.wait(LISTEN_S)
    assert node.see(leader("a", 2)) == []  # older than what is being written
    assert node.see(leader("a", 3)) == [Persist(term(3, "a"))]
    assert node.take(Written(own(2))) == [Announce()]  # not in office by it
    assert node.write() == [Following(NodeId("a"), term(3, "a")), Announce()]


def test_resigning_while_listening_lets_others_claim_first() -> None:
    node = Node()
    node.take(Resign())
    assert node.wait(STAND_BACK_S - 0.25) == []
    assert node.wait(0.25) == [Persist(own(1))]


# ---- vouching --------------------------------------------------------------------------------


def test_a_coordinator_that_is_vouched_for_is_followed_though_it_is_not_heard() -> None:
    node = following(follower("b", 3, of="a"))
    assert node.election.coordinator == "a"
    assert not node.election.vouches  # we have it from hearsay


def test_hearsay_of_hearsay_keeps_nobody_in_office() -> None:
    node = following(follower("b", 3, of="a"))
    assert node.see(follower("b", 3, of="a", vouches=False)) == [
        CoordinatorLost(NodeId("a")),
        Announce(),
    ]


def test_a_coordinator_that_said_goodbye_is_gone_whoever_vouches_for_it() -> None:
    node = following(leader("a", 3), follower("b", 3, of="a"))
    assert CoordinatorLost(NodeId("a")) in node.see(follower("b", 3, of="a"), gone=("a",))
    assert node.state is State.LISTENING


def test_what_a_node_says_of_itself_counts_for_more() -> None:
    node = following(leader("a", 3), follower("b", 3, of="a"))
    node.see(beat("a", term=term(3, "a")), follower("b", 3, of="a"))
    assert node.state is State.LISTENING


def test_who_vouches_for_us_is_not_believed() -> None:
    node = Node(own(3))
    assert node.see(follower("b", 3, of="me")) == []


# ---- following -------------------------------------------------------------------------------


def test_a_follower_stays_whoever_else_claims() -> None:
    node = following(leader("a", 3))
    assert node.see(leader("a", 3), leader("b", 8, followers=5, preference=BETTER)) == []


def test_a_follower_takes_its_coordinators_newer_term() -> None:
    node = following(leader("a", 3))
    assert node.see(leader("a", 5)) == [Persist(term(5, "a"))]
    assert node.election.coordinator == "a"
    assert node.write() == [Following(NodeId("a"), term(5, "a")), Announce()]


def test_a_voucher_that_has_not_heard_of_the_newer_term_changes_nothing() -> None:
    node = following(leader("a", 5))
    node.see(follower("b", 4, of="a"))
    assert node.state is State.FOLLOWING


def test_the_newest_of_two_vouches_counts() -> None:
    node = Node()
    vouches = follower("b", 3, of="a"), follower("c", 5, of="a"), follower("d", 4, of="a")
    assert node.see(*vouches) == [Persist(term(5, "a"))]


def test_a_lost_coordinator_is_replaced_by_the_one_there_is() -> None:
    node = following(leader("a", 3))
    assert node.see(leader("b", 4)) == [Persist(term(4, "b")), Announce()]
    assert node.state is State.ADOPTING
    assert node.write() == [Following(NodeId("b"), term(4, "b")), Announce()]


def test_a_lost_coordinator_that_nobody_replaces_is_claimed_after_in_turn() -> None:
    node = following(leader("a", 3))
    assert node.see() == [CoordinatorLost(NodeId("a")), Announce()]
    assert node.see() == [Persist(own(4))]


def test_a_coordinator_lost_while_its_term_is_written_is_not_followed() -> None:
    node = Node()
    node.see(leader("a", 3))
    assert node.see() == []
    assert node.state is State.LISTENING
    assert node.write() == [Announce()]
    assert (node.election.accepted, node.election.coordinator) == (term(3, "a"), None)


def test_a_term_that_is_still_being_written_is_not_asked_for_twice() -> None:
    node = Node()
    node.see(leader("a", 3))
    node.see()
    assert node.see(leader("a", 3)) == []
    assert node.state is State.ADOPTING
    assert Following(NodeId("a"), term(3, "a")) in node.write()


def test_a_newer_term_replaces_the_one_being_written() -> None:
    node = Node()
    node.see(leader("a", 3))
    assert node.see(leader("a", 4)) == [Persist(term(4, "a"))]
    assert node.take(Written(term(3, "a"))) == [Announce()]
    assert node.state is State.ADOPTING
    assert Following(NodeId("a"), term(4, "a")) in node.write()
    assert node.election.unwritten == ()


# ---- in office -------------------------------------------------------------------------------


def test_followers_are_counted_and_announced() -> None:
    node = in_office()
    assert node.see(follower("a", 1, of="me"), beat("b")) == [Announce()]
    assert node.election.followers == 1


def test_a_better_node_that_joins_takes_nothing_away() -> None:
    node = in_office()
    assert node.see(beat("a", preference=BETTER)) == []


def test_of_two_coordinators_the_one_with_more_followers_stays() -> None:
    node = in_office(beat("b"))
    node.see(leader("a", 5, followers=2), follower("b", 1, of="me"))
    assert node.state is State.ADOPTING
    assert node.election.is_in_office  # until the newer term is written
    assert node.write() == [
        SteppedDown(own(1)),
        Following(NodeId("a"), term(5, "a")),
        Announce(),
    ]


def test_it_claims_above_a_newer_term_with_fewer_followers() -> None:
    node = in_office(beat("b"))
    rival = leader("a", 5, preference=BETTER)
    assert Persist(own(6)) in node.see(rival, follower("b", 1, of="me"))
    assert node.election.is_in_office  # and says so until it is written
    assert node.see(rival, follower("b", 1, of="me")) == []
    assert node.write() == [SteppedDown(own(1)), BecameCoordinator(own(6)), Announce()]
    assert (node.election.vouches, node.election.followers) == (True, 1)


@pytest.mark.parametrize(
    ("preference", "state"), [(BETTER, State.ADOPTING), (Preference(), State.CLAIMING)]
)
def test_with_as_many_followers_the_preferred_stays(preference: Preference, state: State) -> None:
    node = in_office()
    node.see(leader("a", 5, preference=preference))
    assert node.state is state


def test_a_rival_with_an_older_term_has_to_move_whichever_is_better() -> None:
    node = in_office(beat("z", term=term(7, "z")))
    assert node.see(leader("a", 2, followers=3, preference=BETTER)) == []
    assert node.see(leader("a", 2)) == []


def test_of_several_better_ones_the_newest_is_followed() -> None:
    node = in_office()
    node.see(leader("a", 5, followers=1), leader("b", 4, followers=2))
    assert node.election.unwritten == (term(5, "a"),)


def test_it_claims_above_a_node_that_has_a_newer_term_and_no_coordinator() -> None:
    node = in_office()
    assert Persist(own(10)) in node.see(beat("a", term=term(9, "z")))


def test_it_claims_above_a_follower_that_has_a_newer_term_than_ours() -> None:
    """Our data folder was lost; the follower remembers."""
    node = in_office()
    assert Persist(own(10)) in node.see(beat("a", term=Term(9, ME, 1), coordinator="me"))


def test_a_node_of_another_pool_half_is_left_alone() -> None:
    node = in_office(beat("b"))
    b = follower("b", 1, of="me")
    node.see(b)
    assert node.see(b, follower("c", 9, of="z")) == []  # z does not hear us, nor we it


def test_a_coordinator_without_followers_follows_one_that_is_vouched_for() -> None:
    node = in_office()
    assert node.see(follower("c", 9, of="z")) == [Persist(term(9, "z"))]


def test_a_vouched_coordinator_of_an_older_term_can_not_be_followed() -> None:
    node = in_office(beat("q", term=term(10, "q")))
    assert node.see(follower("c", 9, of="z")) == []


def test_a_coordinator_that_resigns_stands_back() -> None:
    node = in_office()
    assert node.take(Resign()) == [SteppedDown(own(1)), Announce()]
    assert node.wait(STAND_BACK_S - 0.25) == []
    assert node.wait(0.25) == [Persist(own(2))]


def test_resigning_from_a_claim_abandons_it() -> None:
    node = Node()
    node.wait(LISTEN_S)
    node.take(Resign())
    assert node.write() == [Announce()]
    assert (node.state, node.election.accepted) == (State.LISTENING, own(1))


def test_resigning_while_it_gives_way_changes_nothing() -> None:
    node = in_office()
    node.see(leader("a", 5, followers=1))
    assert node.take(Resign()) == []
    assert node.state is State.ADOPTING


def test_a_follower_has_nothing_to_resign_from() -> None:
    node = following(leader("a", 3))
    with pytest.raises(LocalProtocolError, match=r"'asked to resign' can't happen .* following"):
        node.take(Resign())


# ---- sleep -----------------------------------------------------------------------------------


def test_a_coordinator_that_slept_leaves_its_office_and_listens() -> None:
    node = in_office()
    node.now_s += LEASE_S + 0.1
    assert node.see() == [SteppedDown(own(1)), Announce()]
    assert node.wait(LISTEN_S - 0.25) == []
    assert node.wait(0.25) == [Persist(own(2))]


def test_a_short_pause_is_none() -> None:
    node = in_office()
    node.now_s += LEASE_S
    assert node.see() == []


def test_a_follower_that_slept_follows_on() -> None:
    node = following(leader("a", 3))
    node.now_s += 3600
    assert node.see(leader("a", 3)) == []
    assert node.state is State.FOLLOWING


@pytest.mark.parametrize("seen", [(), (leader("a", 3),)], ids=["claiming", "adopting"])
def test_a_write_that_outlasts_a_sleep_counts_and_leads_to_nothing(
    seen: tuple[Heartbeat, ...],
) -> None:
    node = Node()
    node.wait(LISTEN_S, *seen)
    written = node.election.unwritten[-1]
    node.now_s += 3600
    assert node.take(Written(written)) == [Announce()]
    assert (node.state, node.election.accepted) == (State.LISTENING, written)


def test_a_node_that_slept_while_listening_listens_anew() -> None:
    node = Node()
    node.now_s += 3600
    assert node.see() == []
    assert node.wait(LISTEN_S) == [Persist(own(1))]


# ---- the disk --------------------------------------------------------------------------------


def test_a_claim_that_can_not_be_written_is_not_repeated_at_once() -> None:
    node = Node()
    node.wait(LISTEN_S)
    assert node.take(WriteFailed(own(1))) == []
    assert node.wait(STAND_BACK_S - 0.25) == []
    assert node.wait(0.25) == [Persist(own(1))]


def test_a_term_that_can_not_be_written_is_not_followed_and_is_tried_again() -> None:
    node = Node()
    node.see(leader("a", 3))
    assert node.take(WriteFailed(term(3, "a"))) == []
    assert (node.state, node.election.accepted) == (State.LISTENING, None)
    assert node.see(leader("a", 3)) == [Persist(term(3, "a"))]


def test_a_coordinator_that_can_not_write_a_newer_term_leaves_its_office() -> None:
    node = in_office()
    node.see(leader("a", 5, followers=1))
    assert node.take(WriteFailed(term(5, "a"))) == [SteppedDown(own(1)), Announce()]


def test_an_abandoned_write_that_fails_is_nothing() -> None:
    node = Node()
    node.see(leader("a", 3))
    node.see(leader("a", 4))
    assert node.take(WriteFailed(term(3, "a"))) == []
    assert node.election.unwritten == (term(4, "a"),)


def test_an_older_term_written_late_ends_the_office_it_overtakes() -> None:
    node = in_office(beat("c"))
    c = follower("c", 1, of="me")
    node.see(leader("a", 5, followers=2), c)
    node.see(leader("b", 6, followers=2), c)
    assert (node.election.vouches, node.election.followers) == (True, 1)
    assert node.take(Written(term(5, "a"))) == [SteppedDown(own(1)), Announce()]
    assert (node.election.vouches, node.election.followers) == (False, 0)
    assert node.write() == [Following(NodeId("b"), term(6, "b")), Announce()]


@pytest.mark.parametrize("report", [Written, WriteFailed])
def test_a_report_on_a_term_nobody_asked_for_is_a_bug(
    report: type[Written] | type[WriteFailed],
) -> None:
    node = in_office()
    with pytest.raises(LocalProtocolError, match="2/me was reported"):
        node.take(report(own(2)))


# ---- the table -------------------------------------------------------------------------------


def test_every_state_can_be_reached_and_left() -> None:
    reached = {State.LISTENING}
    for _ in State:
        reached |= {after for (before, _), after in TRANSITIONS.items() if before in reached}
    assert reached == set(State)
    left = {before for (before, _), after in TRANSITIONS.items() if after is not before}
    assert left == set(State)


def test_every_input_is_in_the_table() -> None:
    assert {happened for _, happened in TRANSITIONS} == set(Input)

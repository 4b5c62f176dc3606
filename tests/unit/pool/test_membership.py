from __future__ import annotations

from engine.domain import NodeId
from engine.messages.pool import Heartbeat, Versions
from engine.pool.heartbeat import LEASE_S, MAX_NODES
from engine.pool.membership import (
    CLONE_AFTER_S,
    FORGET_AFTER_S,
    FORGET_GONE_AFTER_S,
    FORGET_WAY_AFTER_S,
    MAX_LIVES,
    MAX_STRANGERS,
    MAX_WAYS,
    SILENT_AFTER_S,
    STALL_S,
    Event,
    Heard,
    Lease,
    Left,
    Member,
    Membership,
    Refused,
    Ticked,
    alive,
    fold,
    gone,
)
from engine.pool.peer_address import PeerAddress
from tests.unit.pool.beats import VERSIONS, beat

CABLE = PeerAddress("10.0.0.2", 7420)
AIR = PeerAddress("10.0.0.3", 7420)
A = NodeId("a")


class Watch:
    """A membership, and the clock it is folded by: twice a second, as the engine does."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.membership = Membership(NodeId("me"), 1, VERSIONS, self.now_s, self.now_s)

    def take(self, event: Event) -> None:
        self.membership = fold(self.membership, event, self.now_s)

    def hear(self, heartbeat: Heartbeat, address: PeerAddress = CABLE) -> None:
        self.take(Heard(heartbeat, address))

    def wait(self, seconds: float) -> None:
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            self.now_s = min(self.now_s + 0.5, until_s)
            self.take(Ticked())

    @property
    def member(self) -> Member:
        return self.membership.members[A]

    def lease(self) -> Lease:
        return self.member.life.lease(self.now_s)

    def heard(self) -> list[str]:
        return [life.heartbeat.node_id for life in alive(self.membership, self.now_s)]


# ---- leases ----------------------------------------------------------------------------------


def test_a_node_is_online_then_silent_then_offline() -> None:
    watch = Watch()
    watch.hear(beat("a"))
    watch.wait(SILENT_AFTER_S)
    assert watch.lease() is Lease.ONLINE
    watch.wait(0.5)
    assert watch.lease() is Lease.SILENT
    watch.wait(LEASE_S - SILENT_AFTER_S - 0.5)
    assert watch.lease() is Lease.SILENT
    assert watch.heard() == ["a"]
    watch.wait(0.1)
    assert watch.lease() is Lease.OFFLINE
    assert watch.heard() == []


def test_a_heartbeat_renews_the_lease() -> None:
    watch = Watch()
    for number in range(1, 9):
        watch.hear(beat("a", number))
        watch.wait(3.0)
    assert watch.heard() == ["a"]
    assert watch.member.life.heartbeat.number == 8


def test_a_goodbye_counts_at_once_and_for_good() -> None:
    watch = Watch()
    watch.hear(beat("a", 1))
    watch.take(Left(A, ord("a")))
    assert watch.lease() is Lease.GONE
    assert gone(watch.membership) == {"a"}
    watch.hear(beat("a", 2))  # it was under way
    watch.wait(1)
    watch.take(Left(A, ord("a")))  # and so was this
    assert watch.lease() is Lease.GONE
    assert watch.member.life.left_s == 100.0


def test_the_goodbye_of_an_earlier_start_does_not_end_the_present_one() -> None:
    watch = Watch()
    watch.hear(beat("a", incarnation=1))
    watch.hear(beat("a", incarnation=2))
    watch.take(Left(A, 1))
    assert watch.lease() is Lease.ONLINE
    assert gone(watch.membership) == frozenset()


def test_a_goodbye_from_nobody_changes_nothing() -> None:
    watch = Watch()
    watch.take(Left(A, 1))
    assert watch.membership.members == {}


def test_an_overtaken_or_doubled_heartbeat_changes_nothing() -> None:
    watch = Watch()
    watch.hear(beat("a", 5, followers=2))
    watch.wait(1)
    for number in (4, 5):
        watch.hear(beat("a", number, followers=9))
    assert watch.member.life.heartbeat.followers == 2
    assert watch.member.life.heard_s == 100.0


def test_a_slow_pc_still_sees_who_is_gone() -> None:
    watch = Watch()
    watch.hear(beat("a"))
    for _ in range(20):
        watch.now_s += STALL_S + 0.1
        watch.take(Ticked())
    assert watch.lease() is Lease.OFFLINE


def test_a_leap_of_the_clock_counts_against_nobody() -> None:
    watch = Watch()
    watch.hear(beat("a"))
    watch.hear(beat("b"))
    watch.take(Left(NodeId("b"), ord("b")))
    watch.wait(1)
    watch.now_s += 3600  # we slept
    watch.take(Ticked())
    assert watch.lease() is Lease.ONLINE
    assert watch.member.life.first_s == watch.member.life.heard_s  # heard once, as before
    assert gone(watch.membership) == {"b"}
    watch.wait(LEASE_S)
    assert watch.lease() is Lease.OFFLINE


def test_the_offline_and_the_gone_are_forgotten() -> None:
    watch = Watch()
    watch.hear(beat("a"))
    watch.hear(beat("b"))
    watch.take(Left(NodeId("b"), ord("b")))
    watch.wait(FORGET_GONE_AFTER_S)
    assert set(watch.membership.members) == {"a", "b"}
    watch.wait(0.5)
    assert set(watch.membership.members) == {"a"}
    watch.wait(FORGET_AFTER_S - FORGET_GONE_AFTER_S - 0.5)
    assert set(watch.membership.members) == {"a"}
    watch.wait(0.5)
    assert watch.membership.members == {}


# ---- one node, many starts -------------------------------------------------------------------


def test_a_restart_takes_the_place_of_the_start_before_it() -> None:
    watch = Watch()
    watch.hear(beat("a", 40, incarnation=1))
    watch.wait(1)
    watch.hear(beat("a", 1, incarnation=2))
    assert watch.heard() == ["a"]
    assert watch.member.life.heartbeat.incarnation == 2
    watch.wait(1)
    watch.hear(beat("a", 2, incarnation=2))
    assert watch.member.clones(watch.now_s) == ()


def test_a_restart_after_a_goodbye_is_back_at_once() -> None:
    watch = Watch()
    watch.hear(beat("a", incarnation=1))
    watch.take(Left(A, 1))
    watch.hear(beat("a", incarnation=2))
    assert watch.lease() is Lease.ONLINE


def test_a_late_heartbeat_of_an_earlier_start_is_no_clone_and_does_not_stay() -> None:
    """We come late: the new start is heard first, then one heartbeat of the old."""
    watch = Watch()
    watch.hear(beat("a", 1, incarnation=2))
    watch.hear(beat("a", 40, incarnation=1))
    for number in range(2, 6):
        watch.wait(1)
        watch.hear(beat("a", number, incarnation=2))
        assert watch.member.clones(watch.now_s) == ()
    assert watch.member.life.heartbeat.incarnation == 2


def test_two_starts_that_both_go_on_are_a_clone() -> None:
    watch = Watch()
    for number in range(1, 5):
        watch.hear(beat("a", number, incarnation=1))
        watch.hear(beat("a", number, incarnation=2))
        assert bool(watch.member.clones(watch.now_s)) is (number - 1 >= CLONE_AFTER_S)
        watch.wait(1)
    assert [life.heartbeat.incarnation for life in watch.member.clones(watch.now_s)] == [1]
    assert watch.member.life.heartbeat.incarnation == 2  # and does not change to and fro
    watch.hear(beat("a", 4, incarnation=1))  # doubled
    assert watch.member.life.heartbeat.incarnation == 2


def test_a_clone_that_is_closed_gives_the_identity_back() -> None:
    watch = Watch()
    for number in range(1, 5):
        watch.hear(beat("a", number, incarnation=1))
        watch.hear(beat("a", number, incarnation=2))
        watch.wait(1)
    for number in range(5, 10):
        watch.hear(beat("a", number, incarnation=1))
        watch.wait(1)
    assert watch.member.life.heartbeat.incarnation == 1
    assert watch.member.clones(watch.now_s) == ()


def test_only_so_many_starts_are_remembered() -> None:
    watch = Watch()
    for incarnation in range(20):
        watch.hear(beat("a", incarnation=incarnation))
    assert len(watch.member.others) == MAX_LIVES - 1


def test_our_own_identity_from_elsewhere_is_named_and_our_own_echo_is_not() -> None:
    watch = Watch()
    watch.hear(beat("me", incarnation=1))
    assert watch.membership.double is None
    watch.hear(beat("me", incarnation=2), AIR)
    double = watch.membership.double
    assert double is not None
    assert (double.incarnation, double.address) == (2, AIR)
    assert watch.membership.members == {}
    watch.wait(LEASE_S)
    assert watch.membership.double == double
    watch.wait(0.5)
    assert watch.membership.double is None


# ---- one node, many addresses ----------------------------------------------------------------


def test_two_addresses_are_two_ways_to_one_node() -> None:
    """K38: cable and air at once."""
    watch = Watch()
    watch.hear(beat("a", 1), CABLE)
    watch.hear(beat("a", 2), AIR)
    watch.hear(beat("a", 3), CABLE)
    assert watch.heard() == ["a"]
    assert [way.address for way in watch.member.ways] == [CABLE, AIR]


def test_a_heartbeat_that_comes_both_ways_keeps_both() -> None:
    """K38: each is sent over every session, and one is always the later."""
    watch = Watch()
    for number in range(1, round(3 * FORGET_WAY_AFTER_S)):
        watch.hear(beat("a", number), CABLE)
        watch.hear(beat("a", number), AIR)
        watch.wait(1)
    assert {way.address for way in watch.member.ways} == {CABLE, AIR}
    assert watch.member.life.heartbeat.number == number


def test_a_way_nothing_comes_from_is_forgotten() -> None:
    watch = Watch()
    watch.hear(beat("a", 1), CABLE)
    watch.wait(FORGET_WAY_AFTER_S)
    watch.hear(beat("a", 2), AIR)
    assert [way.address for way in watch.member.ways] == [AIR, CABLE]
    watch.wait(1)
    watch.hear(beat("a", 3), AIR)
    assert [way.address for way in watch.member.ways] == [AIR]


def test_only_so_many_ways_are_remembered() -> None:
    watch = Watch()
    for number in range(1, 40):
        watch.hear(beat("a", number), PeerAddress("10.0.0.2", number))
    assert len(watch.member.ways) == MAX_WAYS
    assert watch.member.ways[0].address.port == 39


# ---- those who can't take part ---------------------------------------------------------------


def test_a_node_of_another_version_is_a_stranger_until_it_is_updated() -> None:
    watch = Watch()
    theirs = Versions(product="0.9", protocol=0, shard_format=1)
    watch.take(Refused(A, theirs, CABLE))
    assert watch.membership.strangers[A].versions == theirs
    assert watch.membership.members == {}
    watch.hear(beat("a"))
    assert watch.membership.strangers == {}


def test_only_so_many_strangers_are_remembered_and_the_oldest_goes() -> None:
    watch = Watch()
    for i in range(3 * MAX_STRANGERS):
        watch.take(Refused(NodeId(f"n{i:03}"), VERSIONS, CABLE))
        watch.wait(0.5)
    assert len(watch.membership.strangers) == MAX_STRANGERS
    assert min(watch.membership.strangers) == f"n{2 * MAX_STRANGERS:03}"


def test_whoever_announces_a_member_as_another_version_is_not_believed() -> None:
    watch = Watch()
    watch.hear(beat("a"))
    theirs = Versions(product="", protocol=9, shard_format=9)
    watch.take(Refused(A, theirs, CABLE))
    watch.take(Refused(NodeId("me"), theirs, CABLE))
    assert watch.membership.strangers == {}
    watch.wait(LEASE_S + 1)
    watch.take(Refused(A, theirs, CABLE))
    assert set(watch.membership.strangers) == {A}


def test_a_stranger_is_forgotten() -> None:
    watch = Watch()
    watch.take(Refused(A, VERSIONS, CABLE))
    watch.wait(FORGET_AFTER_S)
    assert set(watch.membership.strangers) == {"a"}
    watch.wait(0.5)
    assert watch.membership.strangers == {}


def full() -> Watch:
    watch = Watch()
    for index in range(MAX_NODES - 1):
        watch.hear(beat(f"n{index:02}"))
    return watch


def test_one_too_many_is_turned_away_and_named() -> None:
    watch = full()
    watch.hear(beat("z"))
    assert len(watch.membership.members) == MAX_NODES - 1
    assert set(watch.membership.strangers) == {"z"}


def test_a_full_pool_takes_one_in_for_one_that_is_not_there() -> None:
    watch = full()
    watch.wait(1)
    watch.hear(beat("n07", 2))
    watch.take(Left(NodeId("n03"), ord("n")))
    watch.hear(beat("z"))
    assert set(watch.membership.strangers) == set()
    assert "z" in watch.membership.members
    assert "n03" not in watch.membership.members
    watch.wait(LEASE_S - 0.5)
    watch.hear(beat("n07", 3))
    watch.hear(beat("y"))  # many are offline now: the one heard longest ago goes
    assert {"y", "z", "n07"} <= set(watch.membership.members)
    assert len(watch.membership.members) == MAX_NODES - 1


def test_a_membership_is_never_changed_in_place() -> None:
    watch = Watch()
    watch.hear(beat("a"))
    before = watch.membership
    copied = dict(before.members)
    watch.hear(beat("b"))
    watch.take(Left(A, ord("a")))
    assert before.members == copied

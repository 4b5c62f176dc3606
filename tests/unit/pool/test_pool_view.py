from __future__ import annotations

from engine.domain import NodeId
from engine.messages.pool import Versions
from engine.pool.heartbeat import MAX_NODES
from engine.pool.membership import Heard, Lease, Left, Membership, Refused, fold
from engine.pool.peer_address import PeerAddress
from engine.pool.pool_view import Mismatch, OneWayLink, PoolView, view
from tests.unit.pool.beats import VERSIONS, beat

HERE = PeerAddress("10.0.0.2", 7420)


def seen(hears: dict[str, tuple[str, ...]], seconds: int = 5) -> tuple[Membership, float]:
    """Hear each node once a second; ``hears`` says what each says it hears."""
    membership = Membership(NodeId("me"), 1, VERSIONS, 100.0, 100.0)
    for second in range(seconds):
        for node_id, heard in hears.items():
            event = Heard(beat(node_id, second + 1, hears=heard), HERE)
            membership = fold(membership, event, 100.0 + second)
    return membership, 100.0 + seconds


def viewed(hears: dict[str, tuple[str, ...]], seconds: int = 5) -> PoolView:
    return view(*seen(hears, seconds))


def test_a_whole_pool_has_nothing_to_be_named() -> None:
    pool = viewed({"a": ("b", "me"), "b": ("a", "me")})
    assert pool.hears == {"me": ("a", "b"), "a": ("b", "me"), "b": ("a", "me")}
    assert (pool.one_way, pool.no_link, pool.strangers, pool.double) == ((), (), (), None)
    assert [(one.lease, one.hears_us, one.heard_ago_s) for one in pool.nodes] == [
        (Lease.ONLINE, True, 1.0)
    ] * 2


def test_one_way_links_are_named_whichever_end_is_deaf() -> None:
    pool = viewed({"a": ("b",), "b": ("me",)})
    me, a, b = NodeId("me"), NodeId("a"), NodeId("b")
    assert set(pool.one_way) == {OneWayLink(me, a), OneWayLink(a, b)}
    assert [one.hears_us for one in pool.nodes] == [False, True]


def test_two_that_hear_each_other_not_at_all_are_named() -> None:
    assert viewed({"a": ("me",), "b": ("me",)}).no_link == (("a", "b"),)


def test_a_newcomer_is_not_suspected() -> None:
    pool = viewed({"a": ()}, seconds=3)
    assert pool.one_way == ()


def test_a_node_that_is_not_there_is_shown_and_hears_nobody() -> None:
    membership, now_s = seen({"a": ("me",)})
    membership = fold(membership, Left(NodeId("a"), ord("a")), now_s)
    pool = view(membership, now_s)
    assert [one.lease for one in pool.nodes] == [Lease.GONE]
    assert not pool.nodes[0].hears_us
    assert pool.hears == {"me": ()}


def test_versions_that_differ_are_named_with_both_values() -> None:
    theirs = Versions(product="1.1", protocol=1, shard_format=2)
    membership, now_s = seen({})
    heartbeat = beat("a", versions=theirs)
    membership = fold(membership, Heard(heartbeat, HERE), now_s)
    membership = fold(membership, Refused(NodeId("z"), theirs, HERE), now_s)
    named = (Mismatch("version of Daisy", "1.0", "1.1"), Mismatch("shard format", "1", "2"))
    pool = view(membership, now_s)
    assert pool.nodes[0].mismatches == named
    assert [(one.node_id, one.mismatches) for one in pool.strangers] == [("z", named)]


def test_one_too_many_is_a_stranger_without_a_mismatch() -> None:
    membership, now_s = seen({f"n{index:02}": ("me",) for index in range(MAX_NODES)})
    pool = view(membership, now_s)
    assert [(one.node_id, one.mismatches) for one in pool.strangers] == [("n15", ())]


def test_clones_are_named() -> None:
    membership = Membership(NodeId("me"), 1, VERSIONS, 0.0, 0.0)
    for second in range(4):
        for incarnation in (5, 6):
            heard = Heard(beat("a", second + 1, incarnation=incarnation), HERE)
            membership = fold(membership, heard, second)
    membership = fold(membership, Heard(beat("me", incarnation=9), HERE), 4.0)
    pool = view(membership, 4.0)
    assert pool.nodes[0].clones == (5,)
    assert pool.double is not None

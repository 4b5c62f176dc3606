"""The addresses a node remembers, and those that others tell it."""

from __future__ import annotations

import pytest

from engine.domain import NodeId
from engine.messages.pool import Neighbour, NodeReport
from engine.pool.known_peers import (
    MAX_HINTS,
    MAX_KNOWN,
    MAX_KNOWN_OF_ONE,
    KnownPeer,
    KnownPeers,
    hints,
    readable,
    remembered,
)
from engine.pool.peer_address import PeerAddress

A, B = NodeId("a"), NodeId("b")
CABLE, AIR = PeerAddress("10.0.0.2", 7420), PeerAddress("10.0.0.3", 7420)


def after(*reached: tuple[NodeId, PeerAddress]) -> KnownPeers:
    known: KnownPeers = ()
    for node_id, address in reached:
        known = remembered(known, node_id, address)
    return known


def test_the_newest_comes_first_and_what_is_known_changes_nothing() -> None:
    known = after((A, CABLE), (B, AIR))
    assert known == (KnownPeer(B, "10.0.0.3:7420"), KnownPeer(A, "10.0.0.2:7420"))
    assert remembered(known, A, CABLE) is known


def test_an_address_belongs_to_the_last_node_that_was_there() -> None:
    assert after((A, CABLE), (B, CABLE)) == (KnownPeer(B, "10.0.0.2:7420"),)


def test_of_a_node_that_moves_only_the_newest_addresses_are_kept() -> None:
    known = after(*((A, PeerAddress("10.0.0.2", port)) for port in range(1, 10)), (B, AIR))
    assert len([peer for peer in known if peer.node_id == A]) == MAX_KNOWN_OF_ONE
    assert known[1].address == "10.0.0.2:9"
    assert known[0].node_id == B


def test_only_so_many_are_kept_and_the_oldest_goes() -> None:
    known = after(*((NodeId(f"n{i}"), PeerAddress("10.0.0.2", i + 1)) for i in range(100)))
    assert len(known) == MAX_KNOWN
    assert known[0].node_id == "n99"


@pytest.mark.parametrize("address", ["", "10.0.0.2", "10.0.0.2:0", "a b:1", "[::1:7", "x:99999"])
def test_what_is_no_address_in_the_file_is_left_out(address: str) -> None:
    fine = KnownPeer(B, "[fe80::1%eth0]:7420")
    assert readable([KnownPeer(A, address), fine]) == (fine,)
    assert fine.parsed() == PeerAddress("fe80::1%eth0", 7420)


def report(*neighbours: tuple[str, str]) -> NodeReport:
    return NodeReport(
        node_id=A,
        name="A",
        memory_total_bytes=1,
        memory_free_bytes=1,
        memory_cap_bytes=None,
        memory_lent_bytes=0,
        devices=(),
        uptime_s=1.0,
        layers=None,
        model=None,
        neighbours=tuple(Neighbour(NodeId(i), address) for i, address in neighbours),
    )


def test_neighbours_of_a_node_are_worth_a_try() -> None:
    told = report(("b", "10.0.0.3:7420"), ("c", "nonsense"))
    assert hints(told, CABLE) == [("b", AIR)]


@pytest.mark.parametrize("loopback", ["127.0.0.5:7420", "[::1]:7420", "localhost:7420"])
def test_a_loopback_address_leads_to_another_node_only_on_the_same_pc(loopback: str) -> None:
    told = report(("b", loopback))
    assert hints(told, CABLE) == []
    ((node_id, address),) = hints(told, PeerAddress("127.0.0.1", 9))
    assert (node_id, str(address)) == ("b", loopback)


def test_only_so_many_hints_are_taken() -> None:
    told = report(*((f"n{i}", f"10.0.1.1:{i + 1}") for i in range(60)))
    assert len(hints(told, CABLE)) == MAX_HINTS

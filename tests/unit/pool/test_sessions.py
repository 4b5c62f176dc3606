"""Which of several sessions with one node is used, and what is known by them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from engine.domain import NodeId
from engine.errors import PeerUnreachableError
from engine.messages.codec import decode
from engine.messages.control import NodeLeaves
from engine.pool.heartbeat import LEASE_S
from engine.pool.membership import SILENT_AFTER_S
from engine.pool.peer_address import PeerAddress
from engine.pool.sessions import MAX_SESSIONS, SEND_WITHIN_S, Sessions, remote_of

if TYPE_CHECKING:
    from collections.abc import Coroutine

A, B = NodeId("a"), NodeId("b")
MESSAGE = NodeLeaves(incarnation=7)


class Wire:
    """Stands for a connection: an address, a round trip, and what was sent over it."""

    def __init__(self, address: str, node_id: NodeId = A, trip_s: float | None = None) -> None:
        self.address = address
        self.peer = SimpleNamespace(node_id=node_id)
        self.round_trip_s = trip_s
        self.sent: list[object] = []
        self.is_ended = self.is_stuck = self.is_aborted = False
        self.num_measured = 0

    async def send(self, frame: bytes) -> None:
        if self.is_ended:
            raise PeerUnreachableError("It is gone.")
        if self.is_stuck:
            await asyncio.Event().wait()
        self.sent.append(decode(frame))

    def abort(self) -> None:
        self.is_aborted = True

    def measure_round_trip(self) -> None:
        self.num_measured += 1


def later(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the loop's clock be ahead."""
    loop = asyncio.get_running_loop()
    now_s = loop.time() + seconds
    monkeypatch.setattr(loop, "time", lambda: now_s)


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(coroutine, 5))


def opened(*wires: Wire) -> Sessions:
    sessions = Sessions()
    for wire in wires:
        assert sessions.add(wire)
    return sessions


@pytest.mark.parametrize(
    ("address", "host"),
    [("wss://10.0.0.2:7", "10.0.0.2"), ("10.0.0.2:7", "10.0.0.2"), ("wss://[::1]:7", "::1"),
     ("[fe80::1%eth0]:7", "fe80::1%eth0"), ("wss://kitchen:7", "kitchen")],
)  # fmt: skip
def test_the_other_end_of_a_connection(address: str, host: str) -> None:
    assert remote_of(Wire(address)) == PeerAddress(host, 7)


def test_what_was_dialled_is_where_it_listens_and_what_came_in_is_not_until_it_says() -> None:
    async def test() -> None:
        dialled, accepted = Wire("wss://10.0.0.2:7420"), Wire("10.0.0.3:50123", B)
        sessions = opened(dialled, accepted)
        assert sessions.all_ways() == {A: (PeerAddress("10.0.0.2", 7420),), B: ()}
        sessions.heard(accepted, port=7421)
        sessions.heard(accepted)  # says nothing of it
        assert sessions.ways(B) == (PeerAddress("10.0.0.3", 7421),)
        assert sessions.way_of(accepted) == PeerAddress("10.0.0.3", 7421)
        assert sessions.remove(accepted)
        assert not sessions.remove(accepted)
        assert sessions.node_ids == {A}
        assert sessions.way_of(accepted) is None

    run(test())


def test_a_connection_is_one_session_however_often_it_is_added() -> None:
    async def test() -> None:
        wire = Wire("wss://10.0.0.2:7420")
        sessions = opened(wire)
        assert not sessions.add(wire)
        sessions.remove(wire)
        assert sessions.node_ids == frozenset()

    run(test())


def test_the_oldest_is_used_while_it_is_no_worse() -> None:
    async def test() -> None:
        old, new = Wire("wss://10.0.0.2:1", trip_s=0.003), Wire("wss://10.0.0.3:1", trip_s=0.002)
        sessions = opened(old, new)
        assert await sessions.send_to(A, MESSAGE)
        assert (old.sent, new.sent) == ([MESSAGE], [])

    run(test())


def test_a_way_that_is_much_quicker_is_preferred() -> None:
    """K38: the cable, however late it was plugged in."""

    async def test() -> None:
        air, cable = Wire("wss://10.0.0.2:1", trip_s=0.020), Wire("wss://10.0.0.3:1", trip_s=0.001)
        sessions = opened(air, cable)
        assert sessions.ways(A) == (PeerAddress("10.0.0.3", 1), PeerAddress("10.0.0.2", 1))
        assert sessions.round_trip_ms(A) == 1.0
        await sessions.send_all(MESSAGE)
        assert (air.sent, cable.sent) == ([], [MESSAGE])

    run(test())


def test_one_slow_answer_makes_no_way_slow() -> None:
    async def test() -> None:
        wire = Wire("wss://10.0.0.2:1", trip_s=0.001)
        sessions = opened(wire)
        sessions.measure()
        wire.round_trip_s = 0.5
        sessions.measure()
        assert sessions.round_trip_ms(A) == 1.0
        for _ in range(6):
            sessions.measure()
        assert sessions.round_trip_ms(A) == 500.0  # it is
        assert wire.num_measured == 8

    run(test())


def test_a_way_that_fell_silent_is_the_last_choice(monkeypatch) -> None:
    """K38: the first cable is cut, and no connection knows of it yet."""

    async def test() -> None:
        cut, other = Wire("wss://10.0.0.2:1", trip_s=0.001), Wire("wss://10.0.0.3:1", trip_s=0.02)
        sessions = opened(cut, other)
        later(SILENT_AFTER_S + 0.1, monkeypatch)
        sessions.heard(other)
        assert sessions.ways(A)[0] == PeerAddress("10.0.0.3", 1)
        later(LEASE_S, monkeypatch)
        sessions.heard(other)
        assert sessions.ways(A) == (PeerAddress("10.0.0.3", 1),)
        assert sessions.node_ids == {A}

    run(test())


def test_time_in_which_nothing_could_be_heard_counts_against_nobody(monkeypatch) -> None:
    async def test() -> None:
        sessions = opened(Wire("wss://10.0.0.2:1"))
        later(3600, monkeypatch)
        assert sessions.ways(A) == ()
        sessions.forgive(3600)
        assert sessions.ways(A) == (PeerAddress("10.0.0.2", 1),)

    run(test())


def test_what_one_session_does_not_take_the_next_does() -> None:
    async def test() -> None:
        ended, stuck, fine = (Wire(f"wss://10.0.0.{i}:1") for i in (2, 3, 4))
        ended.is_ended = stuck.is_stuck = True
        sessions = opened(ended, stuck, fine)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        assert await sessions.send_to(A, MESSAGE)
        assert loop.time() - began_s < SEND_WITHIN_S + 0.4
        assert fine.sent == [MESSAGE]
        assert stuck.is_aborted
        fine.is_ended = True
        assert not await opened(fine).send_to(A, MESSAGE)
        assert not await sessions.send_to(B, MESSAGE)

    run(test())


def test_a_node_that_reads_nothing_keeps_no_other_waiting() -> None:
    async def test() -> None:
        stuck, fine = Wire("wss://10.0.0.2:1", A), Wire("wss://10.0.0.3:1", B)
        stuck.is_stuck = True
        sessions = opened(stuck, fine)
        async with asyncio.TaskGroup() as group:
            group.create_task(sessions.send_all(MESSAGE))
            await asyncio.sleep(SEND_WITHIN_S / 5)
            assert fine.sent == [MESSAGE]

    run(test())


def test_a_heartbeat_goes_every_way() -> None:
    async def test() -> None:
        wires = [Wire("wss://10.0.0.2:1"), Wire("wss://10.0.0.3:1"), Wire("wss://10.0.0.4:1", B)]
        await opened(*wires).send_every_way(MESSAGE)
        assert [wire.sent for wire in wires] == [[MESSAGE]] * 3

    run(test())


def test_a_node_has_so_many_sessions_and_one_more_only_for_a_silent_one(monkeypatch) -> None:
    async def test() -> None:
        wires = [Wire(f"wss://10.0.0.2:{i + 1}") for i in range(MAX_SESSIONS)]
        sessions = opened(*wires)
        newest = Wire("wss://10.0.0.3:1")
        assert not sessions.add(newest)
        later(LEASE_S + 0.1, monkeypatch)
        for wire in wires[1:]:
            sessions.heard(wire)
        assert sessions.add(newest)
        assert wires[0].is_aborted
        assert not sessions.remove(wires[0])

    run(test())

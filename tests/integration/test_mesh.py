"""Nodes know where each other listen, send to each other, notice who went, and name who can't."""

from __future__ import annotations

import asyncio
import shutil
import socket
from itertools import permutations
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from engine.domain import LayerRange, NodeId
from engine.errors import IdentityCopiedError, first_of
from engine.messages.codec import encode_control
from engine.messages.control import NodeHeartbeat, NodeReported
from engine.messages.deployment import NodeProgress
from engine.messages.pool_control import ProgressReported
from engine.pool.actions import BecameCoordinator, Following
from engine.pool.peer_address import parse_peer_address
from engine.pool.sightings import Appeared
from tests.integration.meshes import Member, announced_as, members, until
from tests.paired import pair

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from pathlib import Path

    from engine.messages.pool_status import NodeStatus

pytestmark = pytest.mark.together

PROGRESS = ProgressReported(
    progress=NodeProgress(
        node_id=NodeId("a"), epoch=0, step="compile", done=1, total=2, unit="layers"
    )
)
AT_ONCE_S = 0.25  # a session's end is seen in milliseconds; the machine may be busy
MEET_S = 6.0  # a report comes every five seconds
AGREE_S = 10.0


def run(coroutine: Coroutine[Any, Any, None], within_s: float = 30.0) -> None:
    asyncio.run(asyncio.wait_for(coroutine, within_s))


def all_meet(*those: Member) -> bool:
    ids = {member.node_id for member in those}
    return all(member.mesh.reachable() == ids - {member.node_id} for member in those)


def test_nodes_that_know_one_address_find_all_without_multicast_and_know_where_each_listens(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        a, b, c = (Member(tmp_path / name) for name in "abc")
        async with members(a, b, c):
            await a.start()
            await b.start(a.address)
            await c.start(a.address)
            await until(lambda: all_meet(a, b, c), MEET_S)
            for member, other in permutations((a, b, c), 2):
                assert member.mesh.address_of(other.node_id) == f"wss://{other.address}"
                assert member.mesh.incarnation_of(other.node_id) == other.incarnation
                assert member.mesh.reports()[other.node_id].port == other.port
            assert a.mesh.address_of(NodeId("nobody")) is None
            assert a.mesh.incarnation_of(NodeId("nobody")) is None

    run(test())


def test_a_message_goes_to_one_or_to_all_once_and_it_is_said_whether_it_went(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        a, b = Member(tmp_path / "a"), Member(tmp_path / "b")
        async with members(a, b):
            await a.start()
            await b.start(a.address, f"127.0.0.2:{a.port}")  # two sessions, and one node
            await until(lambda: len(a.connections) == 2 and all_meet(a, b), MEET_S)
            assert await b.mesh.send_to(a.node_id, PROGRESS)
            await b.mesh.send_all(PROGRESS)
            assert not await b.mesh.send_to(NodeId("nobody"), PROGRESS)
            await until(lambda: len(a.progress) == 2, AT_ONCE_S)
            await asyncio.sleep(0.1)
            assert a.progress == [PROGRESS, PROGRESS]

    run(test())


def test_what_changes_is_told_and_the_office_in_order(tmp_path: Path) -> None:
    async def test() -> None:
        a, b = Member(tmp_path / "a"), Member(tmp_path / "b")
        async with members(a, b):
            await a.start()
            await until(lambda: a.offices, AGREE_S)
            assert isinstance(a.offices[0], BecameCoordinator)
            before = a.changes
            await b.start(a.address)
            await until(lambda: b.offices, AGREE_S)
            assert isinstance(b.offices[0], Following)
            assert b.offices[0].coordinator == a.node_id
            assert a.changes > before
            await until(lambda: b.mesh.reports()[a.node_id].neighbours, MEET_S)
            before = a.changes
            await b.mesh.report_now()
            await until(lambda: a.changes > before, AT_ONCE_S)
            (status,) = (node for node in b.status().nodes if node.node_id == a.node_id)
            assert status.round_trip_ms is not None
            assert 0 < status.memory_reserved_bytes < status.report.memory_total_bytes

    run(test())


def test_a_node_that_is_killed_is_gone_at_once_and_one_whose_connection_broke_is_back(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        a, b, c = (Member(tmp_path / name) for name in "abc")
        async with members(a, b, c):
            await a.start()
            await b.start(a.address)
            await c.start(a.address)
            await until(lambda: all_meet(a, b, c), MEET_S)
            before = a.changes
            await b.kill()
            assert await until(lambda: b.node_id not in a.mesh.reachable(), AT_ONCE_S) < AT_ONCE_S
            assert a.changes > before
            assert all_meet(a, c)
            for connection in tuple(a.connections):
                connection.abort()
            await until(lambda: not a.mesh.reachable(), AT_ONCE_S)
            assert await until(lambda: all_meet(a, c), 2.0) < 1.5

    run(test())


def test_a_node_that_left_is_not_dialled_again(tmp_path: Path) -> None:
    async def test() -> None:
        a, b = Member(tmp_path / "a"), Member(tmp_path / "b")
        async with members(a, b):
            await a.start()
            await b.start(a.address)
            await until(lambda: all_meet(a, b), MEET_S)
            await b.leave()
            await until(lambda: not a.mesh.reachable(), AT_ONCE_S)
            states = {node.node_id: node.state for node in a.status().nodes}
            assert states[b.node_id] == "gone"
            assert a.mesh.address_of(b.node_id) is None

    run(test())


def test_after_a_restart_a_node_listens_where_it_did_and_finds_those_it_knew(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        a, b = Member(tmp_path / "a"), Member(tmp_path / "b")
        async with members(a, b):
            await a.start()
            await b.start(a.address)
            await until(lambda: all_meet(a, b) and a.folder.known and b.folder.known, MEET_S)
        again_a, again_b = Member(tmp_path / "a"), Member(tmp_path / "b")
        async with members(again_a, again_b):
            await again_a.start()
            await again_b.start()  # told no address
            assert (again_a.port, again_b.port) == (a.port, b.port)
            await until(lambda: all_meet(again_a, again_b), MEET_S)

    run(test())


def test_one_node_on_two_networks_is_one_node_with_two_ways_and_outlives_one_of_them(
    tmp_path: Path,
) -> None:
    """K38."""

    async def test() -> None:
        a, b = Member(tmp_path / "a"), Member(tmp_path / "b")
        async with members(a, b):
            await a.start()
            ways = [f"127.0.0.2:{a.port}", f"127.0.0.3:{a.port}"]
            await b.start(*ways)
            await until(lambda: len(b.connections) == 2 and all_meet(a, b), MEET_S)
            await until(lambda: len(b.mesh.addresses_of(a.node_id)) == 2, MEET_S)
            await until(lambda: len(b.status().nodes[1].addresses) == 2, MEET_S)
            own, other = b.status().nodes
            assert (own.node_id, other.node_id) == (b.node_id, a.node_id)
            assert sorted(other.addresses) == ways
            first = b.mesh.address_of(a.node_id)
            (lost,) = (one for one in b.connections if one.address == first)
            lost.abort()
            assert a.node_id in b.mesh.reachable()
            await until(lambda: b.mesh.address_of(a.node_id) != first, AT_ONCE_S)
            assert a.node_id in b.mesh.reachable()
            assert b.mesh.incarnation_of(a.node_id) == a.incarnation

    run(test())


@pytest.mark.parametrize(
    ("hello", "theirs", "ours"),
    [({"protocol_version": 9}, "protocol version 9", "version 1"),
     ({"shard_format": 7}, "shard format is 7", "this PC's is 1")],
)  # fmt: skip
def test_a_node_of_another_version_is_named_with_both_and_let_alone(
    tmp_path: Path, hello: dict[str, int], theirs: str, ours: str
) -> None:
    async def test() -> None:
        a, b = Member(tmp_path / "a"), Member(tmp_path / "b", **hello)
        async with members(a, b):
            await b.start()
            await a.start(b.address)
            await until(lambda: any(theirs in note for note in a.status().notes), MEET_S)
            (note,) = (note for note in a.status().notes if theirs in note)
            assert ours in note
            assert a.mesh.reachable() == frozenset()

    run(test())


def test_a_node_that_announces_another_version_is_named_before_it_is_reached(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        a, absent = Member(tmp_path / "a"), Member(tmp_path / "b")
        async with members(a, absent):
            await a.start()
            said = announced_as(a, absent.node_id, "r", 1, protocol_version=3)
            a.network.tell(Appeared(said, ("127.0.0.1",)))
            named = (
                f"{absent.node_id[:6]} can't take part: its protocol version is 3, this PC's is 1."
            )
            await until(lambda: named in a.status().notes, MEET_S)

    run(test())


def test_an_announced_address_where_nobody_listens_is_no_firewall(tmp_path: Path) -> None:
    async def test() -> None:
        a, absent = Member(tmp_path / "a"), Member(tmp_path / "b")
        async with members(a, absent):
            await a.start()
            said = announced_as(a, absent.node_id, "r", 1)
            a.network.tell(Appeared(said, ("127.0.0.1",)))
            short = absent.node_id[:6]
            named = f"{short} was announced at 127.0.0.1:1, and Daisy does not run there now."
            await until(lambda: named in a.status().notes, MEET_S)

    run(test())


def test_an_announced_address_that_does_not_answer_may_be_behind_a_firewall(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        a, absent = Member(tmp_path / "a"), Member(tmp_path / "b")
        with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, and says nothing
            async with members(a, absent):
                await a.start()
                port = silent.getsockname()[1]
                said = announced_as(a, absent.node_id, "r", port)
                a.network.tell(Appeared(said, ("127.0.0.1",)))
                told = f"{absent.node_id[:6]} is announced at 127.0.0.1:{port} and can't be reached"
                await until(
                    lambda: any(told in n and "firewall" in n for n in a.status().notes), 12.0
                )

    run(test())


def test_a_pc_that_is_not_there_any_more_is_named_with_what_became_of_it(
    tmp_path: Path,
) -> None:
    """Nothing it held is shown: its last report is of a process that has ended."""

    async def test() -> None:
        a, b, c = (Member(tmp_path / name) for name in "abc")
        async with members(a, b, c):
            await a.start()
            for one in (b, c):
                await one.start(a.address)
                one.facts.memory_lent_bytes, one.facts.layers = 1 << 20, LayerRange(0, 2)
                one.facts.model, one.facts.epoch = "tiny", 7
                await one.mesh.report_now()

            def row(one: Member) -> NodeStatus | None:
                rows = {node.node_id: node for node in a.status().nodes}
                return rows.get(one.node_id)

            def has_told(one: Member) -> bool:
                node = row(one)
                return node is not None and node.report is not None and node.report.epoch == 7

            await until(lambda: has_told(b) and has_told(c), MEET_S)
            for one in (b, c):
                said = announced_as(a, one.node_id, one.node_id, one.port)
                a.network.tell(Appeared(said, ("127.0.0.1",)))
            await b.leave()
            await c.kill()
            gone = "Daisy does not run there any more"
            await until(lambda: row(c).state == "offline" and row(c).notes == (gone,), MEET_S)
            assert (row(b).state, row(b).notes) == ("gone", ("it was ended",))
            for one in (b, c):
                report = row(one).report
                assert report.name == f"PC {one.node_id[:4]}"
                assert (report.layers, report.memory_lent_bytes, report.model) == (None, 0, None)
            assert a.status().notes == ("There is no network: this PC works alone.",)

    run(test())


@pytest.mark.parametrize("what", ["heartbeat", "report"])
def test_s07_a_member_that_speaks_in_anothers_name_is_cut_and_nothing_of_it_counts(
    tmp_path: Path, what: str
) -> None:
    async def test() -> None:
        a, b, absent = (Member(tmp_path / name) for name in ("a", "b", "absent"))
        async with members(a, b, absent):
            await a.start()
            await b.start(a.address)
            await until(lambda: b.node_id in a.mesh.reachable(), MEET_S)
            connection = next(one for one in b.connections if one.peer.node_id == a.node_id)
            if what == "heartbeat":
                own = b.mesh.participant.heartbeat()
                forged = replace(own, node_id=absent.node_id, incarnation=7)
                message = NodeHeartbeat(heartbeat=forged)
            else:
                forged_report = replace(b.mesh.own_report(), node_id=absent.node_id)
                message = NodeReported(report=forged_report)
            await connection.send(encode_control(message))
            await until(lambda: connection not in b.connections, MEET_S)
            assert absent.node_id not in a.mesh.reachable()
            assert absent.node_id not in a.mesh.reports()
            assert a.failure is None

    run(test())


def test_of_two_with_one_identity_one_takes_another_and_says_so(tmp_path: Path) -> None:
    """K39: a data folder was copied to a second PC, and both run."""

    async def test() -> None:
        Member(tmp_path / "a").folder.close()
        shutil.copytree(tmp_path / "a", tmp_path / "copy")
        older = Member(tmp_path / "a", incarnation=5)
        newer = Member(tmp_path / "copy", incarnation=6)
        assert older.node_id == newer.node_id
        async with members(older, newer):
            await older.start()
            await newer.start()
            at = parse_peer_address(newer.address)
            said = announced_as(older, newer.node_id, "other", at.port)
            older.network.tell(Appeared(said, (at.host,)))
            await until(lambda: newer.failure is not None, MEET_S)
            assert isinstance(newer.failure, BaseExceptionGroup)
            error = first_of(newer.failure)
            assert isinstance(error, IdentityCopiedError)
            assert str(tmp_path / "copy") in error.what
            assert older.failure is None
            newer.folder.close()
            renewed = Member(tmp_path / "copy")
            assert renewed.node_id != older.node_id
            assert len(renewed.folder.roster.members) == 1
            renewed.folder.close()

    run(test())


def test_a_copy_of_a_paired_pc_is_told_to_pair_again(tmp_path: Path) -> None:
    async def test() -> None:
        Member(tmp_path / "a").folder.close()
        other = Member(tmp_path / "b")
        first = Member(tmp_path / "a")
        pair([other.folder, first.folder])
        first.folder.close()
        shutil.copytree(tmp_path / "a", tmp_path / "copy")
        older = Member(tmp_path / "a", incarnation=5)
        newer = Member(tmp_path / "copy", incarnation=6)
        async with members(other, older):
            newer.group = older.group
            await older.start()
            await newer.start(older.address)
            await until(lambda: newer.failure is not None, MEET_S)
            error = first_of(newer.failure)
            assert isinstance(error, IdentityCopiedError)
            assert "pair it again, with daisy join" in error.what
            newer.folder.close()

    run(test())


def test_an_address_that_is_this_node_itself_is_no_copy(tmp_path: Path) -> None:
    async def test() -> None:
        a = Member(tmp_path / "a")
        async with members(a):
            await a.start()
            at = parse_peer_address(a.address)
            a.network.tell(Appeared(announced_as(a, a.node_id, "x", at.port), (at.host,)))
            await until(lambda: a.connections, MEET_S)
            await asyncio.sleep(0.5)
            assert a.failure is None
            assert a.mesh.reachable() == frozenset()
            assert len(a.status().nodes) == 1

    run(test())

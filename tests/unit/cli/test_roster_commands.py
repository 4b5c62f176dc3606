"""``daisy invite``, ``join``, ``pcs``, ``rename``, ``remove``, with a node that does as told."""

from __future__ import annotations

import asyncio
import json

import pytest

from engine.cli import roster_commands
from engine.cli.arguments import build_parser
from engine.cli.output import Output
from engine.errors import PairingError, PeerUnreachableError, RemoteProtocolError, UsageError
from engine.messages.control import ErrorReport
from engine.messages.roster_control import (
    Invite,
    Invited,
    Joined,
    JoinPool,
    ListPcs,
    ListPools,
    PcLine,
    PcsListed,
    PoolNearby,
    PoolsListed,
    RemovePc,
    RenamePc,
)
from tests.unit.cli.fake_node import running

POOL = "aaaabbbbccccddddeeee"
KITCHEN = PcLine(
    node_id="avcxgxositsxilzixcxl", name="Kitchen", role="owner", is_own=True, is_online=True
)
STUDY = PcLine(
    node_id="246rl6fzhui3vsn6z2qb", name="Study", role="member", is_own=False, is_online=False
)
TWIN = PcLine(
    node_id="246xxxfzhui3vsn6z2qb", name="Study", role="owner", is_own=False, is_online=True
)
LINK = "daisy://join?pool=aaaabbbbccccddddeeee"
ANSWERS = {
    Invite: Invited(code="123456", link=None, within_s=120.0, addresses=("10.0.0.2:7420",)),
    ListPools: PoolsListed(pools=(PoolNearby(name="Kit\x1bchen", address="10.0.0.2:7420"),)),
    JoinPool: Joined(pool_id=POOL, host_name="Kitchen", num_pcs=2),
    ListPcs: PcsListed(pool_id=POOL, pcs=(KITCHEN, STUDY)),
    RenamePc: PcsListed(pool_id=POOL, pcs=(KITCHEN,)),
    RemovePc: PcsListed(pool_id=POOL, pcs=(KITCHEN,)),
}


def run(data, *words, answers=ANSWERS, as_json=False):
    """Run a command; return what the node heard."""

    async def script(message, send):
        await send(answers[type(message)])

    async def work():
        given = build_parser().parse_args([*words, "--data", str(data)])
        command = getattr(roster_commands, f"{words[0]}_command")
        async with running(data, script) as node:
            await command(given, Output(as_json=as_json))
            return node.heard

    return asyncio.run(work())


def test_a_code_is_the_result_and_the_rest_is_said(tmp_path, capfd):
    assert run(tmp_path, "invite") == [Invite()]
    out, err = capfd.readouterr()
    assert out == "123 456\n"
    assert "within 120 s: daisy join" in err
    assert "--at 10.0.0.2:7420" in err


def test_a_link_is_the_result_alone_so_that_it_can_be_piped(tmp_path, capfd):
    invited = Invited(code=None, link=LINK, within_s=86400.0, addresses=("10.0.0.2:7420",))
    heard = run(tmp_path, "invite", "--link", "--member", answers={Invite: invited})
    assert heard == [Invite(is_link=True, role="member")]
    out, err = capfd.readouterr()
    assert out == f"{LINK}\n"
    assert "treat it as a password" in err


def test_a_code_and_a_link_are_told_apart_by_how_they_begin(tmp_path):
    assert run(tmp_path, "join", "123 456") == [JoinPool(code="123 456")]
    assert run(tmp_path, "join", "123", "456") == [JoinPool(code="123 456")]  # as it is shown
    assert run(tmp_path, "join", f" {LINK} ") == [JoinPool(link=LINK)]
    at = run(tmp_path, "join", "123456", "--at", "10.0.0.2:7420")
    assert at == [JoinPool(code="123456", address="10.0.0.2:7420")]
    with pytest.raises(UsageError, match="says itself"):
        run(tmp_path, "join", LINK, "--at", "10.0.0.2:7420")


def test_without_a_code_the_pcs_nearby_are_shown_and_one_is_asked_for(tmp_path, capfd, monkeypatch):
    class Typing:
        async def read(self):
            return "123 456"

    monkeypatch.setattr(roster_commands, "LineReader", Typing)
    assert run(tmp_path, "join") == [ListPools(), JoinPool(code="123 456")]
    err = capfd.readouterr().err
    assert "Kit chen  10.0.0.2:7420" in err
    assert "\x1b" not in err
    assert "Joined the pool of Kitchen: 2 PCs." in err


def test_nothing_typed_is_no_code(tmp_path, monkeypatch):
    class Nothing:
        async def read(self):
            return ""

    monkeypatch.setattr(roster_commands, "LineReader", Nothing)
    with pytest.raises(UsageError, match="no code"):
        run(tmp_path, "join")


def test_the_pcs_are_a_table_for_people_and_an_event_for_programs(tmp_path, capfd):
    run(tmp_path, "pcs")
    lines = capfd.readouterr().out.splitlines()
    assert lines[0].split() == ["avcxgx", "Kitchen", "owner", "this", "PC"]
    assert lines[1].split() == ["246rl6", "Study", "member", "offline"]
    run(tmp_path, "pcs", "--json", as_json=True)
    told = json.loads(capfd.readouterr().out)
    assert [pc["name"] for pc in told["pcs"]] == ["Kitchen", "Study"]


def test_a_pc_is_meant_by_its_name_or_how_its_id_begins(tmp_path):
    for word in ("Study", "246rl6"):
        heard = run(tmp_path, "remove", word)
        assert heard == [ListPcs(), RemovePc(node_id=STUDY.node_id)]
    heard = run(tmp_path, "rename", "Study", "Attic")
    assert heard[1] == RenamePc(node_id=STUDY.node_id, name="Attic")


@pytest.mark.parametrize(
    ("word", "says"), [("Attic", "no PC Attic"), ("Study", "2 PCs are called")]
)
def test_a_pc_that_is_not_clear_is_not_removed(tmp_path, word, says):
    listed = {ListPcs: PcsListed(pool_id=POOL, pcs=(KITCHEN, STUDY, TWIN))}
    with pytest.raises(UsageError, match=says):
        run(tmp_path, "remove", word, answers=listed)


def test_what_the_node_refuses_is_raised_as_it_says(tmp_path):
    refused = ErrorReport(code="pairing", what="The code is wrong.", advice="Again.")
    with pytest.raises(PairingError, match="The code is wrong"):
        run(tmp_path, "join", "123456", answers={JoinPool: refused})
    with pytest.raises(RemoteProtocolError, match="answered JoinPool with PoolsListed"):
        run(tmp_path, "join", "123456", answers={JoinPool: PoolsListed(pools=())})


def test_without_a_node_there_is_nothing_to_join(tmp_path):
    given = build_parser().parse_args(["pcs", "--data", str(tmp_path)])
    with pytest.raises(PeerUnreachableError, match="No node"):
        asyncio.run(roster_commands.pcs_command(given, Output(as_json=False)))

"""PCs that pair, talk and part, each on a host of its own; S-numbers are the threats' tests."""

from __future__ import annotations

import getpass
import os
import time
from itertools import permutations

import pytest

from engine.pool.sentences import sentence
from tests.integration.namespaces import eventually, local_network
from tests.integration.packet_capture import capturing, tls_records
from tests.integration.pool_hosts import HostPool, PoolNode, start_pool

pytestmark = [pytest.mark.processes, pytest.mark.embedded, pytest.mark.together]

NAMES = ("Quokka Kitchen", "Wombat Study", "Numbat Laptop")
CANARY = "xylophonic-marmalade-48151623"
QUESTION = f"Repeat this word: {CANARY}"
OPTIONS = ("--max-tokens", 24, "--ignore-eos")
CUT_WITHIN_S = 1.0
ANNOUNCED_WITHIN_S = 11.0  # every ten seconds
APPLICATION_DATA = 23


@pytest.fixture(scope="module")
def network():
    with local_network(3) as made:
        yield made


def connections(node: PoolNode, to: PoolNode) -> int:
    """How many open TCP connections there are between two PCs, as the first one's system says."""
    told = node.host.run(["ss", "-Htn", "state", "established"])
    return sum(f"{to.host.address}:" in line for line in told.splitlines())


def one(lines, event):
    (found,) = [line for line in lines if line["event"] == event]
    return found


def refusal(lines):
    return one(lines, "error")


def alone(network, folder):
    """Nodes that were never paired."""
    nodes = [
        PoolNode(host, folder / f"pc-{i}", NAMES[i]).start() for i, host in enumerate(network.hosts)
    ]
    return HostPool(nodes)


def test_s03_s09_s28_two_pcs_pair_by_a_code_and_nothing_of_what_is_asked_is_on_the_wire(
    network, tmp_path, embedded, report_figure
):
    pool = alone(network, tmp_path)
    anna, ben, stranger = pool.nodes
    try:
        # S5: nobody shows a code, so nobody can be joined, whatever is typed.
        assert refusal(ben.daisy("join", "123456"))["code"] == "usage"
        by_address = ben.daisy("join", "123456", "--at", f"{anna.host.address}:{anna.port}")
        assert refusal(by_address)["code"] == "pairing_closed"
        code = one(anna.daisy("invite"), "invited")["code"]
        shown_s = time.monotonic()
        wrong = f"{(int(code) + 1) % 10**6:06}"
        assert refusal(ben.daisy("join", wrong))["code"] == "pairing_wrong_code"
        assert one(ben.daisy("join", code), "joined")["host_name"] == NAMES[0]
        both = HostPool([anna, ben])
        both.agreed()
        report_figure(
            "code shown to both agreed, commands included", time.monotonic() - shown_s, "s"
        )
        assert {pc["name"] for pc in one(ben.daisy("pcs"), "pcs")["pcs"]} == set(NAMES[:2])
        both.load(anna, embedded.folder, "--context", 512, "--users", 1, "--exact")
        with capturing(network, tmp_path / "packets") as captured:
            question = both.ask(ben, QUESTION, *OPTIONS)
            question.finish()
            # S2, S7: a PC that isn't paired reaches nothing, though it knows where everybody is.
            told = stranger.daisy("status")
            assert len(one(told, "status")["nodes"]) == 1
            time.sleep(ANNOUNCED_WITHIN_S)  # so that announcements are among what is captured
        first_s = next(
            at_s
            for at_s, event in zip(question.times, question.events, strict=False)
            if event["event"] == "text"
        )
        report_figure("code shown to the first token where it was typed", first_s - shown_s, "s")
        text = "".join(event["text"] for event in question.of("text"))
        assert_secret(captured, text)
        for node in pool.nodes:
            assert CANARY not in node.complaints()
            for log in node.folder.rglob("*.log"):
                assert CANARY not in log.read_text(errors="replace")
        for node in (anna, ben):
            assert node.end() == 0
        for node in (anna, ben):
            node.start()
        both.agreed()
    finally:
        pool.close()


def assert_secret(captured, text):
    """Neither prompt nor answer nor names were on the wire, only TLS 1.3."""
    assert len(text) > 20
    pieces = [CANARY, "Repeat this word", text[:12], text[-12:], *NAMES]
    for piece in pieces:
        for encoding in ("utf-8", "utf-16-le"):
            assert piece.encode(encoding) not in captured.raw, piece
    for name in {os.uname().nodename, getpass.getuser()}:
        assert name.encode() not in captured.mdns.lower(), name
    assert captured.mdns
    streams = [stream for stream in captured.streams.values() if stream]
    assert streams, "no connection began meanwhile"
    kinds = [kind for stream in streams for kind, _ in tls_records(stream)]
    assert APPLICATION_DATA in kinds


def test_s25_a_removed_pc_is_cut_everywhere_and_comes_back_only_by_a_new_code(
    network, tmp_path, report_figure
):
    pool = start_pool(network.hosts, tmp_path, lambda _: ())
    anna, ben, carl = pool.nodes
    try:
        pool.agreed()
        for one_pc, other in permutations(pool.nodes, 2):
            eventually(lambda a=one_pc, b=other: connections(a, b), 5.0)
        cut_s: list[float] = []
        removing = anna.host.start([*_daisy("remove", carl.name, "--data", anna.folder)], stdout=-1)
        eventually(lambda: not connections(anna, carl), 30.0, 0.02)
        began_s = time.monotonic()
        eventually(lambda: not connections(ben, carl), CUT_WITHIN_S + 1.0, 0.02)
        cut_s.append(time.monotonic() - began_s)
        assert removing.wait(30) == 0
        report_figure("from the first connection cut to the last", cut_s[0], "s")
        assert cut_s[0] < CUT_WITHIN_S
        left = one(ben.daisy("pcs"), "pcs")["pcs"]
        assert {pc["node_id"] for pc in left} == {anna.node_id, ben.node_id}
        time.sleep(3.0)  # it dials again meanwhile, and announces itself
        assert not connections(anna, carl)
        assert not connections(ben, carl)
        notes = carl.status()["notes"]
        assert any("was removed from the pool" in note for note in notes), notes
        assert carl.end() == 0
        carl.start()  # it knows nobody's announcements now, only where they were

        def hears_of_it():
            """It says that it was removed."""
            return sentence("unknown_there") in carl.status()["notes"]

        eventually(hears_of_it, 40.0, 0.5)
        code = one(anna.daisy("invite"), "invited")["code"]
        assert refusal(carl.daisy("join", code))["code"] == "in_other_pool"  # leave first
        before = carl.node_id
        carl.daisy("leave")
        one(eventually(lambda: joined(carl, code), 30.0, 1.0), "joined")
        carl.node_id = one_own(carl)["node_id"]
        assert carl.node_id != before
        pool.agreed()
    finally:
        pool.close()


def joined(node, code):
    """It has joined."""
    lines = node.daisy("join", code)
    return lines if lines[-1]["event"] == "joined" else None


def one_own(node):
    pcs = one(eventually(lambda: told(node), 20.0, 0.5), "pcs")["pcs"]
    (own,) = [pc for pc in pcs if pc["is_own"]]
    return own


def told(node):
    """It answers."""
    lines = node.daisy("pcs")
    return lines if lines[-1]["event"] == "pcs" else None


def _daisy(*words):
    import sys  # noqa: PLC0415

    return [sys.executable, "-m", "engine.cli.main", *map(str, words)]


def test_s03_a_pc_without_a_screen_joins_by_a_link_once(network, tmp_path):
    pool = alone(network, tmp_path)
    anna, ben, carl = pool.nodes
    try:
        link = one(anna.daisy("invite", "--link", "--member"), "invited")["link"]
        assert one(ben.daisy("join", link), "joined")["num_pcs"] == 2
        assert refusal(carl.daisy("join", link))["code"] == "pairing_closed"
        pcs = {pc["name"]: pc for pc in one(eventually(lambda: told(ben), 20, 0.5), "pcs")["pcs"]}
        assert pcs[NAMES[1]]["role"] == "member"
        assert refusal(ben.daisy("invite"))["code"] == "not_trusted"
        assert refusal(ben.daisy("remove", NAMES[0]))["code"] == "not_trusted"
        renamed = one(anna.daisy("rename", NAMES[1], "Potoroo"), "pcs")["pcs"]
        assert {pc["name"] for pc in renamed} == {NAMES[0], "Potoroo"}

        def knows_its_name():
            """The name has arrived."""
            return one_own(ben)["name"] == "Potoroo"

        eventually(knows_its_name, 20.0, 0.5)
    finally:
        pool.close()

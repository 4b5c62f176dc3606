"""An answer goes on, token for token, whichever PC is lost in the middle of it."""

from __future__ import annotations

import asyncio
import time

import pytest

from engine.pool.stage_memory import Workload
from engine.preparation import describe_order
from engine.splitter.process import describe_in_process
from tests.integration.namespaces import eventually, local_network
from tests.integration.network_faults import pull_cable, put_cable_back
from tests.integration.pool_hosts import HostPool, PoolNode, cap_for_three, is_long, start_pool

pytestmark = [pytest.mark.processes, pytest.mark.embedded, pytest.mark.together]

CONTEXT = 512
WORKLOAD = Workload(context_tokens=CONTEXT, max_sequences=1, kv_precision="f32")
TOKENS = 120
KILLED_AFTER = 20  # tokens
LONGEST_PAUSE_S = 30.0  # a second cut, four loads and a prefill, on a busy machine
QUESTION = "Tell me a long story about a lighthouse keeper."
OPTIONS = ("--max-tokens", TOKENS, "--ignore-eos")


@pytest.fixture(scope="module")
def pool(tmp_path_factory, embedded):
    described = asyncio.run(describe_in_process(describe_order(embedded), lambda _: None))
    cap = str(cap_for_three(described.model, WORKLOAD))
    with local_network(4) as network:
        started = start_pool(
            network.hosts, tmp_path_factory.mktemp("pool"), lambda _: ("--memory", cap)
        )
        try:
            started.agreed()
            started.load(
                started.nodes[0],
                embedded.folder,
                *("--context", CONTEXT, "--users", 1, "--exact"),
            )
            yield started
        finally:
            started.close()


@pytest.fixture(scope="module")
def undisturbed(pool: HostPool) -> list[int]:
    ids = pool.ask(pool.nodes[1], QUESTION, *OPTIONS).finish()
    assert len(ids) == TOKENS
    return ids


# Short: each takes a third of a minute on two cores.
ROLES = ["head", "middle", "last", "coordinator"] if is_long() else ["head", "middle"]


def test_the_answer_goes_on_without_a_pc_whose_owner_pauses_it(
    pool: HostPool, undisturbed, report_figure
):
    """The owner's word is final: the PC gives its memory back, and takes no layers until lent."""
    pool.agreed()
    paused = pool.node(pool.copied()["stages"][1]["node_id"])
    question = pool.ask(pool.others(paused)[0], QUESTION, *OPTIONS)
    eventually(lambda: question.has_tokens(KILLED_AFTER), 30)
    paused_s = time.monotonic()
    (told,) = [e for e in paused.daisy("lend", "--pause", 30) if e["event"] == "lending"]
    assert not told["is_lending"]
    assert question.finish() == undisturbed
    report_figure("paused by its owner, longest pause", question.longest_pause_s(paused_s), "s")
    pool.ready()
    assert paused.node_id not in {stage["node_id"] for stage in pool.copied()["stages"]}

    def has_given_back():
        own = next(n for n in paused.status()["nodes"] if n["is_asked"])["report"]
        return own["memory_lent_bytes"] == 0 and not own["is_lending"]

    eventually(has_given_back, 30)
    assert paused.end() == 0
    paused.start()  # a restart lifts no pause
    pool.agreed()
    eventually(has_given_back, 30)
    paused.daisy("lend", "--pause", 0)
    eventually(lambda: not has_given_back(), 30)


@pytest.mark.parametrize("role", ROLES)
def test_the_answer_goes_on_when_a_pc_is_lost(pool: HostPool, undisturbed, role, report_figure):
    coordinator = pool.agreed()
    record = pool.copied()
    assert len(record["stages"]) == 3
    chain = [pool.node(stage["node_id"]) for stage in record["stages"]]
    named = dict(zip(("head", "middle", "last"), chain, strict=True))
    doomed = {**named, "coordinator": pool.node(coordinator)}[role]
    asked = pool.others(doomed)[0]
    question = pool.ask(asked, QUESTION, *OPTIONS)
    eventually(lambda: question.has_tokens(KILLED_AFTER), 30)
    killed_s = doomed.kill()
    ids = question.finish()
    assert ids == undisturbed
    pause_s = question.longest_pause_s(killed_s)
    report_figure(f"{role} lost, longest pause", pause_s, "s")
    is_hit = doomed in chain
    assert bool(question.of("interrupted")) == is_hit
    for told in question.of("interrupted"):
        assert doomed.name in told["what"], "people know the PC by its name"
        assert "ws://" not in told["what"]
    assert pause_s < LONGEST_PAUSE_S
    doomed.start()
    pool.agreed()
    pool.ready()
    assert all("Traceback" not in node.complaints() for node in pool.nodes)


@pytest.mark.skipif(not is_long(), reason="a third of a minute; run with DAISY_LONG=1")
def test_k38_the_answer_goes_on_over_the_other_cable(pool: HostPool, undisturbed, report_figure):
    pool.agreed()
    record = pool.copied()
    two_cables = pool.node(record["stages"][1]["node_id"])
    asked = pool.others(two_cables)[0]
    host = two_cables.host
    host.plug_in("eth1", f"10.83.9.{host.number}")
    try:
        eventually(lambda: len(_ways(asked, two_cables)) == 2, 30, 0.3)
        ids = {node["node_id"] for node in asked.status()["nodes"]}
        question = pool.ask(asked, QUESTION, *OPTIONS)
        eventually(lambda: question.has_tokens(KILLED_AFTER), 30)
        pull_cable(host)
        cut_s = time.monotonic()
        assert question.finish() == undisturbed
        report_figure("first cable cut, longest pause", question.longest_pause_s(cut_s), "s")
        assert {node["node_id"] for node in asked.status()["nodes"]} == ids, "no new PC"
    finally:
        put_cable_back(host)
        host.remove("eth1")
    pool.agreed(40)
    pool.ready()


def _ways(by: PoolNode, other: PoolNode) -> list[str]:
    seen = next(n for n in by.status()["nodes"] if n["node_id"] == other.node_id)
    return seen["addresses"]

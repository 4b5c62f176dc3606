"""An answer goes on, token for token, when a stage is killed while guesses are under way.

The heads guess from recordings and are wrong now and then; five guesses stand behind every token
they send, so that no frame is ever under way without.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

import pytest

from engine.pool.stage_memory import Workload
from engine.preparation import describe_order
from engine.splitter.process import describe_in_process
from tests.conftest import CHECKOUT
from tests.integration.namespaces import eventually, local_network
from tests.integration.pool_hosts import HostPool, cap_for_three, is_long, start_pool

pytestmark = [
    *(pytest.mark.processes, pytest.mark.embedded, pytest.mark.together),
    pytest.mark.timeout(600),
]

WORKLOAD = Workload(context_tokens=512, max_sequences=1, kv_precision="f32")
REPRODUCTION = CHECKOUT / "reproduction"
TOKENS = 100
KILLED_AFTER = 20  # tokens
GUESSES = "DAISY_MEASURED_GUESSES"  # names the file, as reproduction/measured_node.py reads it
AT_REST_S = 0.5  # without a token: what is under way waits for the stage that was stopped
ROLES = ["head", "middle", "last"] if is_long() else ["middle"]
LOAD = ("--context", 512, "--users", 1, "--exact")


@pytest.fixture(scope="module")
def recorded():
    """A prompt with the unsplit model's own greedy answer."""
    held_out = json.loads((REPRODUCTION / "held_out" / "answers.json").read_text(encoding="utf-8"))
    entry = held_out[0]
    assert len(entry["answer"]) > TOKENS
    return entry


def guesses_of(recorded):
    """Return what the heads guess, as ``measured_guesses`` keeps it."""
    return {
        "prompts": [recorded["ids"]],
        "answers": [recorded["answer"]],
        "acceptance": 0.7,
        "num_drafts": 5,
        "vocab_size": 49152,
    }


@pytest.fixture(scope="module")
def pool(tmp_path_factory, embedded, recorded):
    folder = tmp_path_factory.mktemp("pool")
    file = folder / "guesses.json"
    file.write_text(json.dumps(guesses_of(recorded)), encoding="utf-8")
    program = (
        *("env", f"{GUESSES}={file}", f"PYTHONPATH={CHECKOUT}:{REPRODUCTION}"),
        *(sys.executable, "-m", "tests.integration.guessing_daisy"),
    )
    described = asyncio.run(describe_in_process(describe_order(embedded), lambda _: None))
    cap = str(cap_for_three(described.model, WORKLOAD))
    with local_network(4) as network:
        started = start_pool(network.hosts, folder, lambda _: ("--memory", cap), program)
        try:
            started.agreed()
            started.load(started.nodes[0], embedded.folder, *LOAD)
            yield started
        finally:
            started.close()


def asked(pool: HostPool, node, recorded):
    return pool.ask(node, recorded["prompt"], "--max-tokens", TOKENS, "--ignore-eos")


def wait_at_rest(question):
    """Wait until no token has come for a while."""
    while time.monotonic() - question.times[-1] < AT_REST_S:
        time.sleep(AT_REST_S / 5)


@pytest.mark.parametrize("role", ROLES)
def test_the_answer_goes_on_when_a_stage_is_killed_with_guesses_under_way(
    pool: HostPool, recorded, role, report_figure
):
    pool.agreed()
    stages = pool.copied()["stages"]
    assert len(stages) == 3
    chain = [pool.node(stage["node_id"]) for stage in stages]
    doomed = dict(zip(("head", "middle", "last"), chain, strict=True))[role]
    question = asked(pool, chain[-1], recorded)
    eventually(lambda: question.has_tokens(KILLED_AFTER), 60)
    (stage,) = doomed.processes()[1:]
    stage.suspend()  # frames pile up in front of it: the next ones stand on guesses alone
    wait_at_rest(question)
    num_before = len(question.ids)
    assert num_before < TOKENS
    assert any(len(delta["token_ids"]) > 1 for delta in question.of("text")), "a guess held"
    stage.kill()
    killed_s = time.monotonic()
    assert question.finish() == recorded["answer"][:TOKENS]
    report_figure(f"{role}'s stage killed, pause", question.longest_pause_s(killed_s), "s")
    assert question.of("interrupted")
    (end,) = question.of("finished")
    assert end["drafted_tokens"] > end["accepted_tokens"] > 0, "the new head guesses as well"
    assert end["completion_tokens"] == TOKENS > num_before
    pool.ready()


def test_a_model_loaded_without_speculation_is_guessed_for_nobody(
    pool: HostPool, embedded, recorded
):
    """The same tokens, from heads that have somebody to guess."""
    node = pool.nodes[0]
    pool.load(node, embedded.folder, *LOAD, "--no-speculation")
    question = asked(pool, node, recorded)
    assert question.finish() == recorded["answer"][:TOKENS]
    (end,) = question.of("finished")
    assert end["drafted_tokens"] == 0

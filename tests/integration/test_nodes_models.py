"""Small models through real nodes: own tokenizers, and processors that are few."""

from __future__ import annotations

import json
import os

import pytest

from engine.cli.local_pool import PoolOptions
from engine.cli.preparation import Division
from engine.models.unsplit import generate_greedy
from tests.integration.conftest import make_talking
from tests.integration.pool import RunningPool, chat, request, shards

pytestmark = [pytest.mark.processes, pytest.mark.together]


def test_a_bos_the_template_writes_is_not_added_again(talking, own_data, cases):
    """The tokenizer adds one as well: to a raw completion only."""
    expected = json.loads((cases / "K09.expected.json").read_text(encoding="utf-8"))["values"]
    folder = shards(talking, Division(num_stages=2), own_data)
    pool = RunningPool(folder, PoolOptions(mode="exact", context_tokens=64, max_sequences=2))
    try:
        for asked, ids in (
            (chat("hello wor", max_tokens=8, ignore_eos=True), expected["right_ids"]),
            (
                request(prompt="hello", max_tokens=8, ignore_eos=True),
                expected["raw_completion_of_hello"],
            ),
        ):
            answer = pool.ask(asked)
            assert answer.prompt_tokens == len(ids)
            right = generate_greedy(talking / "openvino_model.xml", ids, 8)
            assert answer.token_ids == right
            # One id more or less at the beginning would give another answer.
            assert right != generate_greedy(talking / "openvino_model.xml", [0, *ids], 8)
    finally:
        pool.close()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="processes can't be pinned here")
@pytest.mark.parametrize("fixture", ["llama", "llama-f16"])
def test_two_nodes_of_one_core_each_load_and_answer(
    fixture, fixture_models, cases, own_data, tmp_path
):
    """With one thread the CPU plugin of 2026.4.1 may end the process while compiling in bf16."""
    model = make_talking(fixture_models / fixture, cases, tmp_path / fixture)
    folder = shards(model, Division(num_stages=2), own_data)
    cores = sorted(os.sched_getaffinity(0))
    options = PoolOptions(
        mode="fast",
        context_tokens=64,
        num_threads=1,
        cpus=((cores[0],), (cores[-1],)),
    )
    pool = RunningPool(folder, options)
    try:
        pinned = [pool.stage_process(i).cpu_affinity() for i in range(2)]
        assert pinned == [[cores[0]], [cores[-1]]]
        answer = pool.ask(request(prompt="hello", max_tokens=8, ignore_eos=True))
        assert len(answer.token_ids) == 8
        # A stage that was loaded in another way than the device's own says so.
        for stage in pool.pool.stages:
            assert all("precision f" in note for note in stage.notes), stage.notes
            assert stage.golden_error is not None
    finally:
        pool.close()

"""Every drafter on the embedded model: the unsplit model's greedy tokens, and guesses that hold."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import openvino as ov
import pytest

from engine.domain import LayerRange, NodeId, RowTime
from engine.messages.chain import Placement, StagePlace
from engine.models.tokenizer import load_tokenizer
from engine.pipeline.draft_loading import DraftTarget, find_draft, load_draft_model
from engine.sampling.parameters import SamplingParameters
from engine.scheduler.draft_length import DraftLength
from engine.scheduler.drafters_in_turn import DraftersInTurn
from engine.scheduler.limits import SchedulerLimits
from engine.scheduler.row_costs import RowCosts
from engine.scheduler.speculation import Speculation
from engine.scheduler.suffix_drafter import SuffixDrafter
from engine.splitter.analysis import analyse
from reproduction.fixed_draft_length import FixedDraftLength
from reproduction.oracle_drafter import OracleDrafter, Recording
from tests.equivalence.chain import LONG, Stages, Unsplit
from tests.speculating import Head

pytestmark = [pytest.mark.embedded, pytest.mark.processes]

QUESTIONS = (
    "List the planets of the solar system in order.",
    "Say it three times: the cat sat on the mat. The cat sat on the mat.",
    "Write a Python function that adds two numbers.",
    "What is the capital of France?",
)
NUM_TOKENS = 256 if LONG else 32
WAYS = (("paged", [15]), ("stateful", [10, 20]))
EVERY = [(*way, chooses) for way in WAYS for chooses in (True, False)]
SHORT = [(*WAYS[0], True), (*WAYS[1], False)]
COSTS = RowCosts(RowTime(rows, 0.01 + 0.0005 * rows) for rows in (1, 2, 4, 8, 16))


@pytest.fixture(scope="module")
def tokenizer(embedded):
    return load_tokenizer(embedded)


@pytest.fixture(scope="module")
def model(embedded, tokenizer):
    prompts = [
        tokenizer.encode(
            f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n",
            add_special_tokens=False,
        )
        for question in QUESTIONS
    ]
    return analyse(ov.Core(), embedded.xml), prompts, Unsplit(embedded.xml)


@pytest.fixture(scope="module")
def stages_of(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    made = {kind: Stages(model[0], folder, kind) for kind, _ in WAYS}
    return lambda kind, cuts: made[kind].chain(cuts).stages


@pytest.fixture(scope="module")
def loop():
    """One for the draft model's process, which outlives a test.

    Yields:
        It.
    """
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def draft_model(loop, tokenizer):
    place = StagePlace(
        node_id=NodeId("here"), address="", stage_index=0, layers=LayerRange(0, 30), mode="exact"
    )
    placement = Placement(
        epoch=1, manifest_sha256="", context_tokens=1024, max_sequences=4, stages=(place,)
    )
    target = DraftTarget(tokenizer, 49152)
    draft = loop.run(load_draft_model(find_draft(target), target, placement))
    yield draft
    loop.run(draft.end())


@pytest.fixture(params=["suffix", "model", "in turn", "oracle"])
def drafter(request, model):
    """Each of those there are."""
    if request.param == "suffix":
        return SuffixDrafter()
    if request.param == "oracle":
        _, prompts, unsplit = model
        recordings = [Recording(p, unsplit.greedy(p, NUM_TOKENS)) for p in prompts]
        return OracleDrafter(recordings, 0.7, 49152)
    draft = request.getfixturevalue("draft_model")
    if request.param == "model":
        return draft
    both = DraftersInTurn(SuffixDrafter())
    both.use(draft)
    return both


@pytest.mark.xdist_group("embedded, drafters")
@pytest.mark.parametrize(("kind", "cuts", "chooses"), EVERY if LONG else SHORT, ids=str)
def test_the_answers_are_the_unsplit_models(model, stages_of, loop, drafter, kind, cuts, chooses):
    """Four at once, frames that follow each other, whoever guesses and however far."""
    _, prompts, unsplit = model
    stages = stages_of(kind, cuts)
    lengths = DraftLength(COSTS, len(stages)) if chooses else FixedDraftLength(3, 99)
    head = Head(
        SchedulerLimits(
            max_tokens=4096,
            block_tokens=32,
            max_sequences=4,
            num_stages=len(stages),
            max_batches_in_flight=len(stages) + 4,
            vocab_size=49152,
            max_chunks_in_flight=len(stages),
        ),
        lambda: stages,
        lambda prompt, num_tokens, _: tuple(unsplit.greedy(prompt, num_tokens)),
        Speculation(lengths, len(stages)),
        lambda _head, _sequence, request: loop.run(drafter.draft([request]))[0],
    )
    for prompt in prompts:
        head.ask(prompt, NUM_TOKENS, SamplingParameters())
    while head.go_round():
        pass
    head.check_answers()
    assert sum(s.num_accepted_tokens for s in head.sequences.values()) > 0
    for sequence_id in head.sequences:
        loop.run(drafter.close(sequence_id))
    for stage in stages:
        assert stage.kv_usage().used_blocks == 0


def test_ways_are_cut_in_order():
    """What the tests above divide the model into."""
    assert all(a < b for _, cuts in WAYS for a, b in pairwise(cuts))

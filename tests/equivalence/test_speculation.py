"""Speculation on real stages: the unsplit model's greedy tokens, whoever guesses."""

from __future__ import annotations

import openvino as ov
import pytest

from engine.models.tokenizer import load_tokenizer
from engine.sampling.parameters import SamplingParameters
from engine.scheduler.limits import SchedulerLimits
from engine.scheduler.speculation import Speculation
from engine.splitter.analysis import analyse
from reproduction.fixed_draft_length import FixedDraftLength
from tests.equivalence.chain import LONG, Stages, Unsplit
from tests.speculating import Head, always

pytestmark = pytest.mark.embedded

QUESTIONS = (
    "Why is the sky blue?",
    "Write a Python function that adds two numbers.",
    "Repeat: one two three four, one two three four.",
)
NUM_PROMPTS = 50 if LONG else 2
NUM_TOKENS = 256 if LONG else 16
LENGTHS = (1, 3, 5, 7, 10, 15)
CUTS = ([], [15], [10, 20], [8, 15, 22])
KINDS = ("paged", "stateful")
SHORT = [  # drafts, cuts, kind: each of them at least once
    (3, CUTS[0], "paged"),
    (15, CUTS[1], "stateful"),
    (7, CUTS[1], "paged"),
    (10, CUTS[2], "stateful"),
    (1, CUTS[3], "paged"),
    (5, CUTS[3], "stateful"),
]
EVERY = [(length, cuts, kind) for cuts in CUTS for kind in KINDS for length in LENGTHS]


@pytest.fixture(scope="module")
def model(embedded):
    tokenizer = load_tokenizer(embedded)
    questions = [f"{QUESTIONS[i % 3]} ({i + 1})" for i in range(NUM_PROMPTS)]
    prompts = [
        tokenizer.encode(
            f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n",
            add_special_tokens=False,
        )
        for question in questions
    ]
    return analyse(ov.Core(), embedded.xml), prompts, Unsplit(embedded.xml)


@pytest.fixture(scope="module")
def stages_of(model, tmp_path_factory):
    """Stages are loaded once for each way to run them."""
    analysis, folder = model[0], tmp_path_factory.mktemp("shards")
    made = {kind: Stages(analysis, folder, kind) for kind in KINDS}
    return lambda kind, cuts: made[kind].chain(cuts).stages


@pytest.mark.xdist_group("embedded, speculation")
@pytest.mark.parametrize(("num_drafts", "cuts", "kind"), EVERY if LONG else SHORT, ids=str)
def test_guesses_right_and_wrong_give_the_unsplit_models_tokens(
    model, stages_of, num_drafts, cuts, kind
):
    """Several at once, frames that follow each other, and deep rewinds beside the others."""
    _, prompts, unsplit = model
    stages = stages_of(kind, cuts)
    num_stages = len(stages)
    limits = SchedulerLimits(
        max_tokens=2048,
        block_tokens=32,
        max_sequences=4,
        num_stages=num_stages,
        max_batches_in_flight=num_stages + 2,  # room for frames on guesses, with two sequences too
        vocab_size=stages[0].description.vocab_size,
        max_chunks_in_flight=num_stages,
    )
    for guess in ("mixed", "wrong") if LONG or num_drafts == 5 else ("mixed",):
        head = Head(
            limits,
            lambda: stages,
            lambda prompt, num_tokens, _: tuple(unsplit.greedy(prompt, num_tokens)),
            Speculation(FixedDraftLength(num_drafts, 99), num_stages),
            always(guess, stages[0].description.vocab_size),
        )
        for prompt in prompts:
            head.ask(prompt, NUM_TOKENS, SamplingParameters())
        while head.go_round():
            pass
        head.check_answers()
        accepted = sum(s.num_accepted_tokens for s in head.sequences.values())
        assert (accepted > 0) == (guess == "mixed")
        for stage in stages:
            assert stage.kv_usage().used_blocks == 0

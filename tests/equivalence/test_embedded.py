"""Same tokens: the embedded model, at every one of its boundaries and in many parts."""

from __future__ import annotations

import shutil

import openvino as ov
import pytest

from engine.models.tokenizer import load_tokenizer
from engine.splitter.analysis import analyse
from tests.equivalence.chain import LONG, Unsplit, load_chain

pytestmark = pytest.mark.embedded

NUM_LAYERS = 30
KINDS = ("paged", "stateful")
QUESTIONS = (
    "Why is the sky blue?",
    "Write a Python function that adds two numbers.",
    "Nenne drei Farben: rot,",
    "1 2 3 4 5 6 7 8 9 10",
)
REWINDS = [0, 1, 2, 3, 4, 5, 6, 7]
EVERY = list(range(1, NUM_LAYERS))
# With these, several sequences and rewinds are tried as well.
FOR_MANY_SEQUENCES = [[15], [6, 12, 18, 24], EVERY, *([[10, 20]] if LONG else [])]
# Chains of six stages that have every boundary once between them, [6, 12, 18, 24] included.
IN_MANY = [list(range(first, NUM_LAYERS, 6)) for first in range(1, 6)]
IN_TWO = [[b] for b in (EVERY if LONG else (1, 29))]


# In short the chains of six take turns: both kinds meet every boundary in the chain of thirty.
WAYS = [(cuts, KINDS) for cuts in IN_TWO]
WAYS += [(cuts, KINDS if LONG else (KINDS[i % 2],)) for i, cuts in enumerate(IN_MANY)]
# Enough to pass an edge between KV blocks; several, where two stages answer one sequence.
NUM_TOKENS = 64 if LONG else 24


@pytest.fixture(scope="module")
def model(embedded):
    tokenizer = load_tokenizer(embedded)
    prompts = [
        tokenizer.encode(
            f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n",
            add_special_tokens=False,
        )
        for question in QUESTIONS
    ]
    analysis = analyse(ov.Core(), embedded.xml)
    assert analysis.num_layers == NUM_LAYERS
    return analysis, prompts, Unsplit(embedded.xml)


def test_every_boundary_is_cut_and_not_only_together_with_all_others():
    cuts = [*IN_TWO, *IN_MANY, *(c for c in FOR_MANY_SEQUENCES if c != EVERY)]
    assert {boundary for chain in cuts for boundary in chain} == set(EVERY)


@pytest.mark.parametrize(("cuts", "kinds"), WAYS, ids=str)
def test_shards_give_the_unsplit_models_tokens(model, tmp_path, cuts, kinds):
    analysis, prompts, unsplit = model
    num_tokens = 64 if len(cuts) == 1 else NUM_TOKENS
    expected = [unsplit.greedy(prompts[0], num_tokens)]
    for kind in kinds:  # of the same shards on disk
        chain = load_chain(analysis, tmp_path, cuts, kind)
        assert chain.greedy(prompts[:1], num_tokens) == expected, kind
    shutil.rmtree(tmp_path)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cuts", FOR_MANY_SEQUENCES, ids=lambda c: f"{len(c) + 1} stages")
def test_many_shards_four_sequences_and_rewinds_give_the_same_tokens(model, tmp_path, cuts, kind):
    analysis, prompts, unsplit = model
    expected = [unsplit.greedy(prompt, NUM_TOKENS) for prompt in prompts]
    chain = load_chain(analysis, tmp_path, cuts, kind)
    assert chain.greedy(prompts[:1], NUM_TOKENS) == expected[:1]
    assert chain.greedy(prompts, NUM_TOKENS) == expected
    assert chain.greedy(prompts, NUM_TOKENS, REWINDS) == expected
    shutil.rmtree(tmp_path)

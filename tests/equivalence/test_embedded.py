"""Same tokens: the embedded model, at every one of its boundaries and in many parts."""

from __future__ import annotations

import shutil

import openvino as ov
import pytest

from engine.models.tokenizer import load_tokenizer
from engine.splitter.analysis import analyse
from tests.equivalence.chain import Unsplit, load_chain

pytestmark = pytest.mark.embedded

NUM_LAYERS = 30
NUM_TOKENS = 64
QUESTIONS = (
    "Why is the sky blue?",
    "Write a Python function that adds two numbers.",
    "Nenne drei Farben: rot,",
    "1 2 3 4 5 6 7 8 9 10",
)
REWINDS = [0, 1, 2, 3, 4, 5, 6, 7]


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
    unsplit = Unsplit(embedded.xml)
    expected = [unsplit.greedy(prompt, NUM_TOKENS) for prompt in prompts]
    analysis = analyse(ov.Core(), embedded.xml)
    assert analysis.num_layers == NUM_LAYERS
    return analysis, prompts, expected


@pytest.mark.parametrize("boundary", range(1, NUM_LAYERS))
def test_two_shards_give_the_unsplit_models_tokens(model, tmp_path, boundary):
    analysis, prompts, expected = model
    for kind in ("paged", "stateful"):  # of the same two shards on disk
        chain = load_chain(analysis, tmp_path, [boundary], kind)
        assert chain.greedy(prompts[:1], NUM_TOKENS) == expected[:1], kind
    shutil.rmtree(tmp_path)


@pytest.mark.parametrize("kind", ["paged", "stateful"])
@pytest.mark.parametrize(
    "cuts",
    [[15], [10, 20], [6, 12, 18, 24], list(range(1, NUM_LAYERS))],
    ids=["2 stages", "3 stages", "5 stages", "30 stages"],
)
def test_many_shards_four_sequences_and_rewinds_give_the_same_tokens(model, tmp_path, cuts, kind):
    analysis, prompts, expected = model
    chain = load_chain(analysis, tmp_path, cuts, kind)
    assert chain.greedy(prompts[:1], NUM_TOKENS) == expected[:1]
    assert chain.greedy(prompts, NUM_TOKENS) == expected
    assert chain.greedy(prompts, NUM_TOKENS, REWINDS) == expected
    shutil.rmtree(tmp_path)

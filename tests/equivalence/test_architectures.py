"""Same tokens: every architecture's fixture, at every boundary, in both ways to run a stage."""

from __future__ import annotations

from pathlib import Path

import openvino as ov
import pytest

from engine.splitter.analysis import analyse
from tests.equivalence.chain import Chain, Unsplit, load_chain

FIXTURES = Path(__file__).parent.parent / "fixtures" / "models"
REFUSED = ("shared-kv-", "recurrent-")
NAMES = sorted(p.name for p in FIXTURES.iterdir() if not p.name.startswith(REFUSED))
PROMPTS = [
    [5, 17, 300, 42, 7],
    [9, 8, 7, 6, 5, 4, 3, 2, 1, 44, 301],
    [501],
    [33, 90, 412, 77, 128, 256, 64, 32],
]
NUM_TOKENS = 64
CANNOT_BE_PAGED = {"mpt"}  # PagedAttention would leave out its bias per head


@pytest.fixture(scope="module", params=NAMES)
def model(request, tmp_path_factory):
    xml = FIXTURES / request.param / "openvino_model.xml"
    unsplit = Unsplit(xml)
    expected = [unsplit.greedy(prompt, NUM_TOKENS) for prompt in PROMPTS]
    return analyse(ov.Core(), xml), expected, tmp_path_factory.mktemp(request.param)


def every_cut(num_layers: int) -> list[list[int]]:
    return [[b] for b in range(1, num_layers)] + [list(range(1, num_layers))]


@pytest.fixture(params=["paged", "stateful"])
def kind(request, model):
    if request.param == "paged" and model[0].xml.parent.name in CANNOT_BE_PAGED:
        pytest.skip("refused as paged, with the reason; see test_refusals.py")
    return request.param


def test_shards_give_the_unsplit_models_tokens_at_every_boundary(model, kind):
    analysis, expected, folder = model
    for cuts in every_cut(analysis.num_layers):
        chain = load_chain(analysis, folder, cuts, kind)
        assert chain.greedy(PROMPTS[:1], NUM_TOKENS) == expected[:1], cuts


def test_a_batch_of_four_with_rewinds_gives_the_same_tokens(model, kind):
    analysis, expected, folder = model
    chain: Chain = load_chain(analysis, folder, [analysis.num_layers // 2], kind)
    assert chain.greedy(PROMPTS, NUM_TOKENS) == expected
    assert chain.greedy(PROMPTS, NUM_TOKENS, [0, 1, 2, 3, 4, 5, 6, 7]) == expected

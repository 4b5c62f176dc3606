"""Same tokens: every architecture's fixture, at every boundary, in both ways to run a stage."""

from __future__ import annotations

from pathlib import Path

import openvino as ov
import pytest

from engine.splitter.analysis import analyse
from tests.equivalence.chain import LONG, Stages, Unsplit

FIXTURES = Path(__file__).parent.parent / "fixtures" / "models"
REFUSED = ("shared-kv-", "recurrent-")
NAMES = sorted(p.name for p in FIXTURES.iterdir() if not p.name.startswith(REFUSED))
# The first one's answer outgrows a window of 24 tokens and a block of 32, the second one is
# longer than that window from the start.
PROMPTS = [
    [(53 * i + 5) % 512 for i in range(20)],
    [(37 * i + 11) % 512 for i in range(28)],
    [501],
    [33, 90, 412, 77, 128, 256, 64, 32],
]
NUM_TOKENS = 64 if LONG else 16
REWINDS = [0, 1, 2, 3, 4, 5, 6, 7]
CANNOT_BE_PAGED = {"mpt"}  # PagedAttention would leave out its bias per head


@pytest.fixture(scope="module", params=NAMES)
def model(request, tmp_path_factory):
    xml = FIXTURES / request.param / "openvino_model.xml"
    return Unsplit(xml), analyse(ov.Core(), xml), tmp_path_factory.mktemp(request.param)


@pytest.fixture(scope="module", params=["paged", "stateful"])
def stages(request, model):
    _, analysis, folder = model
    if request.param == "paged" and analysis.xml.parent.name in CANNOT_BE_PAGED:
        pytest.skip("refused as paged, with the reason; see test_refusals.py")
    return Stages(analysis, folder, request.param)


def test_shards_give_the_unsplit_models_tokens_at_every_boundary(model, stages):
    unsplit, analysis, _ = model
    expected = [unsplit.greedy(PROMPTS[0], NUM_TOKENS)]
    boundaries = range(1, analysis.num_layers)
    for cuts in [*([b] for b in boundaries), list(boundaries)]:
        assert stages.chain(cuts).greedy(PROMPTS[:1], NUM_TOKENS) == expected, cuts


def test_a_batch_of_four_with_rewinds_gives_the_same_tokens(model, stages):
    unsplit, analysis, _ = model
    expected = [unsplit.greedy(prompt, NUM_TOKENS) for prompt in PROMPTS]
    chain = stages.chain([analysis.num_layers // 2])
    assert chain.greedy(PROMPTS, NUM_TOKENS) == expected
    assert chain.greedy(PROMPTS, NUM_TOKENS, REWINDS) == expected

"""Golden vectors: the whole model's own values, whatever the groups they are made in."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.domain import LayerRange
from engine.errors import RequestCancelledError
from engine.splitter.golden import (
    NUM_GOLDEN_TOKENS,
    golden_run,
    golden_token_ids,
    group_layers,
)
from tests.unit.splitter.cutting import CORE, analysis_of, run_once, xml_of
from tests.unit.splitter.splitting import opened, split

IDS = golden_token_ids(512)
NAMES = ["llama-int4", "gemma2", "bloom"]


def vectors(name, groups):
    run = golden_run(analysis_of(name), groups, IDS, lambda: None)
    return {group.stop: value for group, value in run}


@pytest.mark.parametrize("name", NAMES)
def test_the_groups_do_not_show_in_the_vectors(name):
    """The same bytes, made one layer or two layers at a time."""
    alone = vectors(name, [LayerRange(k, k + 1) for k in range(4)])
    pairs = vectors(name, [LayerRange(0, 2), LayerRange(2, 4)])
    assert alone[2].tobytes() == pairs[2].tobytes()
    assert alone[4].tobytes() == pairs[4].tobytes()


@pytest.mark.parametrize("name", NAMES)
def test_the_last_vector_is_the_unsplit_models_last_row(name):
    logits = run_once(CORE.read_model(xml_of(name)), input_ids=np.array([IDS], np.int64))
    (golden,) = vectors(name, [LayerRange(0, 4)]).values()
    assert golden.shape == (1, 512)
    assert golden.dtype == np.float32
    np.testing.assert_allclose(golden, logits[-1:], atol=2e-5)


def test_vectors_lie_where_shards_meet_and_nowhere_else(tmp_path):
    split(tmp_path / "out", cuts=(1, 3))
    golden = opened(tmp_path / "out").golden
    assert [b.layer for b in golden.boundaries] == [1, 3]
    assert golden.token_ids == IDS
    expected = vectors("llama", [LayerRange(0, 1), LayerRange(1, 3), LayerRange(3, 4)])
    for layer, entry in ((1, golden.before(1)), (3, golden.before(3)), (4, golden.logits)):
        assert (tmp_path / "out" / entry.path).read_bytes() == expected[layer].tobytes()


def test_the_run_is_asked_before_each_group_whether_to_go_on():
    asked = []

    def check():
        asked.append(1)
        if len(asked) == 3:
            raise RequestCancelledError("stop")

    groups = [LayerRange(k, k + 1) for k in range(4)]
    seen = []
    with pytest.raises(RequestCancelledError):
        seen.extend(group.stop for group, _ in golden_run(analysis_of("llama"), groups, IDS, check))
    assert len(asked) == 3


@pytest.mark.parametrize("vocab_size", [1, 2, 7, 8, 9, 512, 128_256])
def test_golden_tokens_are_of_the_vocabulary(vocab_size):
    ids = golden_token_ids(vocab_size)
    assert len(ids) == NUM_GOLDEN_TOKENS
    assert all(0 <= i < vocab_size for i in ids)
    assert len(set(ids)) == min(vocab_size, NUM_GOLDEN_TOKENS)
    assert ids == golden_token_ids(vocab_size)


LAYER_BYTES = st.lists(st.integers(0, 100), min_size=1, max_size=40)


@given(LAYER_BYTES, st.frozensets(st.integers(0, 45)), st.integers(0, 300))
def test_groups_cover_all_layers_within_the_bound_and_stop_where_told(sizes, stops, bound):
    groups = group_layers(sizes, stops, bound)
    assert [k for g in groups for k in range(g.start, g.stop)] == list(range(len(sizes)))
    ends = {g.stop for g in groups}
    assert {s for s in stops if 1 <= s < len(sizes)} <= ends
    for group in groups:
        assert len(group) == 1 or sum(sizes[group.start : group.stop]) <= bound


@given(LAYER_BYTES, st.frozensets(st.integers(1, 40)), st.integers(0, 300))
def test_a_group_ends_only_where_it_must(sizes, stops, bound):
    """At a stop, or because the next layer would be too much."""
    for group in group_layers(sizes, stops, bound)[:-1]:
        is_full = sum(sizes[group.start : group.stop + 1]) > bound
        assert group.stop in stops or is_full

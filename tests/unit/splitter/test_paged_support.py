"""Whether a shard can be paged is asked of the transformation, on a copy."""

import pytest

from engine.domain import LayerRange
from engine.splitter.cut import cut_shard
from engine.splitter.paged_support import probe_paged_support
from tests.unit.splitter.cutting import analysis_of, take_out_beam


def probed(name, start=0, stop=4, **changes):
    shard = cut_shard(analysis_of(name), LayerRange(start, stop)).model
    return probe_paged_support(shard, changes.get("num_layers", stop - start))


@pytest.mark.parametrize(
    ("name", "window"),
    [("llama", None), ("mistral-window", 24), ("gemma2", 24), ("gpt-oss", 24), ("bloom", None)],
)
@pytest.mark.parametrize(("start", "stop"), [(0, 2), (2, 4)])
def test_a_window_is_found_however_the_mask_was_written(name, window, start, stop):
    support = probed(name, start, stop)
    assert support.refusal is None
    assert support.sliding_window == window


def test_a_shard_of_full_attention_only_has_no_window():
    """Windows alternate in Gemma 2: its second layer sees everything."""
    windows = {probed("gemma2", k, k + 1).sliding_window for k in range(4)}
    assert windows == {24, None}


def test_what_paging_would_leave_out_is_a_reason():
    support = probed("mpt", 1, 3)
    assert "bias to each attention head" in support.refusal
    assert support.sliding_window is None


def test_a_count_that_does_not_fit_is_a_reason():
    assert probed("llama", 0, 2, num_layers=3).refusal == "2 of 3 attentions were recognised."


def test_the_shard_itself_is_not_changed():
    shard = cut_shard(analysis_of("llama"), LayerRange(1, 3)).model
    before = [node.get_friendly_name() for node in shard.get_ordered_ops()]
    probe_paged_support(shard, 2)
    assert [node.get_friendly_name() for node in shard.get_ordered_ops()] == before
    assert take_out_beam(shard) == 4

"""What a stage refuses, and that a refusal changes nothing."""

from dataclasses import replace

import numpy as np
import openvino as ov
import pytest
from openvino import opset13

from engine.domain import LayerRange
from engine.errors import (
    CompileError,
    InferenceError,
    KVCacheFullError,
    LocalProtocolError,
    ModelFileError,
)
from engine.splitter.analysis import analyse
from engine.splitter.cut import cut_shard
from engine.stages.loading import load_stage
from tests.unit.stages.running import MODELS, PROMPTS, batch, plain_greedy, whole

KINDS = pytest.mark.parametrize("kind", ["paged", "stateful"])


@pytest.fixture(scope="module")
def middle(tmp_path_factory):
    """Layers 1 and 2 of the Llama fixture, saved."""
    xml = tmp_path_factory.mktemp("shard") / "shard.xml"
    analysis = analyse(ov.Core(), MODELS / "llama" / "openvino_model.xml")
    ov.save_model(cut_shard(analysis, LayerRange(1, 3)).model, xml, compress_to_fp16=False)
    return xml


def load_middle(middle, kind):
    layers = LayerRange(1, 3)
    return load_stage(
        whole("llama", kind, xml_path=str(middle), layers=layers, is_first=False, is_last=False)
    )


@KINDS
def test_a_full_cache_is_refused_with_nothing_run(kind):
    """Sequence 1 has room, sequence 2 in the same batch has not: neither runs, both can go on."""
    stage = load_stage(whole("llama", kind, max_tokens=96, max_sequences=1))
    stage.run(batch((1, 0, PROMPTS[1], 0)))
    stage.run(batch((2, 0, PROMPTS[2], 0)))
    before = stage.kv_usage()
    with pytest.raises(KVCacheFullError) as caught:
        stage.run(batch((1, 40, [5], 1), (2, 33, PROMPTS[3], 1)))
    assert (caught.value.required_blocks, caught.value.free_blocks) == (2, 0)
    assert stage.kv_usage() == before
    first = int(stage.run(batch((1, 39, PROMPTS[1][-1:], 1)))[0].argmax())
    assert [first] == plain_greedy("llama", PROMPTS[1], 1)
    stage.release(2)
    assert stage.kv_usage().free_blocks == 2


@KINDS
def test_room_is_as_much_as_was_asked_for(kind):
    """96 tokens, and one more block for the partly filled one of the only sequence."""
    stage = load_stage(whole("llama", kind, max_tokens=96, max_sequences=1))
    assert stage.description.num_blocks == 4
    stage.run(batch((1, 0, [3] * 128, 0)))
    with pytest.raises(KVCacheFullError):
        stage.run(batch((1, 128, [3], 0)))


@KINDS
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_no_number_ends_the_sequences_of_the_batch(middle, kind, bad):
    """And only those: the third sequence goes on."""
    stage = load_middle(middle, kind)
    hidden = np.random.default_rng(0).standard_normal((6, 64)).astype(np.float32)
    stage.run(batch((3, 0, [1, 2], 0), hidden=hidden[:2]))
    hidden[4, 5] = bad
    with pytest.raises(InferenceError, match=r"hidden states of layers 1\.\.2"):
        stage.run(batch((1, 0, [1, 2, 3], 0), (2, 0, [1, 2, 3], 0), hidden=hidden))
    assert stage.kv_usage().num_sequences == 1
    good = stage.run(batch((3, 2, [1, 2], 0), hidden=hidden[:2]))
    assert np.isfinite(good).all()
    with pytest.raises(LocalProtocolError, match=r"position 3.*0 positions"):
        stage.run(batch((1, 3, [1], 0), hidden=hidden[:1]))


@KINDS
def test_half_precision_hidden_states_are_taken(middle, kind):
    """As they come over a slow link."""
    stage = load_middle(middle, kind)
    hidden = np.random.default_rng(0).standard_normal((5, 64)).astype(np.float16)
    narrow = stage.run(batch((1, 0, [1] * 5, 0), hidden=hidden)).copy()
    wide = stage.run(batch((2, 0, [1] * 5, 0), hidden=hidden.astype(np.float32)))
    assert narrow.dtype == np.float32
    assert narrow.flags.c_contiguous
    assert np.array_equal(narrow, wide)


@KINDS
def test_int8_hidden_states_are_taken_by_the_scale_of_their_row(middle, kind):
    stage = load_middle(middle, kind)
    steps = np.random.default_rng(0).integers(-127, 128, (5, 64)).astype(np.int8)
    scales = np.array([0.001, 0.01, 0.02, 0.03, 0.1], np.float32)
    wanted = batch((1, 0, [1] * 5, 0), hidden=steps * scales[:, None])
    narrow = replace(batch((2, 0, [1] * 5, 0), hidden=steps), row_scales=scales)
    assert np.array_equal(stage.run(narrow).copy(), stage.run(wanted))


@KINDS
def test_a_batch_that_contradicts_itself_is_refused(middle, kind):
    stage = load_middle(middle, kind)
    row = np.zeros((1, 64), np.float32)
    wrong = [
        batch((1, 0, [1, 2], 0), hidden=row),
        batch((1, 0, [1], 0)),
        batch((1, 0, [1], 2), hidden=row),
        batch((1, 1, [1], 0), hidden=row),
        batch((1, 0, [1], 0), hidden=np.zeros((1, 32), np.float32)),
        batch((1, 0, [1], 0), (1, 0, [1], 0), hidden=np.zeros((2, 64), np.float32)),
        batch(),
    ]
    for refused in wrong:
        with pytest.raises(LocalProtocolError):
            stage.run(refused)
    assert stage.kv_usage().used_blocks == 0


def test_a_bias_per_head_is_not_left_out_silently():
    """MPT's ALiBi is lost in the paged transformation; Bloom's is found."""
    with pytest.raises(CompileError, match="bias to each attention head"):
        load_stage(whole("mpt", "paged"))
    assert load_stage(whole("bloom", "paged")).description.num_fused_layers == 4


def test_the_npu_has_no_paged_attention():
    with pytest.raises(CompileError, match="NPU has no PagedAttention"):
        load_stage(whole("llama", "paged", device="NPU"))


@KINDS
def test_a_recurrent_model_is_refused(kind):
    """Its states can't be rewound."""
    with pytest.raises(CompileError):
        load_stage(whole("recurrent-lfm2", kind))


@KINDS
def test_a_wrong_layer_count_is_refused(kind):
    with pytest.raises(CompileError, match=r"4 of the 3 layers 0\.\.2"):
        load_stage(whole("llama", kind, layers=LayerRange(0, 3)))


@KINDS
def test_a_missing_shard_is_named(kind, tmp_path):
    with pytest.raises(ModelFileError, match=r"shard\.xml is missing"):
        load_stage(whole("llama", kind, xml_path=str(tmp_path / "shard.xml")))


@KINDS
def test_an_input_no_stage_can_feed_is_named(kind, tmp_path):
    model = ov.Core().read_model(MODELS / "llama" / "openvino_model.xml")
    extra = opset13.parameter([-1, -1], np.int64, name="token_type_ids")
    extra.output(0).set_names({"token_type_ids"})
    model.add_parameters([extra])
    ov.save_model(model, tmp_path / "s.xml", compress_to_fp16=False)
    with pytest.raises(CompileError, match="an input token_type_ids of shape"):
        load_stage(whole("llama", kind, xml_path=str(tmp_path / "s.xml")))


def test_an_unknown_device_is_one_sentence():
    with pytest.raises(CompileError) as caught:
        load_stage(whole("llama", "stateful", device="GPU.7"))
    assert "GPU.7 could not compile" in caught.value.what
    assert "\n" not in caught.value.what

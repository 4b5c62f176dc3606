"""What is in a shard: the source's own weights and options, and nothing of other layers."""

import numpy as np
import openvino as ov
import pytest

from engine.domain import LayerRange
from engine.splitter.cut import HIDDEN_INPUT, HIDDEN_OUTPUT, cut_shard
from engine.splitter.weights import weigh
from tests.unit.splitter.cutting import (
    CORE,
    NAMES,
    analysis_of,
    constants,
    input_names,
    run_once,
    saved,
    shard_of,
    xml_of,
)

RANGES = [LayerRange(0, 1), LayerRange(1, 3), LayerRange(3, 4)]
TOKENS = [5, 17, 300, 42, 7, 511]
# f32, f16 and tied, INT8 with scales, INT4 with zero points, several table look-ups.
KINDS = ["llama", "llama-tied", "qwen2-int8", "mixtral-int4", "opt"]
MAX_NEW_CONSTANT_BYTES = 64  # axes, indices and factors that a cut puts in
SHARED = 0.015  # of a shard: position and mask constants that all layers have


def rt_info_of(model):
    """Return the run-time options as a flat dictionary, by path."""
    flat = {}
    pending = [((name,), model.get_rt_info()[name]) for name in model.get_rt_info()]
    while pending:
        path, value = pending.pop()
        inner = getattr(value, "value", value)
        if isinstance(inner, str | int | float | bool):
            flat[path] = str(inner)
        else:
            pending.extend(((*path, key), inner[key]) for key in inner)
    return {path: value for path, value in flat.items() if path[0] in {"runtime_options", "nncf"}}


@pytest.mark.parametrize("name", ["llama", "llama-int4", "qwen3"])
def test_every_shard_has_the_run_time_options_of_the_source(name, tmp_path):
    """Without them the precision of caches and activations changes, and nothing says so."""
    expected = rt_info_of(CORE.read_model(xml_of(name)))
    assert ("runtime_options", "ACTIVATIONS_SCALE_FACTOR") in expected
    assert any(path[0] == "nncf" for path in expected) == (name == "llama-int4")
    for layers in RANGES:
        xml = saved(shard_of(name, layers), tmp_path / str(layers))
        assert rt_info_of(CORE.read_model(xml)) == expected


@pytest.mark.parametrize("name", KINDS)
def test_constants_are_the_sources_byte_for_byte(name, tmp_path):
    """Also after saving: nothing is rounded to half precision on the way to the disk."""
    source = constants(CORE.read_model(xml_of(name)))
    large = {key for key, data in source.items() if len(data) > MAX_NEW_CONSTANT_BYTES}
    found = set()
    for layers in RANGES:
        xml = saved(shard_of(name, layers), tmp_path / str(layers))
        for key, data in constants(CORE.read_model(xml)).items():
            if key in source:
                assert data == source[key], key
                found.add(key)
            else:
                assert len(data) <= MAX_NEW_CONSTANT_BYTES, key
    assert found >= large, "a weight of the source is in no shard"


@pytest.mark.parametrize("name", NAMES)
def test_a_shard_weighs_what_was_counted_for_its_layers(name, tmp_path):
    """And so carries no table of another shard's, not even to ask for its shape."""
    analysis = analysis_of(name)
    weights = weigh(analysis)
    for layers in RANGES:
        expected = sum(weights.layers[layers.start : layers.stop])
        expected += weights.embedding if layers.start == 0 else 0
        expected += weights.head if layers.stop == 4 else 0
        model = shard_of(name, layers)
        held = sum(map(len, constants(model).values()))
        assert held == pytest.approx(expected, rel=SHARED), layers
        on_disk = saved(model, tmp_path / str(layers)).with_suffix(".bin").stat().st_size
        assert on_disk <= held + 64 * len(constants(model)), "padding only"
        assert on_disk == pytest.approx(expected, rel=0.05), layers


@pytest.mark.parametrize(
    ("name", "is_tied"), [("llama-tied", True), ("gpt2", True), ("llama", False)]
)
def test_tied_embeddings_are_in_the_first_and_in_the_last_shard(name, is_tied):
    shards = [constants(shard_of(name, layers)) for layers in RANGES]
    tables = [{key for key, data in shard.items() if len(data) >= 512 * 64 * 2} for shard in shards]
    shared = tables[0] & tables[2]
    assert bool(shared) == is_tied
    assert not tables[1] & (tables[0] | tables[2])
    for key in shared:
        assert shards[0][key] == shards[2][key]


def test_a_tied_table_is_counted_at_both_ends_and_held_once_by_one_stage():
    analysis = analysis_of("llama-tied")
    weights = weigh(analysis)
    whole = cut_shard(analysis, LayerRange(0, 4)).model
    held = sum(map(len, constants(whole).values()))
    assert weights.head == 512 * 64 * 2
    assert held + weights.head == pytest.approx(
        sum(weights.layers) + weights.embedding + weights.head, rel=SHARED
    )


@pytest.mark.parametrize("name", NAMES)
def test_inputs_outputs_and_states_are_those_of_the_layers(name):
    source = input_names(CORE.read_model(xml_of(name))) - {"input_ids"}
    for layers in RANGES:
        model = shard_of(name, layers)
        first = {"input_ids"} if layers.start == 0 else {HIDDEN_INPUT}
        last = {"sampled_tokens_indices"} if layers.stop == 4 else set()
        assert first | last | {"beam_idx"} <= input_names(model) <= first | last | source
        assert len(model.get_sinks()) == len(model.get_variables()) == 2 * len(layers)
        (output,) = model.outputs
        assert output.get_element_type() == ov.Type.f32
        if layers.stop < 4:
            assert output.get_names() == {HIDDEN_OUTPUT}
            assert output.get_partial_shape() == ov.PartialShape([-1, -1, 64])
        else:
            assert output.get_partial_shape()[2].get_length() == 512


@pytest.mark.parametrize("name", ["llama", "bloom", "gemma3", "mixtral-int4"])
def test_hidden_states_handed_on_give_the_whole_models_logits(name):
    ids = np.array([TOKENS], np.int64)
    expected = run_once(CORE.read_model(xml_of(name)), input_ids=ids)
    value = ids
    for layers in RANGES:
        feeds = {"input_ids" if layers.start == 0 else HIDDEN_INPUT: value}
        if layers.stop == 4:
            feeds["sampled_tokens_indices"] = np.arange(len(TOKENS))
        value = run_once(shard_of(name, layers), **feeds)[None]
    np.testing.assert_allclose(value[0], expected, atol=2e-5)


@pytest.mark.parametrize("layers", [LayerRange(1, 3), LayerRange(2, 3)], ids=str)
def test_shape_questions_to_other_layers_are_put_to_its_own_tensors(layers):
    """The masks of this export ask layer 0's caches; the first shard has them."""
    assert cut_shard(analysis_of("llama"), LayerRange(0, 2)).rerooted == 0
    assert cut_shard(analysis_of("llama"), layers).rerooted > 0


def test_cutting_leaves_the_analysis_as_it_was():
    """The same shard again, after others, is the same."""
    analysis = analysis_of("phi3")
    first = cut_shard(analysis, LayerRange(1, 2)).model
    for layers in RANGES:
        cut_shard(analysis, layers)
    again = cut_shard(analysis, LayerRange(1, 2)).model
    kinds = [[n.get_type_name() for n in m.get_ordered_ops()] for m in (first, again)]
    assert kinds[0] == kinds[1]
    hidden = np.random.default_rng(0).standard_normal((1, 5, 64)).astype(np.float32)
    assert np.array_equal(
        run_once(first, inputs_embeds=hidden), run_once(again, inputs_embeds=hidden)
    )

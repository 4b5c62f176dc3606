"""A model that can't be cut is refused by the name of what is in the way, and never cut wrongly."""

import openvino as ov
import pytest
from openvino import opset13
from openvino._offline_transformations import stateful_to_stateless_transformation

from engine.domain import LayerRange
from engine.errors import ModelFileError, UnsupportedModelError
from engine.splitter.analysis import analyse
from engine.splitter.cut import cut_shard
from engine.splitter.weights import weigh
from tests.unit.splitter.cutting import CORE, saved, xml_of


def analysed(model, tmp_path):
    return analyse(CORE, saved(model, tmp_path))


def llama():
    return CORE.read_model(xml_of("llama"))


def parameter(name, shape, kind=ov.Type.i64):
    node = opset13.parameter(ov.PartialShape(shape), kind, name=name)
    node.output(0).set_names({name})
    return node


def test_layers_that_share_their_kv_cache_are_refused_in_plain_words():
    with pytest.raises(UnsupportedModelError) as caught:
        weigh(analyse(CORE, xml_of("shared-kv-gemma3n")))
    assert "before layer 1" in caught.value.what
    assert "layers share their KV cache" in caught.value.what
    assert "past_key_values.0.key" in caught.value.what


@pytest.mark.parametrize("layers", [LayerRange(0, 1), LayerRange(1, 2)])
def test_no_shard_is_cut_out_of_layers_that_share_a_cache(layers):
    with pytest.raises(UnsupportedModelError, match="share their KV cache"):
        cut_shard(analyse(CORE, xml_of("shared-kv-gemma3n")), layers)


@pytest.mark.parametrize("name", ["recurrent-lfm2", "recurrent-granite-hybrid"])
def test_a_recurrent_state_is_named_with_what_writes_it(name):
    with pytest.raises(UnsupportedModelError) as caught:
        analyse(CORE, xml_of(name))
    assert "cache_params.past.conv.0" in caught.value.what
    assert "Recurrent and hybrid models" in caught.value.what
    assert "layers.0" in caught.value.what


def test_a_model_without_state_is_told_to_be_exported_again(tmp_path):
    model = llama()
    stateful_to_stateless_transformation(model)
    with pytest.raises(UnsupportedModelError) as caught:
        analysed(model, tmp_path)
    assert "keeps no state" in caught.value.what
    assert "stateful" in caught.value.advice


def test_an_input_that_nothing_can_fill_is_named(tmp_path):
    model = llama()
    model.add_parameters([parameter("speaker_embedding", [-1, 512], ov.Type.f32)])
    with pytest.raises(UnsupportedModelError, match="an input speaker_embedding"):
        analysed(model, tmp_path)


def test_a_known_input_of_an_unknown_shape_is_named_with_it(tmp_path):
    model = llama()
    model.add_parameters([parameter("token_type_ids", [-1, -1, -1])])
    with pytest.raises(UnsupportedModelError, match=r"token_type_ids has the shape \[\?,\?,\?\]"):
        analysed(model, tmp_path)


def test_an_ir_that_is_no_language_model_says_what_goes_in(tmp_path):
    image = parameter("pixel_values", [1, 3, 32, 32], ov.Type.f32)
    model = ov.Model([opset13.result(opset13.relu(image))], [image], "vision")
    with pytest.raises(UnsupportedModelError, match=r"no language model.*pixel_values"):
        analysed(model, tmp_path)


def test_an_ir_with_nothing_going_in_is_no_language_model(tmp_path):
    model = ov.Model([opset13.result(opset13.constant(1.0))], [], "constant")
    with pytest.raises(UnsupportedModelError, match=r"input_ids \(its inputs: none\)"):
        analysed(model, tmp_path)


def test_two_outputs_are_refused_by_name_and_shape(tmp_path):
    model = llama()
    second = opset13.result(opset13.relu(model.get_results()[0].input_value(0)))
    second.set_friendly_name("all_hidden_states")
    model.add_results([second])
    with pytest.raises(UnsupportedModelError, match=r"all_hidden_states.*one output"):
        analysed(model, tmp_path)


def test_an_output_that_is_no_logits_is_refused(tmp_path):
    """A list of tokens that grows: stateful, fed token ids, and no language model."""
    ids = parameter("input_ids", [-1, -1])
    begin = opset13.constant([[0]], dtype=ov.Type.i64)
    read = opset13.read_value(begin, "list", ov.Type.i64, ov.PartialShape([-1, -1]))
    longer = opset13.concat([read, ids], 1)
    model = ov.Model([opset13.result(longer)], [opset13.assign(longer, "list")], [ids], "list")
    with pytest.raises(UnsupportedModelError, match=r"\[\?,\?\].*logits"):
        analysed(model, tmp_path)


def test_a_state_that_is_changed_before_it_grows_is_named(tmp_path):
    """A cache that is scaled at every step is no plain memory of the past."""
    model = llama()
    read = next(n for n in model.get_ops() if n.get_type_name() == "ReadValue")
    (gather,) = [
        t.get_node()
        for t in read.output(0).get_target_inputs()
        if t.get_node().get_type_name() == "Gather"
    ]
    consumers = gather.output(0).get_target_inputs()
    scaled = opset13.multiply(gather, opset13.constant(0.5, dtype=ov.Type.f32))
    scaled.set_friendly_name("forgetting")
    for consumer in consumers:
        consumer.replace_source_output(scaled.output(0))
    with pytest.raises(UnsupportedModelError, match=r"is changed by forgetting \(Multiply\)"):
        analysed(model, tmp_path)


def test_a_second_stream_beside_the_hidden_states_is_named(tmp_path):
    """The embeddings are added again in every layer: two tensors cross each boundary."""
    model = llama()
    embedding = next(
        n
        for n in model.get_ordered_ops()
        if n.get_type_name() == "Gather" and "embed_tokens" in n.get_friendly_name()
    )
    adds = [
        n
        for n in model.get_ordered_ops()
        if n.get_type_name() == "Add"
        and n.get_output_partial_shape(0).rank.get_length() == 3
        and "layers.2" in n.get_friendly_name()
    ]
    port = adds[-1].input(1)
    both = opset13.add(port.get_source_output(), embedding.output(0))
    port.replace_source_output(both.output(0))
    analysis = analysed(model, tmp_path)
    with pytest.raises(UnsupportedModelError, match=r"layer 1.*no single tensor.*embed_tokens"):
        analysis.boundary_before(1)
    assert analysis.boundary_before(3).hidden_size == 64


def test_files_openvino_cannot_read_are_named(tmp_path):
    (tmp_path / "openvino_model.xml").write_text("<html>gone</html>")
    with pytest.raises(ModelFileError, match=r"can't read openvino_model\.xml"):
        analyse(CORE, tmp_path / "openvino_model.xml")

"""Caches are found by what they do, and layers by which depends on which."""

import pytest

from engine.errors import UnsupportedModelError
from engine.splitter.analysis import analyse
from engine.splitter.caches import find_cache_layers
from engine.splitter.graph import Graph
from tests.unit.splitter.cutting import CORE, NAMES, analysis_of, saved, xml_of


@pytest.mark.parametrize("name", NAMES)
def test_every_architecture_has_its_four_layers_of_keys_and_values(name):
    layers = analysis_of(name).layers
    assert len(layers) == 4
    for number, layer in enumerate(layers):
        keys, values = layer.caches
        assert keys.variable_id.startswith(f"past_key_values.{number}.key")
        assert values.variable_id.startswith(f"past_key_values.{number}.value")


@pytest.mark.parametrize("name", ["llama", "gpt2", "bloom", "mpt", "deepseek-v2"])
def test_a_cache_is_described_as_it_lies_in_the_graph(name):
    graph = analysis_of(name).graph
    for layer in analysis_of(name).layers:
        for cache in layer.caches:
            assert graph.types[cache.read] == "ReadValue"
            assert graph.types[cache.assign] == "Assign"
            assert graph.types[cache.reorder] == "Gather"
            assert graph.types[cache.present.node] == "Concat"
            assert cache.sequence_axis == 2
            assert cache.past.node == cache.reorder


def test_names_are_not_read(tmp_path):
    """The states of a model may be called anything, and in any order."""
    source = xml_of("llama").read_text()
    for number in range(4):
        for kind in ("key", "value"):
            old = f"past_key_values.{number}.{kind}present.{number}.{kind}"
            assert old in source
            source = source.replace(old, f"state{(number * 7 + len(kind)) % 11}{kind[0] == 'k'}")
    for number in range(4):
        source = source.replace(f".layers.{number}.", f".block{9 - number}.")
    xml = tmp_path / "openvino_model.xml"
    xml.write_text(source)
    xml.with_suffix(".bin").symlink_to(xml_of("llama").with_suffix(".bin"))
    renamed = analyse(CORE, xml)
    original = analysis_of("llama")
    assert [[c.read for c in layer.caches] for layer in renamed.layers] == [
        [c.read for c in layer.caches] for layer in original.layers
    ]
    for number in range(1, 4):
        found, expected = renamed.boundary_before(number), original.boundary_before(number)
        assert found == expected


def test_a_state_that_is_read_and_never_written_is_named():
    model = CORE.read_model(xml_of("llama"))
    sink = model.get_sinks()[0]
    variable_id = sink.get_attributes()["variable_id"]
    model.remove_sink(sink)
    with pytest.raises(UnsupportedModelError, match=f"{variable_id} is read but never written"):
        find_cache_layers(Graph(model))


def test_a_cache_kept_in_another_precision_is_still_one(tmp_path):
    """Converts may stand on both sides of the Concat."""
    from openvino import opset13  # noqa: PLC0415 - for this one graph

    model = CORE.read_model(xml_of("llama"))
    concat = next(
        s.input_value(0).get_node()
        for s in model.get_sinks()
        if s.input_value(0).get_node().get_type_name() == "Concat"
    )
    (assign,) = [
        t for t in concat.output(0).get_target_inputs() if t.get_node().get_type_name() == "Assign"
    ]
    half = opset13.convert(concat, "f16")
    assign.replace_source_output(opset13.convert(half, "f32").output(0))
    assert len(analyse(CORE, saved(model, tmp_path)).layers) == 4

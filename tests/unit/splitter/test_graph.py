"""A graph as indices: which edges carry values, and what depends on what."""

import openvino as ov
import pytest
from openvino import opset13

from engine.splitter.graph import Graph, connect
from tests.unit.splitter.cutting import CORE, analysis_of, xml_of


def small():
    """``y = reshape(relu(x), shape_of(x)) + convert_like(b, x)``, and a state that adds ``y``."""
    x = opset13.parameter(ov.PartialShape([-1, 4]), ov.Type.f32, name="x")
    relu = opset13.relu(x, name="relu")
    shape = opset13.shape_of(x, name="shape")
    reshaped = opset13.reshape(relu, shape, False, name="reshaped")
    bias = opset13.constant([1], dtype=ov.Type.i32, name="bias")
    like = opset13.convert_like(bias, relu, name="like")
    total = opset13.add(reshaped, like, name="total")
    begin = opset13.constant([[0.0] * 4], dtype=ov.Type.f32, name="begin")
    read = opset13.read_value(begin, "s", ov.Type.f32, ov.PartialShape([-1, 4]), name="read")
    grown = opset13.concat([read, total], 0, name="grown")
    model = ov.Model([opset13.result(grown)], [opset13.assign(grown, "s")], [x], "small")
    graph = Graph(model)
    return graph, {graph.name(i): i for i in range(len(graph))}


def names(graph, nodes):
    return {graph.name(i) for i in nodes}


def test_sources_come_before_consumers():
    graph = analysis_of("llama").graph
    for node, edges in enumerate(graph.edges):
        assert all(edge.source < node for edge in edges)


def test_a_second_reading_has_the_same_indices():
    graph = analysis_of("phi3").graph
    again = Graph(CORE.read_model(xml_of("phi3")))
    assert [graph.name(i) for i in range(len(graph))] == [again.name(i) for i in range(len(again))]
    assert graph.edges == again.edges


def test_shapes_and_types_are_no_values():
    graph, at = small()
    assert names(graph, graph.data_sources(at["shape"])) == set()
    assert names(graph, graph.data_sources(at["like"])) == {"bias"}
    assert names(graph, graph.data_sources(at["reshaped"])) == {"relu", "shape"}
    assert names(graph, [c for c, _ in graph.data_consumers(at["relu"])]) == {"reshaped"}
    assert len(graph.consumers[at["relu"]]) == 2


def test_marks_spread_along_values_and_not_through_states():
    graph, at = small()
    bits = graph.upstream({at["x"]: 1, at["bias"]: 2, at["begin"]: 4, at["read"]: 8})
    assert bits[at["shape"]] == 0, "only its shape was asked for"
    assert bits[at["total"]] == 1 | 2
    assert bits[at["read"]] == 8, "what begins a state is not what it holds"
    assert bits[at["grown"]] == 1 | 2 | 8


def test_marks_spread_back_from_consumers():
    graph, at = small()
    (assign,) = graph.of_type("Assign")
    bits = graph.downstream({assign: 1, at["like"]: 2})
    assert bits[at["x"]] == 1
    assert bits[at["bias"]] == 1 | 2
    assert bits[at["read"]] == 1
    assert bits[at["begin"]] == 0


def test_what_is_needed_follows_every_edge_up_to_the_stops():
    graph, at = small()
    assert names(graph, graph.needed_by([at["like"]])) == {"like", "bias", "relu", "x"}
    assert names(graph, graph.needed_by([at["like"]], frozenset([at["relu"]]))) == {
        "like",
        "bias",
        "relu",
    }


def test_connecting_moves_the_consumers_and_leaves_the_names():
    graph, at = small()
    relu, x = graph.nodes[at["relu"]], graph.nodes[at["x"]]
    relu.output(0).set_names({"hidden"})
    consumers = list(relu.output(0).get_target_inputs())
    connect(consumers, x.output(0))
    assert list(relu.output(0).get_target_inputs()) == []
    assert relu.output(0).get_names() == {"hidden"}
    assert graph.nodes[at["reshaped"]].input_value(0).get_node().get_friendly_name() == "x"


@pytest.mark.parametrize("kind", [("Parameter",), ("ReadValue", "Assign"), ("NoSuchType",)])
def test_nodes_are_found_by_type(kind):
    graph, _ = small()
    assert [graph.types[i] for i in graph.of_type(*kind)] == [t for t in graph.types if t in kind]

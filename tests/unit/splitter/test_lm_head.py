"""Only the wanted rows go through the LM head, and they are the rows one would get anyway."""

import numpy as np
import openvino as ov
import pytest
from openvino import opset13

from engine.domain import LayerRange
from engine.splitter.cut import cut_shard
from engine.splitter.graph import Graph
from engine.splitter.lm_head import ROWS_INPUT, find_head_weights, gather_wanted_rows
from tests.unit.splitter.cutting import CORE, NAMES, analysis_of, run_once, shard_of, xml_of

HIDDEN = np.random.default_rng(3).standard_normal((1, 7, 64)).astype(np.float32)
# Scales, soft caps, biases and integer weights between the hidden states and the logits.
HEADS = ["llama", "cohere", "gemma2", "granite", "phi", "qwen2-int8", "opt"]


@pytest.mark.parametrize("name", NAMES)
def test_the_rows_are_chosen_before_the_heads_weights_are_read(name):
    """The last shard of every architecture is told which; its Gather feeds the head's MatMul."""
    shard = shard_of(name, LayerRange(3, 4))
    (rows,) = [p for p in shard.get_parameters() if p.get_friendly_name() == ROWS_INPUT]
    (gather,) = [t.get_node() for t in rows.output(0).get_target_inputs()]
    (head,) = [t.get_node() for t in gather.output(0).get_target_inputs()]
    assert (gather.get_type_name(), head.get_type_name()) == ("Gather", "MatMul")
    assert 512 in [d.get_length() for d in head.get_input_partial_shape(1)]


@pytest.mark.parametrize("name", HEADS)
def test_chosen_rows_are_the_full_logits_rows(name):
    shard = shard_of(name, LayerRange(3, 4))
    full = run_once(shard, inputs_embeds=HIDDEN, sampled_tokens_indices=np.arange(7))
    assert full.shape == (7, 512)
    for rows in ([6], [4, 1, 4], []):
        wanted = np.array(rows, np.int64)
        chosen = run_once(shard, inputs_embeds=HIDDEN, sampled_tokens_indices=wanted)
        assert chosen.shape == (len(rows), 512)
        np.testing.assert_allclose(chosen, full[rows], atol=1e-5)


@pytest.mark.parametrize("name", HEADS)
def test_the_heads_weights_are_found(name):
    graph = analysis_of(name).graph
    (weights,) = find_head_weights(graph)
    shape = graph.nodes[weights].get_output_partial_shape(0)
    assert sorted(d.get_length() for d in shape) == [64, 512]


def small_graph(tail):
    """Return a graph whose logits come out of ``tail(hidden)``."""
    hidden = opset13.parameter(ov.PartialShape([-1, -1, 4]), ov.Type.f32, name="inputs_embeds")
    model = ov.Model([opset13.result(tail(hidden))], [hidden], "head")
    return model, Graph(model)


TABLE = np.ones((4, 8), np.float32)


@pytest.mark.parametrize(
    "tail",
    [
        lambda x: opset13.softmax(opset13.matmul(x, TABLE, False, False), 2),
        lambda x: opset13.matmul(x, x, False, True),
        lambda x: opset13.add(
            opset13.matmul(x, TABLE, False, False), opset13.matmul(x, TABLE, False, False)
        ),
    ],
    ids=["an operation over all logits", "two moving inputs", "two heads"],
)
def test_a_head_of_another_form_is_left_alone(tail):
    """All rows come out then, and the stage takes those it wants."""
    model, graph = small_graph(tail)
    assert gather_wanted_rows(graph, graph.nodes) == []
    assert find_head_weights(graph) == []
    assert len(model.get_ops()) == len(graph)


def test_several_outputs_have_no_head():
    hidden = opset13.parameter(ov.PartialShape([-1, -1, 4]), ov.Type.f32)
    logits = opset13.matmul(hidden, TABLE, False, False)
    model = ov.Model([opset13.result(logits), opset13.result(hidden)], [hidden], "two")
    graph = Graph(model)
    assert gather_wanted_rows(graph, graph.nodes) == []
    assert find_head_weights(graph) == []


def test_the_whole_models_shard_takes_rows_too():
    ids = np.array([[5, 17, 300, 42]], np.int64)
    full = run_once(CORE.read_model(xml_of("llama")), input_ids=ids)
    whole = cut_shard(analysis_of("llama"), LayerRange(0, 4)).model
    rows = run_once(whole, input_ids=ids, sampled_tokens_indices=np.array([1, 3]))
    np.testing.assert_allclose(rows, full[[1, 3]], atol=1e-5)

"""What each dimension of a tensor means, told from two sets of sizes."""

import numpy as np
import openvino as ov
import pytest
from openvino import opset13

from engine.splitter.graph import Graph, Tensor
from engine.splitter.symbols import BATCH, PAST, TOKENS, TOTAL, Dim, ShapeMeanings, cache_shapes
from tests.unit.splitter.cutting import NAMES, analysis_of


def meanings_of(build):
    """Return the meanings of the tensors a small graph's results name."""

    def made():
        ids = opset13.parameter(ov.PartialShape([-1, -1]), ov.Type.i64, name="input_ids")
        ids.output(0).set_names({"input_ids"})
        mask = opset13.parameter(ov.PartialShape([-1, -1]), ov.Type.i64, name="attention_mask")
        mask.output(0).set_names({"attention_mask"})
        results = [opset13.result(n, name=f"r{i}") for i, n in enumerate(build(ids, mask))]
        return ov.Model(results, [ids, mask], "small")

    models = (made(), made())
    graphs = (Graph(models[0]), Graph(models[1]))
    meanings = ShapeMeanings(models, graphs)
    found = {}
    for i in graphs[0].of_type("Result"):
        edge = graphs[0].edges[i][0]
        found[graphs[0].name(i)] = meanings.of(Tensor(edge.source, edge.source_port))
    return [found[name] for name in sorted(found)]


def test_sizes_products_and_constants_are_told_apart():
    def build(ids, mask):
        flat = opset13.reshape(ids, np.array([-1]), False)
        table = opset13.constant(np.zeros((32, 6), np.float32))
        rows = opset13.gather(table, ids, opset13.constant(0))
        heads = opset13.reshape(rows, np.array([0, 0, 2, 3]), True)
        both = opset13.unsqueeze(ids, opset13.constant(2)) * opset13.unsqueeze(
            mask, opset13.constant(1)
        )
        return [ids, mask, flat, rows, heads, table, both]

    ids, mask, flat, rows, heads, table, both = meanings_of(build)
    assert ids == (BATCH, TOKENS)
    assert mask == (BATCH, TOTAL)
    assert flat == (Dim(1, ("batch", "tokens")),)
    assert rows == (BATCH, TOKENS, Dim(6))
    assert heads == (BATCH, TOKENS, Dim(2), Dim(3))
    assert table == (Dim(32), Dim(6))
    assert both == (BATCH, TOKENS, TOTAL)


def test_a_dimension_that_is_no_product_of_sizes_has_no_meaning():
    """Twice the batch is one; the tokens and one more is none."""

    def build(ids, mask):
        one = opset13.constant(np.zeros((1, 1), np.int64))
        longer = opset13.concat([opset13.broadcast(one, np.array([1, 1])), one], 0)
        row = opset13.reduce_sum(ids, opset13.constant([0]), True)
        return [
            opset13.concat([ids, ids], 0),
            opset13.concat([row, one], 1),
            longer,
            mask,
        ]

    doubled, longer, constant, _ = meanings_of(build)
    assert doubled == (Dim(2, ("batch",)), TOKENS)
    assert longer is None
    assert constant == (Dim(2), Dim(1))


@pytest.mark.parametrize("name", NAMES)
def test_the_caches_of_every_architecture_are_understood(name):
    analysis = analysis_of(name)
    for number in range(4):
        shapes = [shape for _, shape in cache_shapes(analysis.layers, analysis.meanings, number)]
        assert len(shapes) == 4
        for past, present in (shapes[:2], shapes[2:]):
            assert past[0] == present[0] == BATCH
            assert (past[2], present[2]) == (PAST, TOTAL)
            assert past[1] == present[1]
            assert past[3] == present[3]


@pytest.mark.parametrize("name", ["llama", "bloom"])
def test_a_state_itself_has_a_meaning(name):
    """Models without beam_idx ask the ReadValue for its shape."""
    analysis = analysis_of(name)
    for cache in analysis.layers[2].caches:
        meaning = analysis.meanings.of(Tensor(cache.read, 0))
        assert (meaning[0], meaning[2]) == (BATCH, PAST)


def test_logits_are_over_the_vocabulary():
    analysis = analysis_of("llama")
    (result,) = analysis.graph.of_type("Result")
    edge = analysis.graph.edges[result][0]
    assert analysis.meanings.of(Tensor(edge.source, edge.source_port)) == (BATCH, TOKENS, Dim(512))


@pytest.mark.parametrize(
    ("dim", "shown"),
    [(BATCH, "batch"), (Dim(4), "4"), (Dim(1), "1"), (Dim(2, ("batch", "past")), "batch*past*2")],
)
def test_a_dimension_is_shown_as_a_product(dim, shown):
    assert str(dim) == shown

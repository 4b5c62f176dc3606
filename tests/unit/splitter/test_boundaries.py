"""The hidden states between layers: the last tensor that everything before must pass through."""

import pytest

from engine.splitter.symbols import BATCH, TOKENS, Dim
from tests.unit.splitter.cutting import NAMES, analysis_of


@pytest.mark.parametrize("name", NAMES)
def test_every_architecture_can_be_cut_before_every_layer(name):
    analysis = analysis_of(name)
    found = [analysis.boundary_before(layer) for layer in (1, 2, 3)]
    assert [b.layer for b in found] == [1, 2, 3]
    assert [b.hidden_size for b in found] == [64] * 3
    for boundary in found:
        assert analysis.meanings.of(boundary.tensor) == (BATCH, TOKENS, Dim(64))


@pytest.mark.parametrize("name", ["llama", "gpt2", "phi", "gemma2", "mixtral"])
def test_a_boundary_lies_behind_the_caches_before_and_ahead_of_those_behind(name):
    analysis = analysis_of(name)
    for layer in (1, 2, 3):
        node = analysis.boundary_before(layer).tensor.node
        for number, caches in enumerate(analysis.layers):
            for cache in caches.caches:
                marks = {cache.read: 1}
                reaches = bool(analysis.graph.upstream(marks)[node])
                assert reaches == (number < layer), (layer, number)


def test_the_embeddings_are_the_boundary_before_the_first_layer():
    """What the scales of the embeddings (Gemma) belong to is the first shard's."""
    for name in ("llama", "gemma2"):
        analysis = analysis_of(name)
        boundary = analysis.finder.before(0)
        assert boundary.hidden_size == 64
        assert boundary.tensor.node < analysis.boundary_before(1).tensor.node

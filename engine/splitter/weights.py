"""How many bytes of weights each layer, the embedding and the LM head have."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.splitter.lm_head import find_head_weights

if TYPE_CHECKING:
    from engine.splitter.analysis import Analysis
    from engine.splitter.graph import Graph


@dataclass(frozen=True, slots=True)
class WeightBytes:
    """Bytes of constants, by part of the model.

    Attributes:
        layers: Of each decoder layer.
        embedding: Only the first shard needs them.
        head: Only the last shard needs them; a tied table is counted here and in ``embedding``.
        precision: The element type most of the bytes are stored in.
    """

    layers: tuple[int, ...]
    embedding: int
    head: int
    precision: str


def weigh(analysis: Analysis) -> WeightBytes:
    """Count a model's weights.

    Args:
        analysis: Of the whole model; every boundary is looked at.

    Raises:
        UnsupportedModelError: It can't be cut at some boundary.
    """
    graph = analysis.graph
    cuts = [analysis.boundary_before(k).tensor.node for k in range(1, analysis.num_layers)]
    entry = analysis.finder.before(0).tensor.node
    embedding = _constants_behind(graph, [entry], frozenset())
    head = _constants_behind(graph, find_head_weights(graph), frozenset())
    layers = []
    for number, layer in enumerate(analysis.layers):
        begin = entry if number == 0 else cuts[number - 1]
        end = graph.of_type("Result") if number == len(cuts) else [cuts[number]]
        roots = [cache.assign for cache in layer.caches] + end
        own = _constants_behind(graph, roots, frozenset([begin])) - embedding - head
        layers.append(sum(_num_bytes(graph, i) for i in own))
    precisions: Counter[str] = Counter()
    for i in graph.of_type("Constant"):
        kind = graph.nodes[i].get_output_element_type(0).get_type_name()
        precisions[kind] += _num_bytes(graph, i)
    return WeightBytes(
        tuple(layers),
        sum(_num_bytes(graph, i) for i in embedding),
        sum(_num_bytes(graph, i) for i in head),
        precisions.most_common(1)[0][0],
    )


def _constants_behind(graph: Graph, roots: list[int], stops: frozenset[int]) -> set[int]:
    """Return the constants whose values the roots depend on, not looking past the stops."""
    seen: set[int] = set()
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if node in stops or graph.types[node] == "ReadValue":
            continue
        stack.extend(graph.data_sources(node))
    return {i for i in seen if graph.types[i] == "Constant"}


def _num_bytes(graph: Graph, node: int) -> int:
    return int(graph.nodes[node].get_byte_size())

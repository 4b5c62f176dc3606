"""Finding the one tensor that separates decoder layers.

The tensor before layer ``l`` is a bottleneck: take it away, and no value of an earlier layer's
cache, nor of the token ids, reaches the logits or a cache of layer ``l`` or later. Where there is
no such tensor the model can't be cut there, and the reason names what goes around.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.errors import UnsupportedModelError
from engine.splitter.graph import Graph, Tensor

if TYPE_CHECKING:
    from engine.splitter.caches import CacheLayer

_FLOATS = frozenset({"f32", "f16", "bf16"})
# What may stand between a cache and an attention: the repetition of K/V heads.
_REPEATING = frozenset({
    "Broadcast",
    "Convert",
    "ConvertLike",
    "Reshape",
    "Squeeze",
    "Tile",
    "Transpose",
    "Unsqueeze",
})


@dataclass(frozen=True, slots=True)
class Boundary:
    """The hidden states before a layer.

    Attributes:
        layer: The layer behind the boundary.
        tensor: Float, rank 3, ``[batch, tokens, hidden_size]``.
        hidden_size: Its last dimension.
    """

    layer: int
    tensor: Tensor
    hidden_size: int


class BoundaryFinder:
    """Answers, for one graph, where it can be cut before a layer."""

    def __init__(self, graph: Graph, layers: tuple[CacheLayer, ...]) -> None:
        """Prepare the marks all boundaries share.

        Args:
            graph: The whole model.
            layers: Its caches, as ``find_cache_layers`` gives them.
        """
        self._graph = graph
        self._layers = layers
        self._token_bit = 1 << len(layers)
        reads = {c.read: 1 << number for number, layer in enumerate(layers) for c in layer.caches}
        tokens = dict.fromkeys(_token_parameters(graph), self._token_bit)
        self._from = graph.upstream(reads | tokens)
        assigns = {
            c.assign: 1 << number for number, layer in enumerate(layers) for c in layer.caches
        }
        results = dict.fromkeys(graph.of_type("Result"), self._token_bit)
        self._to = graph.downstream(assigns | results)

    def before(self, layer: int) -> Boundary:
        """Find the boundary before a layer.

        Args:
            layer: From 1 to the number of layers less one.

        Raises:
            UnsupportedModelError: More than one tensor crosses there.
        """
        on_path = self._on_path(layer)
        found: Boundary | None = None
        sources_left = sum(1 for i in on_path if not self._sources_on(i, on_path))
        open_edges = 0
        for i in sorted(on_path):
            if self._graph.types[i] in {"Assign", "Result"}:
                break  # something behind the boundary is complete: it lies before here
            incoming = self._sources_on(i, on_path)
            open_edges -= len(incoming)
            if not incoming:
                sources_left -= 1
            is_behind = self._from[i] & ~((1 << layer) - 1) & (self._token_bit - 1)
            if open_edges == 0 and sources_left == 0 and not is_behind:
                found = self._as_boundary(layer, i, on_path) or found
            open_edges += sum(1 for c, _ in self._graph.data_consumers(i) if c in on_path)
        if found is None:
            raise UnsupportedModelError(
                f"The model can't be cut before layer {layer}: {self._crossing(layer, on_path)}."
            )
        return found

    def _on_path(self, layer: int) -> frozenset[int]:
        before = ((1 << layer) - 1) | self._token_bit
        behind = ~((1 << layer) - 1)
        return frozenset(
            i for i in range(len(self._graph)) if self._from[i] & before and self._to[i] & behind
        )

    def _sources_on(self, node: int, on_path: frozenset[int]) -> list[int]:
        if self._graph.types[node] == "ReadValue":
            return []
        return [s for s in self._graph.data_sources(node) if s in on_path]

    def _as_boundary(self, layer: int, node: int, on_path: frozenset[int]) -> Boundary | None:
        graph = self._graph
        ports = {
            graph.edges[c][p].source_port for c, p in graph.data_consumers(node) if c in on_path
        }
        if len(ports) != 1:
            return None
        (port,) = ports
        shape = graph.nodes[node].get_output_partial_shape(port)
        if shape.rank.is_dynamic or shape.rank.get_length() != 3 or shape[2].is_dynamic:
            return None
        if graph.nodes[node].get_output_element_type(port).get_type_name() not in _FLOATS:
            return None
        return Boundary(layer, Tensor(node, port), shape[2].get_length())

    def _crossing(self, layer: int, on_path: frozenset[int]) -> str:
        """Say what goes around: the values made before the layer's caches and used behind."""
        graph = self._graph
        behind = ~((1 << layer) - 1) & (self._token_bit - 1)
        early = {i for i in on_path if not self._from[i] & behind}
        crossing = sorted(
            i
            for i in early
            if any(c in on_path and c not in early for c, _ in graph.data_consumers(i))
        )
        shared = [
            cache.variable_id
            for earlier in self._layers[:layer]
            for cache in earlier.caches
            if self._repeated(cache.present.node).intersection(crossing)
        ]
        if shared:
            return (
                f"layers share their KV cache (the cache {shared[0]} is read by layers on both "
                "sides)"
            )
        names = ", ".join(graph.name(i) for i in crossing[:3])
        return f"no single tensor carries the hidden states across (these do: {names})"

    def _repeated(self, present: int) -> set[int]:
        """Return a cache's present and what is only it in another shape."""
        found: set[int] = set()
        stack = [present]
        while stack:
            node = stack.pop()
            if node not in found:
                found.add(node)
                consumers = (c for c, _ in self._graph.data_consumers(node))
                stack.extend(c for c in consumers if self._graph.types[c] in _REPEATING)
        return found


def _token_parameters(graph: Graph) -> list[int]:
    """Return the parameters that carry content (as opposed to masks and positions)."""
    return [
        i
        for i in graph.of_type("Parameter")
        if graph.nodes[i].output(0).get_names() & {"input_ids", "inputs_embeds"}
    ]

"""Finding the KV caches of a stateful model, and which decoder layer each belongs to.

No names are read: a cache is a ReadValue/Assign pair of one variable whose Assign stores the old
value with the new one appended, and layers are ordered by which caches depend on which.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.errors import UnsupportedModelError
from engine.splitter.graph import Graph, Tensor

# What may stand between a ReadValue and the Concat that appends, without changing what a cache is.
_PASS_THROUGH = frozenset({"Convert", "Gather", "Slice", "StridedSlice"})


@dataclass(frozen=True, slots=True)
class Cache:
    """One state variable that grows by a token at each step.

    Attributes:
        variable_id: The state's name.
        read: The ReadValue node.
        assign: The Assign node.
        reorder: The Gather by ``beam_idx`` behind the ReadValue; None where the source has none.
        past: The tensor that holds the past when the new part is appended.
        present: Past and new together.
        sequence_axis: The axis that grows.
    """

    variable_id: str
    read: int
    assign: int
    reorder: int | None
    past: Tensor
    present: Tensor
    sequence_axis: int


@dataclass(frozen=True, slots=True)
class CacheLayer:
    """The caches of one decoder layer; keys first where attention tells which they are."""

    caches: tuple[Cache, ...]


def find_cache_layers(graph: Graph) -> tuple[CacheLayer, ...]:
    """Find every cache and order them into decoder layers.

    Args:
        graph: Of a stateful language model.

    Returns:
        One entry a decoder layer, from the first to the last.

    Raises:
        UnsupportedModelError: There is no state, or one is not a growing key/value cache.
    """
    caches = _find_caches(graph)
    marks = {cache.read: 1 << i for i, cache in enumerate(caches)}
    upstream = graph.upstream(marks)
    depth = {
        cache.variable_id: (upstream[cache.assign] & ~(1 << i)).bit_count()
        for i, cache in enumerate(caches)
    }
    levels = sorted(set(depth.values()))
    keys = _key_caches(graph, caches)
    return tuple(
        CacheLayer(
            tuple(
                sorted(
                    (c for c in caches if depth[c.variable_id] == level),
                    key=lambda c: c.read not in keys,
                )
            )
        )
        for level in levels
    )


def _find_caches(graph: Graph) -> list[Cache]:
    assigns = {graph.nodes[i].get_attributes()["variable_id"]: i for i in graph.of_type("Assign")}
    reads = graph.of_type("ReadValue")
    if not reads:
        raise UnsupportedModelError(
            "The model keeps no state: it has no KV cache inside.",
            "Export it again as a stateful model (optimum-intel does so by default).",
        )
    caches = []
    for read in reads:
        variable_id = str(graph.nodes[read].get_attributes()["variable_id"])
        assign = assigns.get(variable_id)
        if assign is None:
            raise UnsupportedModelError(f"The state {variable_id} is read but never written.")
        caches.append(_cache(graph, variable_id, read, assign))
    return caches


def _cache(graph: Graph, variable_id: str, read: int, assign: int) -> Cache:
    concat = graph.edges[assign][0].source
    while graph.types[concat] == "Convert":
        concat = graph.edges[concat][0].source
    if graph.types[concat] != "Concat" or len(graph.edges[concat]) != 2:
        raise UnsupportedModelError(
            f"The state {variable_id} is not a key/value cache: {graph.name(concat)} "
            f"({graph.types[concat]}) writes it, where a Concat of old and new was expected. "
            "Recurrent and hybrid models can't be cut yet."
        )
    past = graph.edges[concat][0]
    node, reorder = past.source, None
    while node != read:
        if graph.types[node] not in _PASS_THROUGH:
            raise UnsupportedModelError(
                f"The state {variable_id} is changed by {graph.name(node)} "
                f"({graph.types[node]}) before it is appended to; such a cache can't be cut."
            )
        if graph.types[node] == "Gather":
            reorder = node
        node = graph.edges[node][0].source
    axis = int(graph.nodes[concat].get_attributes()["axis"])
    rank = graph.nodes[concat].get_output_partial_shape(0).rank.get_length()
    return Cache(
        variable_id=variable_id,
        read=read,
        assign=assign,
        reorder=reorder,
        past=Tensor(past.source, past.source_port),
        present=Tensor(concat, 0),
        sequence_axis=axis % rank,
    )


def _key_caches(graph: Graph, caches: list[Cache]) -> set[int]:
    """Return the ReadValue nodes whose value reaches the key side of an attention."""
    reads = {cache.read for cache in caches}
    keys = set()
    for attention in graph.of_type("ScaledDotProductAttention"):
        node = graph.edges[attention][1].source
        while node not in reads and graph.edges[node]:
            node = graph.edges[node][0].source
        keys.add(node)
    return keys & reads

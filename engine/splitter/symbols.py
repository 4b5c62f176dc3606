"""What the dimensions of a tensor mean: batch, new tokens, past tokens, or a constant.

A later shard has no layer 0, yet much of the graph asks layer 0's tensors for their shapes. To
answer from another tensor one must know what each dimension *means*; equal ranks prove nothing.
The meaning is found by shape inference with two sets of sizes that share no factor: a dimension
that is 7 in one and 11 in the other is the batch, one that is 64 in both is a constant.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import openvino as ov
from openvino import opset13

from engine.errors import UnsupportedModelError

if TYPE_CHECKING:
    from engine.splitter.caches import CacheLayer
    from engine.splitter.graph import Graph, Tensor


@dataclass(frozen=True, slots=True, order=True)
class Dim:
    """One dimension: ``factor`` times the named sizes, e.g. ``Dim(4, ("batch",))``."""

    factor: int
    sizes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "*".join([*self.sizes, *([str(self.factor)] if self.factor != 1 else [])]) or "1"


BATCH = Dim(1, ("batch",))
TOKENS = Dim(1, ("tokens",))
PAST = Dim(1, ("past",))
TOTAL = Dim(1, ("total",))

Shape = tuple[Dim, ...]


@dataclass(frozen=True, slots=True)
class _Sizes:
    batch: int
    tokens: int
    past: int

    def of(self, dim: Dim) -> int:
        named = {
            "batch": self.batch,
            "tokens": self.tokens,
            "past": self.past,
            "total": self.past + self.tokens,
        }
        product = dim.factor
        for size in dim.sizes:
            product *= named[size]
        return product


# Primes, so that a product names its factors; past + tokens is told apart by both sets.
_PROBES = (_Sizes(batch=7, tokens=13, past=29), _Sizes(batch=11, tokens=17, past=37))

_CANDIDATES = (
    (),
    ("batch",),
    ("tokens",),
    ("past",),
    ("total",),
    ("batch", "tokens"),
    ("batch", "past"),
    ("batch", "total"),
    ("tokens", "total"),
)

# What each parameter of a language model holds, by dimension.
_PARAMETER_SHAPES: dict[str, Shape] = {
    "input_ids": (BATCH, TOKENS),
    "inputs_embeds": (BATCH, TOKENS),  # and the hidden size, as declared
    "attention_mask": (BATCH, TOTAL),
    "position_ids": (BATCH, TOKENS),
    "token_type_ids": (BATCH, TOKENS),
    "beam_idx": (BATCH,),
}


class ShapeMeanings:
    """The meaning of every dimension of every tensor of a model."""

    def __init__(self, probed: tuple[ov.Model, ov.Model], graphs: tuple[Graph, Graph]) -> None:
        """Infer shapes twice.

        Args:
            probed: Two readings of the model; both are changed and of no other use afterwards.
            graphs: Their indices, made before the change.

        Raises:
            UnsupportedModelError: The model has an input Daisy does not know.
        """
        self._graphs = graphs
        self._states = tuple(
            _make_static(model, graph, sizes)
            for model, graph, sizes in zip(probed, graphs, _PROBES, strict=True)
        )

    def of(self, tensor: Tensor) -> Shape | None:
        """Return the meaning of a tensor's dimensions; None where it can't be told.

        Args:
            tensor: Named by its index in any reading of the same files.
        """
        first, second = (
            states.get(tensor.node, graph.nodes[tensor.node]).get_output_partial_shape(tensor.port)
            for graph, states in zip(self._graphs, self._states, strict=True)
        )
        if first.is_dynamic or second.is_dynamic:
            return None
        dims = [
            _meaning(a.get_length(), b.get_length()) for a, b in zip(first, second, strict=True)
        ]
        return None if None in dims else tuple(d for d in dims if d is not None)


def _make_static(model: ov.Model, graph: Graph, sizes: _Sizes) -> dict[int, ov.Node]:
    """Give every input and state a size; return what stands for each ReadValue."""
    for i in graph.of_type("Parameter"):
        node = graph.nodes[i]
        node.set_partial_shape(_parameter_shape(node, sizes))
    stand_ins: dict[int, ov.Node] = {}
    for i in graph.of_type("ReadValue"):
        node = graph.nodes[i]
        stand_in = opset13.parameter(
            _state_shape(node, sizes), node.get_output_element_type(0), name=f"state_{i}"
        )
        for target in node.output(0).get_target_inputs():
            target.replace_source_output(stand_in.output(0))
        stand_ins[i] = stand_in
    for i in graph.of_type("Broadcast"):
        _keep_where_zero(graph.nodes[i])
    for i in graph.of_type("Assign"):
        model.remove_sink(graph.nodes[i])
    model.add_parameters(list(stand_ins.values()))
    model.validate_nodes_and_infer_types()
    return stand_ins


def _keep_where_zero(broadcast: ov.Node) -> None:
    """Write 1 for 0 in a two-way broadcast's target.

    The GGUF reader writes 0 for "as it is"; the devices take it so, shape inference of a static
    shape does not. In a two-way broadcast 1 says the same.
    """
    if broadcast.get_attributes().get("mode") != "bidirectional":
        return
    target = broadcast.input_value(1).get_node()
    if target.get_type_name() != "Concat":
        return
    for port in target.inputs():
        part = port.get_source_output().get_node()
        if part.get_type_name() == "Constant" and part.data.size == 1 and part.data.item() == 0:
            one = opset13.constant([1], dtype=part.get_output_element_type(0))
            port.replace_source_output(one.output(0))


def _parameter_shape(node: ov.Node, sizes: _Sizes) -> ov.PartialShape:
    names = node.output(0).get_names()
    known = next((_PARAMETER_SHAPES[n] for n in sorted(names) if n in _PARAMETER_SHAPES), None)
    declared = node.get_output_partial_shape(0)
    if known is None or declared.rank.is_dynamic:
        raise UnsupportedModelError(
            f"The model wants an input {'/'.join(sorted(names)) or node.get_friendly_name()}, "
            "which Daisy does not know how to fill."
        )
    dims: list[int] = [sizes.of(dim) for dim in known]
    extra = declared.rank.get_length() - len(dims)
    if extra < 0 or any(declared[len(dims) + k].is_dynamic for k in range(extra)):
        raise UnsupportedModelError(
            f"The model's input {'/'.join(sorted(names))} has the shape {declared}, "
            "which Daisy does not know how to fill."
        )
    dims.extend(declared[len(known) + k].get_length() for k in range(extra))
    return ov.PartialShape(dims)


def _state_shape(node: ov.Node, sizes: _Sizes) -> ov.PartialShape:
    declared = node.get_output_partial_shape(0)
    dims: list[int] = []
    open_sizes = [sizes.batch, sizes.past]
    for dim in declared:
        if dim.is_static:
            dims.append(dim.get_length())
        elif open_sizes:
            dims.append(open_sizes.pop(0))
        else:
            raise UnsupportedModelError(
                f"The state {node.get_attributes()['variable_id']} has the shape {declared}; "
                "a KV cache grows along one dimension."
            )
    return ov.PartialShape(dims)


def _meaning(first: int, second: int) -> Dim | None:
    """Find the product of named sizes that gives both lengths, one in each probe."""
    for sizes in _CANDIDATES:
        a, b = (probe.of(Dim(1, sizes)) for probe in _PROBES)
        if first % a == 0 and second % b == 0 and first // a == second // b:
            return Dim(first // a, sizes)
    return None


def cache_shapes(
    layers: tuple[CacheLayer, ...], meanings: ShapeMeanings, layer: int
) -> list[tuple[Tensor, Shape]]:
    """Return the past and present tensors of one layer's caches whose shapes are understood.

    Args:
        layers: The model's cache layers.
        meanings: Of the same model.
        layer: Which one.
    """
    tensors = [t for cache in layers[layer].caches for t in (cache.past, cache.present)]
    return [(t, s) for t in tensors if (s := meanings.of(t)) is not None]

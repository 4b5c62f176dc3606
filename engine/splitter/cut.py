"""Cutting one shard: the layers of a range, and whatever they need of the rest.

What a later shard needs of layer 0 is never its values, only its shapes: the length of the past,
the number of new tokens. Each such question is asked of a tensor of the shard's own instead (it
is *re-rooted*). Sub-graphs that all layers share (positions, masks) are carried in every shard.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import openvino as ov
from openvino import opset13

from engine.errors import UnsupportedModelError
from engine.splitter.analysis import read_model
from engine.splitter.fusion import ensure_reorder
from engine.splitter.graph import Tensor, connect
from engine.splitter.lm_head import gather_wanted_rows
from engine.splitter.symbols import BATCH, PAST, TOKENS, TOTAL, Dim, Shape, cache_shapes

if TYPE_CHECKING:
    from engine.domain import LayerRange
    from engine.splitter.analysis import Analysis
    from engine.splitter.caches import CacheLayer
    from engine.splitter.graph import Edge

HIDDEN_INPUT = "inputs_embeds"  # the PagedAttention transformation and NPUW look for this name
HIDDEN_OUTPUT = "hidden_states"
_COPIED_RT_INFO = ("runtime_options", "nncf", "model_info")


@dataclass(frozen=True, slots=True)
class Cut:
    """One shard's graph, and what was done to make it.

    Attributes:
        model: Ready to be saved; its weights are still the source's, mapped.
        injected_reorders: Caches that got a ``beam_idx`` Gather the source did not have.
        rerooted: Shape questions that are answered without the tensor they were put to.
    """

    model: ov.Model
    injected_reorders: int
    rerooted: int


def cut_shard(analysis: Analysis, layers: LayerRange) -> Cut:
    """Cut the shard of a layer range out of a model.

    Args:
        analysis: Of the whole model.
        layers: A non-empty range within it.

    Returns:
        The shard. Inputs: ``input_ids`` i64 ``[batch, tokens]`` in the first shard, else
        ``inputs_embeds`` f32 ``[batch, tokens, hidden_size]``; and the source's
        ``attention_mask``, ``position_ids``, ``beam_idx`` where used. Output: ``hidden_states``
        f32, or ``logits``; the last shard has one more input, ``sampled_tokens_indices`` i64
        ``[rows]``, the rows that go through the LM head.

    Raises:
        UnsupportedModelError: The model can't be cut there; names the tensor.
    """
    return _Cutter(analysis, layers).cut()


class _Cutter:
    """The work of one cut; holds the reading it changes."""

    def __init__(self, analysis: Analysis, layers: LayerRange) -> None:
        self._analysis = analysis
        self._layers = layers
        self._is_first = layers.start == 0
        self._is_last = layers.stop == analysis.num_layers
        self._begin = None if self._is_first else analysis.boundary_before(layers.start)
        self._end = None if self._is_last else analysis.boundary_before(layers.stop)
        self._source = read_model(analysis.core, analysis.xml)
        self._nodes: list[ov.Node] = list(self._source.get_ordered_ops())
        self._parameter: ov.Node | None = None
        self._own = {c.read for layer in self._own_layers() for c in layer.caches}
        self._available = self._find_available()
        self._hidden: ov.Output | None = None

    def _own_layers(self) -> tuple[CacheLayer, ...]:
        return self._analysis.layers[self._layers.start : self._layers.stop]

    def cut(self) -> Cut:
        needed = self._find_needed()
        self._refuse_foreign(needed)
        if self._begin is not None:
            self._hidden = self._replace_boundary()
        rerooted = self._reroot_shapes(needed)
        beam, injected = self._ensure_reorders(needed)
        results, extra = self._outputs()
        assigns = [self._nodes[c.assign] for layer in self._own_layers() for c in layer.caches]
        parameters = self._parameters(needed, beam) + extra
        model = ov.Model(results, assigns, parameters, self._name())
        model.validate_nodes_and_infer_types()
        _copy_rt_info(self._source, model)
        return Cut(model, injected, rerooted)

    # ---- what can be computed here ----------------------------------------------------------

    def _find_available(self) -> list[bool]:
        """Mark every node whose value this shard can compute."""
        graph = self._analysis.graph
        tokens = {"input_ids", "inputs_embeds"}
        available = [False] * len(graph)
        for i, kind in enumerate(graph.types):
            if self._begin is not None and i == self._begin.tensor.node:
                available[i] = True
            elif kind == "Parameter":
                names = graph.nodes[i].output(0).get_names()
                available[i] = self._is_first or not names & tokens
            elif kind == "ReadValue":
                available[i] = i in self._own
            else:
                available[i] = all(available[e.source] for e in graph.edges[i] if e.is_data)
        return available

    def _find_needed(self) -> set[int]:
        """Walk back from this shard's outputs; a shape of a foreign tensor is not followed."""
        graph = self._analysis.graph
        roots = [c.assign for layer in self._own_layers() for c in layer.caches]
        roots += graph.of_type("Result") if self._end is None else [self._end.tensor.node]
        seen: set[int] = set()
        stack = roots
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            if self._begin is not None and node == self._begin.tensor.node:
                continue
            stack.extend(e.source for e in graph.edges[node] if not self._is_answered_here(e))
        return seen

    def _is_answered_here(self, edge: Edge) -> bool:
        """Whether an edge asks for a shape or type that is told without the tensor itself.

        It is another shard's, or its shape is fixed: an embedding table is not carried along to
        say how wide it is.
        """
        source = self._analysis.graph.nodes[edge.source]
        is_fixed = source.get_output_partial_shape(edge.source_port).is_static
        return not edge.is_data and (is_fixed or not self._available[edge.source])

    def _refuse_foreign(self, needed: set[int]) -> None:
        foreign = sorted(i for i in needed if not self._available[i])
        if foreign:
            graph = self._analysis.graph
            raise UnsupportedModelError(
                f"The layers {self._layers} need {graph.name(foreign[0])} "
                f"({graph.types[foreign[0]]}), which belongs to other layers."
            )

    # ---- edits ------------------------------------------------------------------------------

    def _output(self, tensor: Tensor) -> ov.Output:
        if self._hidden is not None and self._begin is not None and tensor == self._begin.tensor:
            return self._hidden
        return self._nodes[tensor.node].output(tensor.port)

    def _replace_boundary(self) -> ov.Output:
        assert self._begin is not None  # noqa: S101 - called for later shards only
        old = self._nodes[self._begin.tensor.node].output(self._begin.tensor.port)
        parameter = opset13.parameter(
            ov.PartialShape([-1, -1, self._begin.hidden_size]), ov.Type.f32, name=HIDDEN_INPUT
        )
        parameter.output(0).set_names({HIDDEN_INPUT})
        new = parameter.output(0)
        if old.get_element_type() != ov.Type.f32:
            new = opset13.convert(new, old.get_element_type().get_type_name()).output(0)
        connect(list(old.get_target_inputs()), new)
        self._parameter = parameter
        return new

    def _reroot_shapes(self, needed: set[int]) -> int:
        graph = self._analysis.graph
        count = 0
        for i in sorted(needed):
            for position, edge in enumerate(graph.edges[i]):
                if not self._is_answered_here(edge):
                    continue
                source = Tensor(edge.source, edge.source_port)
                if graph.types[i] == "ConvertLike":
                    like = opset13.constant(
                        0, dtype=self._nodes[i].get_output_element_type(0).to_dtype()
                    )
                    self._nodes[i].input(position).replace_source_output(like.output(0))
                else:
                    shape = self._shape_like(source, self._nodes[i].get_output_element_type(0))
                    connect(list(self._nodes[i].output(0).get_target_inputs()), shape)
                count += 1
        return count

    def _shape_like(self, tensor: Tensor, element_type: ov.Type) -> ov.Output:
        """Answer "what is the shape of ``tensor``" from this shard's own tensors.

        Raises:
            UnsupportedModelError: The meaning of a dimension can't be told.
        """
        meaning = self._analysis.meanings.of(tensor)
        if meaning is None:
            raise UnsupportedModelError(
                f"The layers {self._layers} ask for the shape of "
                f"{self._analysis.graph.name(tensor.node)}, whose meaning can't be told."
            )
        anchors = self._anchors()
        type_name = element_type.get_type_name()
        for anchor, shape in anchors:
            if shape == meaning:
                return opset13.shape_of(anchor, type_name).output(0)
        parts = [self._dim(dim, anchors, type_name) for dim in meaning]
        return opset13.concat(parts, 0).output(0)

    def _anchors(self) -> list[tuple[ov.Output, Shape]]:
        """The shard's own tensors whose shapes are understood."""
        own = cache_shapes(self._analysis.layers, self._analysis.meanings, self._layers.start)
        anchors = [(self._output(tensor), shape) for tensor, shape in own]
        if self._hidden is not None and self._begin is not None:
            hidden = (BATCH, TOKENS, Dim(self._begin.hidden_size))
            anchors.insert(0, (self._hidden, hidden))
        return anchors

    def _dim(self, dim: Dim, anchors: list[tuple[ov.Output, Shape]], type_name: str) -> ov.Output:
        """One dimension as a one-element tensor."""
        value = opset13.constant(
            [dim.factor], dtype=ov.Type.i32 if type_name == "i32" else ov.Type.i64
        )
        product: ov.Output | None = None if dim.sizes and dim.factor == 1 else value.output(0)
        for size in dim.sizes:
            wanted = {"batch": BATCH, "tokens": TOKENS, "past": PAST, "total": TOTAL}[size]
            anchor, axis = next((a, s.index(wanted)) for a, s in anchors if wanted in s)
            shape = opset13.shape_of(anchor, type_name)
            part = opset13.gather(
                shape, opset13.constant([axis], dtype=ov.Type.i64), opset13.constant(0)
            ).output(0)
            product = part if product is None else opset13.multiply(product, part).output(0)
        assert product is not None  # noqa: S101 - a Dim has a factor or a size
        return product

    def _ensure_reorders(self, needed: set[int]) -> tuple[ov.Node | None, int]:
        caches = [c for layer in self._own_layers() for c in layer.caches]
        missing = [c for c in caches if c.reorder is None]
        existing = next(
            (
                self._nodes[i]
                for i in self._analysis.graph.of_type("Parameter")
                if "beam_idx" in self._nodes[i].output(0).get_names()
            ),
            None,
        )
        if not missing:
            return None, 0
        beam = ensure_reorder([self._nodes[c.read] for c in missing], existing)
        in_use = existing is not None and any(self._nodes[i] == existing for i in needed)
        return (None if in_use else beam), len(missing)

    def _outputs(self) -> tuple[list[ov.Node], list[ov.Node]]:
        if self._end is not None:
            hidden = self._output(self._end.tensor)
            if hidden.get_element_type() != ov.Type.f32:
                hidden = opset13.convert(hidden, "f32").output(0)
            result = opset13.result(hidden)
            result.output(0).set_names({HIDDEN_OUTPUT})
            return [result], []
        results = [self._nodes[i] for i in self._analysis.graph.of_type("Result")]
        return results, gather_wanted_rows(self._analysis.graph, self._nodes)

    def _parameters(self, needed: set[int], beam: ov.Node | None) -> list[ov.Node]:
        graph = self._analysis.graph
        kept = [self._nodes[i] for i in sorted(needed) if graph.types[i] == "Parameter"]
        begin = [] if self._parameter is None else [self._parameter]
        return begin + kept + ([] if beam is None else [beam])

    def _name(self) -> str:
        return f"layers_{self._layers.start}_{self._layers.stop}"


def _copy_rt_info(source: ov.Model, target: ov.Model) -> None:
    """Copy the run-time options value by value: without them precision changes silently."""
    sections = [name for name in _COPIED_RT_INFO if name in source.get_rt_info()]
    pending = [([name], source.get_rt_info()[name]) for name in sections]
    while pending:
        path, value = pending.pop()
        inner = getattr(value, "value", value)
        if isinstance(inner, str | int | float | bool):
            target.set_rt_info(inner, path)
        else:
            pending.extend(([*path, key], inner[key]) for key in inner)

"""Everything a cut needs to know about a model, found once and read by every shard."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.errors import ModelFileError, UnsupportedModelError
from engine.splitter.boundaries import Boundary, BoundaryFinder
from engine.splitter.caches import CacheLayer, find_cache_layers
from engine.splitter.graph import Graph
from engine.splitter.symbols import BATCH, TOKENS, ShapeMeanings

if TYPE_CHECKING:
    from pathlib import Path

    import openvino as ov


@dataclass(frozen=True, slots=True)
class Analysis:
    """One model, understood.

    Attributes:
        core: Reads the model again for each shard; weights stay mapped.
        xml: The model's IR; its ``.bin`` lies beside it.
        graph: The whole model's nodes.
        layers: Its caches, by decoder layer.
        meanings: What every dimension means.
        finder: Answers where it can be cut.
    """

    core: ov.Core
    xml: Path
    graph: Graph
    layers: tuple[CacheLayer, ...]
    meanings: ShapeMeanings
    finder: BoundaryFinder

    @property
    def num_layers(self) -> int:
        """Decoder layers that keep a cache."""
        return len(self.layers)

    def boundary_before(self, layer: int) -> Boundary:
        """Return the hidden states before a layer, checked to be ``[batch, tokens, hidden]``.

        Args:
            layer: From 1 to ``num_layers - 1``.

        Raises:
            UnsupportedModelError: The model can't be cut there.
        """
        boundary = self.finder.before(layer)
        meaning = self.meanings.of(boundary.tensor)
        if meaning is None or meaning[:2] != (BATCH, TOKENS) or meaning[2].sizes:
            shown = "unknown" if meaning is None else " x ".join(map(str, meaning))
            raise UnsupportedModelError(
                f"The model can't be cut before layer {layer}: "
                f"{self.graph.name(boundary.tensor.node)} is {shown}, "
                "where batch x tokens x hidden size was expected."
            )
        return boundary


def analyse(core: ov.Core, xml: Path) -> Analysis:
    """Read a model and find out how it is made.

    Args:
        core: Used here and for every later reading.
        xml: A stateful language model's IR, already checked against its ``.bin``.

    Raises:
        ModelFileError: OpenVINO can't read it.
        UnsupportedModelError: It is no language model with KV caches inside, or has inputs Daisy
            does not know.
    """
    graph = Graph(read_model(core, xml))
    _require_token_input(graph, xml.name)
    layers = find_cache_layers(graph)
    _require_one_output(graph, xml.name)
    probed = (read_model(core, xml), read_model(core, xml))
    try:
        meanings = ShapeMeanings(probed, (Graph(probed[0]), Graph(probed[1])))
    except RuntimeError as exc:
        raise UnsupportedModelError(
            f"The shapes inside {xml.name} do not fit together: {_last_line(exc)}"
        ) from exc
    return Analysis(core, xml, graph, layers, meanings, BoundaryFinder(graph, layers))


def _require_token_input(graph: Graph, name: str) -> None:
    inputs = [n for i in graph.of_type("Parameter") for n in graph.nodes[i].output(0).get_names()]
    if "input_ids" not in inputs:
        shown = ", ".join(sorted(inputs)) or "none"
        raise UnsupportedModelError(
            f"{name} is no language model: it has no input named input_ids (its inputs: {shown})."
        )


def _require_one_output(graph: Graph, name: str) -> None:
    results = graph.of_type("Result")
    shapes = [graph.nodes[i].get_input_partial_shape(0) for i in results]
    is_logits = [s.rank.is_static and s.rank.get_length() == 3 and s[2].is_static for s in shapes]
    if is_logits != [True]:
        shown = ", ".join(f"{graph.name(i)} {s}" for i, s in zip(results, shapes, strict=True))
        raise UnsupportedModelError(
            f"{name} gives {shown or 'nothing'}, "
            "where one output, logits of batch x tokens x vocabulary, was expected."
        )


def read_model(core: ov.Core, xml: Path) -> ov.Model:
    """Read an IR with its weights mapped.

    Args:
        core: OpenVINO's core.
        xml: The model's XML.

    Raises:
        ModelFileError: OpenVINO can't read it.
    """
    try:
        return core.read_model(str(xml))
    except RuntimeError as exc:
        raise ModelFileError(f"OpenVINO can't read {xml.name}: {_last_line(exc)}") from exc


def _last_line(exc: RuntimeError) -> str:
    lines = [line.strip() for line in str(exc).splitlines() if line.strip()]
    return lines[-1] if lines else "no reason given"

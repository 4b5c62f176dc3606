"""An OpenVINO graph as plain indices, so that questions about it are set arithmetic.

A *data edge* carries values; an edge into ``ShapeOf`` or into the type side of ``ConvertLike``
carries only a shape or a type, and a tensor of the same meaning can stand in for it. That
distinction is what makes a cut possible, and it is made here and nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import openvino as ov

# Operations that pass a tensor on with its shape unchanged.
SHAPE_PRESERVING = frozenset({"Convert", "ConvertLike"})


@dataclass(frozen=True, slots=True)
class Edge:
    """One input of a node: where it comes from, and whether values flow along it."""

    source: int
    source_port: int
    is_data: bool


@dataclass(frozen=True, slots=True)
class Tensor:
    """One output of a node."""

    node: int
    port: int


class Graph:
    """The nodes of a model in topological order, with their edges as indices.

    Reading the same files again gives the same order, so an index found in one reading names
    the same node in another.
    """

    def __init__(self, model: ov.Model) -> None:
        """Index a model.

        Args:
            model: Read, not changed. The graph keeps references to its nodes.
        """
        self.nodes: list[ov.Node] = list(model.get_ordered_ops())
        by_name = {node.get_name(): i for i, node in enumerate(self.nodes)}
        self.types: list[str] = [node.get_type_name() for node in self.nodes]
        self.edges: list[tuple[Edge, ...]] = []
        self.consumers: list[list[tuple[int, int]]] = [[] for _ in self.nodes]
        for i, node in enumerate(self.nodes):
            edges = []
            for position, value in enumerate(node.input_values()):
                source = by_name[value.get_node().get_name()]
                edges.append(Edge(source, value.get_index(), self._carries_data(i, position)))
                self.consumers[source].append((i, position))
            self.edges.append(tuple(edges))

    def _carries_data(self, node: int, position: int) -> bool:
        kind = self.types[node]
        return not (kind in {"ShapeOf", "Shape"} or (kind == "ConvertLike" and position == 1))

    def __len__(self) -> int:
        return len(self.nodes)

    def name(self, node: int) -> str:
        """Return the name a person would look for in the XML."""
        return str(self.nodes[node].get_friendly_name())

    def of_type(self, *kinds: str) -> list[int]:
        """Return the nodes of the given types, in topological order."""
        return [i for i, kind in enumerate(self.types) if kind in kinds]

    def data_sources(self, node: int) -> list[int]:
        """Return the nodes whose values reach this one directly."""
        return [edge.source for edge in self.edges[node] if edge.is_data]

    def data_consumers(self, node: int) -> list[tuple[int, int]]:
        """Return ``(consumer, input position)`` of every data edge that leaves this node."""
        return [(c, p) for c, p in self.consumers[node] if self.edges[c][p].is_data]

    def upstream(self, marks: dict[int, int]) -> list[int]:
        """Spread bit marks along data edges, from sources to consumers.

        Args:
            marks: Node to the bits it starts with. A marked ReadValue starts anew: what its
                initialiser depends on is not what it holds.

        Returns:
            For each node, the bits of all nodes its value depends on (itself included).
        """
        bits = [0] * len(self.nodes)
        for i in range(len(self.nodes)):
            own = marks.get(i, 0)
            if self.types[i] != "ReadValue":
                for source in self.data_sources(i):
                    own |= bits[source]
            bits[i] = own
        return bits

    def downstream(self, marks: dict[int, int]) -> list[int]:
        """Spread bit marks against data edges, from consumers to sources.

        Args:
            marks: Node to the bits it starts with.

        Returns:
            For each node, the bits of all nodes that depend on its value (itself included).
        """
        bits = [0] * len(self.nodes)
        for i in range(len(self.nodes) - 1, -1, -1):
            bits[i] |= marks.get(i, 0)
            if self.types[i] == "ReadValue":
                continue
            for source in self.data_sources(i):
                bits[source] |= bits[i]
        return bits

    def needed_by(self, roots: Iterable[int], stops: frozenset[int] = frozenset()) -> set[int]:
        """Return every node the roots depend on by any edge, not looking past the stops.

        Args:
            roots: Where to begin.
            stops: Nodes whose own inputs are not followed; they are in the answer.
        """
        seen: set[int] = set()
        stack = list(roots)
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            if node not in stops:
                stack.extend(edge.source for edge in self.edges[node])
        return seen


def connect(consumers: Sequence[ov.Input], replacement: ov.Output) -> None:
    """Feed the given inputs from another output, leaving tensor names where they are.

    Args:
        consumers: Inputs to rewire.
        replacement: What feeds them from now on.
    """
    for target in consumers:
        target.replace_source_output(replacement)

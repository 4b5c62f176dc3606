"""Only the wanted rows go through the LM head.

The head of a small model costs as much as many layers, and during prefill only the last row's
logits are wanted. The shard gets one more input that names the rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import openvino as ov
from openvino import opset13

from engine.splitter.graph import connect

if TYPE_CHECKING:
    from engine.splitter.graph import Graph

ROWS_INPUT = "sampled_tokens_indices"
# What may stand between the head's MatMul and the logits: soft caps, scales, biases, casts.
_BEHIND_HEAD = frozenset({"Convert", "Add", "Subtract", "Multiply", "Divide", "Tanh", "Reshape"})
TOKEN_AXIS_STATEFUL = 1  # [batch, tokens, hidden]; a paged graph has its tokens on axis 0


def gather_wanted_rows(graph: Graph, nodes: list[ov.Node]) -> list[ov.Node]:
    """Insert the Gather before the LM head.

    Args:
        graph: The whole model's structure.
        nodes: The same nodes in the reading that is being cut.

    Returns:
        The new parameter, i64 ``[rows]``, in a list; empty where the head has a form not known
        here, in which case all rows' logits come out and the stage takes those it wants.
    """
    results = graph.of_type("Result")
    head = _find_head(graph, results[0]) if len(results) == 1 else None
    if head is None:
        return []
    node, position = head
    rows = opset13.parameter(ov.PartialShape([-1]), ov.Type.i64, name=ROWS_INPUT)
    rows.output(0).set_names({ROWS_INPUT})
    target = nodes[node].input(position)
    axis = opset13.constant(TOKEN_AXIS_STATEFUL, dtype=ov.Type.i64)
    wanted = opset13.gather(target.get_source_output(), rows, axis)
    connect([target], wanted.output(0))
    return [rows]


def find_head_weights(graph: Graph) -> list[int]:
    """Return the node that feeds the head's MatMul its weights; empty if no head is found."""
    results = graph.of_type("Result")
    head = _find_head(graph, results[0]) if len(results) == 1 else None
    if head is None:
        return []
    node, position = head
    return [e.source for p, e in enumerate(graph.edges[node]) if p != position]


def _find_head(graph: Graph, result: int) -> tuple[int, int] | None:
    """Return the head's MatMul and which of its inputs is the hidden states."""
    varies = graph.upstream(dict.fromkeys(graph.of_type("Parameter", "ReadValue"), 1))
    node = result
    while True:
        moving = [
            (p, e.source) for p, e in enumerate(graph.edges[node]) if e.is_data and varies[e.source]
        ]
        if graph.types[node] == "MatMul":
            return (node, moving[0][0]) if len(moving) == 1 else None
        if node != result and graph.types[node] not in _BEHIND_HEAD:
            return None
        if len(moving) != 1:
            return None
        node = moving[0][1]

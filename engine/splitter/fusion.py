"""The ``beam_idx`` Gather behind every cache: what the devices' KV fusions look for.

At run time ``beam_idx`` is the identity; the Gather exists only so that the GPU's indirect KV
cache and the CPU's attention with KV cache fire. Without it every step copies the whole cache.
"""

from __future__ import annotations

import openvino as ov
from openvino import opset13

from engine.splitter.graph import connect

BEAM_INPUT = "beam_idx"


def ensure_reorder(reads: list[ov.Node], beam: ov.Node | None) -> ov.Node:
    """Put ``Gather(cache, beam_idx, axis 0)`` behind caches that lack it.

    Args:
        reads: ReadValue nodes, batch on axis 0.
        beam: The model's own ``beam_idx`` parameter, i32 ``[batch]``; None to make one.

    Returns:
        The parameter in use: the fusions want the same one on keys and values.
    """
    if beam is None:
        beam = opset13.parameter(ov.PartialShape([-1]), ov.Type.i32, name=BEAM_INPUT)
        beam.output(0).set_names({BEAM_INPUT})
    axis = opset13.constant(0, dtype=ov.Type.i32)
    for read in reads:
        consumers = list(read.output(0).get_target_inputs())
        gather = opset13.gather(read, beam, axis)
        connect(consumers, gather.output(0))
    return beam


def reordered_caches(model: ov.Model) -> int:
    """Count the caches of a model that have the Gather: what must equal the caches."""
    count = 0
    for node in model.get_ops():
        if node.get_type_name() != "ReadValue":
            continue
        targets = [t.get_node() for t in node.output(0).get_target_inputs()]
        count += any(
            t.get_type_name() == "Gather" and BEAM_INPUT in t.input_value(1).get_names()
            for t in targets
        )
    return count

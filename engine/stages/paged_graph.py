"""From a stateful shard to a paged one, in place."""

from __future__ import annotations

import openvino as ov
from openvino import opset13
from openvino._offline_transformations import paged_attention_transformation

from engine.errors import CompileError
from engine.stages.compilation import last_line
from engine.stages.fusion_count import count_paged

ROWS_INPUT = "sampled_tokens_indices"
_TOKEN_AXIS = 0  # of a paged graph; a stateful one has its tokens on axis 1
_GATHER_AXIS_INPUT = 2
_MASK_INPUT = 3  # of ScaledDotProductAttention
_HEADS_AXIS = 1  # of the mask, [batch, heads or 1, tokens, past + tokens]
_SLOPES_INPUT = 11  # of PagedAttentionExtension; empty where no ALiBi was recognised


def make_paged(model: ov.Model, xml_path: str) -> None:
    """Replace attention and its caches by PagedAttention.

    The model's inputs become ``input_ids`` i64 ``[tokens]`` or ``inputs_embeds`` f32
    ``[tokens, hidden_size]``, the block tables, and ``key_cache.N``, ``value_cache.N``; its output
    is ``[tokens, 1, width]``.

    Args:
        model: Changed in place, and of no more use after an error.
        xml_path: Names it in errors.

    Raises:
        CompileError: The shard is not of a form that can be; names a cache where it can.
    """
    biased = _has_bias_per_head(model)
    try:
        # No block indices per layer, scores, rotation, sparse attention or query bias.
        paged_attention_transformation(model, False, False, False, False, False, False, False)
        _gather_on_token_axis(model)
        model.validate_nodes_and_infer_types()
    except RuntimeError as exc:
        states = ", ".join(count_paged(model).unfused_states[:4])
        named = f" (left over: {states})" if states else ""
        raise CompileError(
            f"{xml_path} can't run on PagedAttention{named}: {last_line(exc)}",
            "Run this stage as stateful, or split the model again.",
        ) from exc
    if biased and not _has_slopes(model):
        raise CompileError(
            f"{xml_path} adds a bias to each attention head that PagedAttention would leave out.",
            "Run this stage as stateful.",
        )


def _gather_on_token_axis(model: ov.Model) -> None:
    """Let the Gather before the LM head pick tokens, which lie on another axis now."""
    for op in model.get_ops():
        if op.get_type_name() != "Gather":
            continue
        if op.input_value(1).get_node().get_friendly_name() == ROWS_INPUT:
            axis = opset13.constant(_TOKEN_AXIS, dtype=ov.Type.i64)
            op.input(_GATHER_AXIS_INPUT).replace_source_output(axis.output(0))


def _has_bias_per_head(model: ov.Model) -> bool:
    """Tell whether the mask differs from head to head, as ALiBi's does (a causal one does not)."""
    for op in model.get_ops():
        if op.get_type_name() != "ScaledDotProductAttention" or op.get_input_size() <= _MASK_INPUT:
            continue
        mask = op.get_input_partial_shape(_MASK_INPUT)
        if mask.rank.is_dynamic or mask.rank.get_length() <= _HEADS_AXIS:
            continue
        heads = mask[_HEADS_AXIS]
        if heads.is_static and heads.get_length() > 1:
            return True
    return False


def _has_slopes(model: ov.Model) -> bool:
    nodes = [op for op in model.get_ops() if op.get_type_name() == "PagedAttentionExtension"]
    shapes = [op.get_input_partial_shape(_SLOPES_INPUT) for op in nodes]
    return all(shape.is_dynamic or shape.to_shape() != ov.Shape([0]) for shape in shapes)

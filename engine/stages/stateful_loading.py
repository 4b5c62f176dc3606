"""Loading a shard as it is, and finding out how its states are laid out."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from engine.domain import StageDescription
from engine.errors import CompileError
from engine.stages.blocks import KVBlocks
from engine.stages.compilation import compile_options, compile_shard, read_shard
from engine.stages.fusion_count import check_fusion, count_stateful_cpu, count_stateful_gpu
from engine.stages.stateful import StatefulStage

if TYPE_CHECKING:
    import openvino as ov

    from engine.messages.stage_control import LoadShard

BLOCK_TOKENS = 32  # only for counting: the plugin grows its caches as it likes
_U8_SCALE_BYTES = 8  # a scale and a zero point per token and head


def load_stateful(core: ov.Core, request: LoadShard) -> StatefulStage:
    """Load a shard as it is.

    Args:
        core: For reading and compiling.
        request: What to load and how.

    Returns:
        The stage; its description has no load time and no golden error yet.

    Raises:
        ModelFileError: A file of the shard is missing or cut short.
        CompileError: The device can't run it, or a layer missed its fusion.
    """
    model = read_shard(core, request.xml_path)
    token_axes = _token_axes(model, request.xml_path)
    options = compile_options(core, model, request)
    compiled = compile_shard(core, model, request, options.properties)
    is_cpu = request.device.startswith("CPU")
    count = count_stateful_cpu(model, compiled) if is_cpu else count_stateful_gpu(compiled)
    check_fusion(count, request.layers, request.device)
    num_blocks = math.ceil(request.max_tokens / BLOCK_TOKENS) + request.max_sequences
    block_bytes = BLOCK_TOKENS * _bytes_per_token(model, compiled)
    description = StageDescription(
        layers=request.layers,
        is_first=request.is_first,
        is_last=request.is_last,
        kind="stateful",
        mode=request.mode,
        device=request.device,
        hidden_size=request.hidden_size,
        vocab_size=request.vocab_size,
        num_fused_layers=count.num_fused_layers,
        block_tokens=BLOCK_TOKENS,
        num_blocks=num_blocks,
        block_bytes=block_bytes,
        load_s=0.0,
        golden_error=None,
        notes=options.notes,
    )
    blocks = KVBlocks(num_blocks, BLOCK_TOKENS, block_bytes)
    stage = StatefulStage(compiled, token_axes, blocks, description)
    # A masked slot still takes part in counting how far back the window reaches.
    stage.cuts_states = stage.cuts_states or request.sliding_window is not None
    return stage


def _token_axes(model: ov.Model, xml_path: str) -> dict[str, int]:
    """Return the axis of each state that new tokens are appended on, by variable id.

    Raises:
        CompileError: A state is not appended to; it can't be rewound.
    """
    axes: dict[str, int] = {}
    for op in model.get_ops():
        if op.get_type_name() != "Assign":
            continue
        variable_id = op.get_attributes()["variable_id"]
        source = op.input_value(0).get_node()
        while source.get_type_name() == "Convert":
            source = source.input_value(0).get_node()
        if source.get_type_name() != "Concat":
            raise CompileError(f"State {variable_id} of {xml_path} is not a KV cache.")
        axis = source.get_attributes()["axis"]
        axes[variable_id] = axis % source.get_output_partial_shape(0).rank.get_length()
    return axes


def _bytes_per_token(model: ov.Model, compiled: ov.CompiledModel) -> int:
    kind = compiled.get_property("KV_CACHE_PRECISION")
    total = 0
    for variable in model.get_variables():
        fixed = [dim.get_length() for dim in variable.info.data_shape if dim.is_static]
        total += math.prod(fixed) * kind.size
        if kind.size == 1:
            total += _U8_SCALE_BYTES * math.prod(fixed[:-1])
    return total

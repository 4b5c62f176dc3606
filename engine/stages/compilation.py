"""From a shard's files to a compiled model: properties by device and mode, errors translated."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from engine.errors import CompileError, ModelFileError
from engine.stages.ir_files import check_ir_files
from engine.stages.kept_kernels import CPU_PROPERTIES

if TYPE_CHECKING:
    import openvino as ov

    from engine.messages.stage_control import LoadShard

_FLOATS = frozenset({"f32", "f16", "bf16", "f64"})
# What a stage can feed, with the rank each must have.
_INPUT_RANKS = {
    "input_ids": 2,
    "inputs_embeds": 3,
    "attention_mask": 2,
    "position_ids": 2,
    "beam_idx": 1,
    "sampled_tokens_indices": 1,
}
# A scale for each token's keys. The device's own choice is one for a block of tokens, which is made
# anew with every token that comes: then guesses that are taken back leave a trace in those before.
_PAGED_CPU_PROPERTIES = {"KEY_CACHE_QUANT_MODE": "BY_TOKEN"}
_FOUR_BITS = frozenset({"u4", "i4"})
_VIEWS = frozenset({"Convert", "Transpose", "Reshape"})


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """What a shard is compiled with.

    Attributes:
        properties: OpenVINO's names and values.
        notes: What is unusual about them, for ``StageDescription.notes``.
    """

    properties: dict[str, str]
    notes: tuple[str, ...] = ()


def read_shard(core: ov.Core, xml_path: str) -> ov.Model:
    """Read a shard; its weights stay mapped.

    Args:
        core: Maps weights (``ENABLE_MMAP``, the default).
        xml_path: Path of the ``.xml``, with the ``.bin`` beside it.

    Raises:
        ModelFileError: A file is missing, cut short or not an IR.
        CompileError: It takes an input no stage can feed; names it.
    """
    xml = Path(xml_path)
    check_ir_files(xml)
    try:
        model = core.read_model(xml)
    except RuntimeError as exc:
        raise ModelFileError(f"{xml} can't be read: {last_line(exc)}") from exc
    for port in model.inputs:
        name, rank = port.get_any_name(), port.get_partial_shape().rank
        if rank.is_dynamic or _INPUT_RANKS.get(name) != rank.get_length():
            raise CompileError(
                f"{xml} has an input {name} of shape {port.get_partial_shape()}, which is none "
                "that a stage can feed.",
                "Split the model again, or choose another.",
            )
    return model


def compile_shard(
    core: ov.Core, model: ov.Model, request: LoadShard, properties: dict[str, str]
) -> ov.CompiledModel:
    """Compile on the device the request names.

    Raises:
        CompileError: The device refuses.
    """
    try:
        return core.compile_model(model, request.device, properties)
    except RuntimeError as exc:
        raise CompileError(
            f"{request.device} could not compile {request.xml_path}: {last_line(exc)}"
        ) from exc


def compile_options(core: ov.Core, model: ov.Model, request: LoadShard) -> CompileOptions:
    """Choose the properties for a shard.

    In exact mode everything is f32 and nothing is quantised on the way; in fast mode the device
    decides, and the model's own ``runtime_options`` count.

    Args:
        core: Asked for what the device can do.
        model: Looked at for floating-point weights.
        request: Device, kind, mode, threads, precision, cache directory.
    """
    properties = {"PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": "1"}
    notes: tuple[str, ...] = ()
    if request.mode == "exact":
        properties |= _exact_properties(request.device)
    elif request.precision is not None:
        properties["INFERENCE_PRECISION_HINT"] = request.precision
        notes = (f"precision {request.precision}: the device's own choice ended the process",)
    elif _bf16_may_end_the_process(core, model, request):
        # f16 and not f32: f32 would double the weights in memory. A processor without f16
        # arithmetic goes on in bf16, and only those with AMX have the fault.
        properties["INFERENCE_PRECISION_HINT"] = "f16"
        notes = ("precision f16: bf16 with one thread ends the process on some processors",)
    if request.device == "CPU":
        properties |= CPU_PROPERTIES
    if request.device == "CPU" and request.num_threads is not None:
        properties["INFERENCE_NUM_THREADS"] = str(request.num_threads)
        # Several stages on one PC would otherwise pin themselves to the same first cores.
        properties["ENABLE_CPU_PINNING"] = "NO"
    if request.device == "CPU" and request.kind == "paged":
        properties |= _PAGED_CPU_PROPERTIES
    if request.kind == "stateful":
        properties |= _stateful_properties(model, request)
    return CompileOptions(properties, notes)


def _exact_properties(device: str) -> dict[str, str]:
    exact = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}
    if device == "CPU":
        exact["KV_CACHE_PRECISION"] = "f32"
    return exact


def _stateful_properties(model: ov.Model, request: LoadShard) -> dict[str, str]:
    properties: dict[str, str] = {}
    if request.cache_dir is not None:
        # Paged models can't be cached: OpenVINO compiles them anew without saying so.
        properties["CACHE_DIR"] = request.cache_dir
    if request.device.startswith("GPU") and request.mode == "fast" and request.sliding_window:
        # A rewind reads the states then, and the GPU has no access to compressed ones.
        properties["KV_CACHE_PRECISION"] = "f16"
    elif request.mode == "fast" and _model_option(model, "KV_CACHE_PRECISION") in _FOUR_BITS:
        properties["KV_CACHE_PRECISION"] = "u8"  # setting a u4 state ends the process
    return properties


def _model_option(model: ov.Model, name: str) -> str | None:
    path = ["runtime_options", name]
    return str(model.get_rt_info(path).value) if model.has_rt_info(path) else None


def _bf16_may_end_the_process(core: ov.Core, model: ov.Model, request: LoadShard) -> bool:
    """Tell whether compile_model may die of SIGFPE.

    It does so in 2026.4.1 with one thread, bf16 arithmetic on AMX, and weights that are not
    integers.
    """
    if request.device != "CPU" or effective_threads(request.num_threads) > 1:
        return False
    capabilities = core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    return "BF16" in capabilities and has_float_weights(model)


def effective_threads(num_threads: int | None) -> int:
    """Return how many threads the CPU device will have: asked for, and allowed to this process."""
    if hasattr(os, "sched_getaffinity"):
        allowed = len(os.sched_getaffinity(0))
    else:
        allowed = len(psutil.Process().cpu_affinity())
    return allowed if num_threads is None else min(num_threads, allowed)


def has_float_weights(model: ov.Model) -> bool:
    """Tell whether any matrix multiplication has a floating-point constant as its weights.

    Compressed weights have a Multiply by their scales in between and do not count.
    """
    for op in model.get_ops():
        if op.get_type_name() != "MatMul":
            continue
        source = op.input_value(1).get_node()
        while source.get_type_name() in _VIEWS:
            source = source.input_value(0).get_node()
        is_constant = source.get_type_name() == "Constant"
        if is_constant and source.get_element_type().get_type_name() in _FLOATS:
            return True
    return False


def last_line(exc: Exception) -> str:
    """Return the last line of a foreign error that says something: the rest is source paths."""
    lines = [line.strip() for line in str(exc).splitlines() if line.strip()]
    return lines[-1] if lines else type(exc).__name__

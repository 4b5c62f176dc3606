"""How many layers got the fast KV path: fused attention on a cache that is appended in place.

A layer that misses it still computes the right numbers, two to four times slower, with its whole
cache copied every token. Nothing says so at run time: it is counted when the shard is loaded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.errors import CompileError

if TYPE_CHECKING:
    import openvino as ov

    from engine.domain import LayerRange

_CACHES_PER_LAYER = 2  # keys and values


@dataclass(frozen=True, slots=True)
class FusionCount:
    """What was counted.

    Attributes:
        num_fused_layers: Layers on the fast path.
        unfused_states: Variable ids of caches that are not.
    """

    num_fused_layers: int
    unfused_states: tuple[str, ...]


def count_paged(model: ov.Model) -> FusionCount:
    """Count the PagedAttention nodes of a transformed model; states left over are unfused."""
    kinds = [(op.get_type_name(), op) for op in model.get_ops()]
    left = [op.get_attributes()["variable_id"] for kind, op in kinds if kind == "Assign"]
    num_fused = sum(kind == "PagedAttentionExtension" for kind, _ in kinds)
    return FusionCount(num_fused, tuple(sorted(left)))


def count_stateful_cpu(model: ov.Model, compiled: ov.CompiledModel) -> FusionCount:
    """Count the attention nodes that write the caches in the CPU's runtime model.

    A fused cache is written by the ScaledDotProductAttention node itself; any other writer is a
    concatenation that copies the cache.

    Args:
        model: The model that was compiled; it has the variable ids.
        compiled: The same on the CPU.
    """
    variable_ids = {
        op.get_friendly_name(): op.get_attributes()["variable_id"]
        for op in model.get_ops()
        if op.get_type_name() == "Assign"
    }
    fused: set[str] = set()
    unfused: list[str] = []
    for op in compiled.get_runtime_model().get_ops():
        if _layer_type(op) != "MemoryOutput":
            continue
        writer = op.input_value(0).get_node()
        if _layer_type(writer) == "ScaledDotProductAttention":
            fused.add(writer.get_friendly_name())
        else:
            name = op.get_friendly_name()
            unfused.append(variable_ids.get(name, name))
    return FusionCount(len(fused), tuple(sorted(unfused)))


def count_stateful_gpu(compiled: ov.CompiledModel) -> FusionCount:
    """Count the ``kv_cache`` primitives of the GPU's runtime model. Not run on hardware.

    An unfused cache shows as an ``assign`` primitive that is left.
    """
    kinds = [
        (_layer_type(op), op.get_friendly_name()) for op in compiled.get_runtime_model().get_ops()
    ]
    caches = sum(kind == "kv_cache" for kind, _ in kinds)
    left = tuple(sorted(name for kind, name in kinds if kind == "assign"))
    return FusionCount(caches // _CACHES_PER_LAYER, left)


def check_fusion(count: FusionCount, layers: LayerRange, device: str) -> None:
    """Check that every layer of the shard is on the fast path.

    Raises:
        CompileError: One is not; names a state of it.
    """
    if count.num_fused_layers == len(layers) and not count.unfused_states:
        return
    states = ", ".join(count.unfused_states[:4])
    named = f"; not these caches: {states}" if states else ""
    raise CompileError(
        f"On {device}, {count.num_fused_layers} of the {len(layers)} layers {layers} have "
        f"attention fused with its KV cache{named}.",
        "Split the model again, or use another device.",
    )


def _layer_type(op: ov.Node) -> str:
    info = op.get_rt_info()
    return str(info["layerType"].value) if "layerType" in info else str(op.get_type_name())

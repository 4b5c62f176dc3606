"""What a stage takes of its PC's memory, by kind; pure.

Measured on the CPU plugin (OpenVINO 2026.4.1, paged and stateful, 4-bit models of 92 MB, 322 MB
and 4.7 GB; resident size with a filled KV cache, 1 to 32 layers): the mapped weights stay resident,
the plugin's own repacked copy takes 1.09 times the weights that are multiplied with (the embedding
is only looked up), the process with its libraries and buffers about 130 MB, and each layer's graph
and kernels about 2 MB. No peak above that was seen while compiling. The sum was 5 % below to 13 %
above what was measured. A GPU is reported to take twice the model while it loads, which is the
same sum; it has not been run on hardware.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Literal

import msgspec

from engine.domain import StageKind
from engine.errors import UsageError

if TYPE_CHECKING:
    from engine.domain import LayerRange, ModelDescription

REPACKED_PERCENT = 109  # of the weights that are multiplied with
PROCESS_BYTES = 124 * 1024 * 1024  # of one stage process beside its layers
LAYER_PROCESS_BYTES = 2 * 1024 * 1024  # of it for each layer: graph, kernels, buffers
HEADROOM_DIVISOR = 5  # a fifth more than everything above
KV_BLOCK_TOKENS = 32  # of the CPU plugin; the GPU's are smaller, and waste less

KVPrecision = Literal["u8", "f16", "f32"]


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """What the placement must have room for.

    Attributes:
        context_tokens: Of each sequence, prompt and answer together.
        max_sequences: That may run at once.
        kv_precision: u8 is what the CPU takes unless told otherwise; exact mode takes f32.
        kind: A stateful cache doubles its capacity when it grows, so it counts twice.
    """

    context_tokens: int
    max_sequences: int = 1
    kv_precision: KVPrecision = "u8"
    kind: StageKind = "paged"

    def checked(self) -> Workload:
        """Return self if both counts are 1 or more.

        Raises:
            UsageError: One is not.
        """
        for name in ("context_tokens", "max_sequences"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}; it must be 1 or more.")
        return self

    @property
    def kv_tokens(self) -> int:
        """Tokens the KV cache is made for: whole blocks, and one partly empty for each sequence."""
        blocks = -(-self.context_tokens * self.max_sequences // KV_BLOCK_TOKENS)
        tokens = (blocks + self.max_sequences) * KV_BLOCK_TOKENS
        return tokens if self.kind == "paged" else 2 * tokens


class StageMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of one stage, by kind; of several together if added."""

    weights_bytes: int = 0  # mapped from the shard's file
    repacked_bytes: int = 0  # the device's own copy
    kv_bytes: int = 0
    process_bytes: int = 0  # the process itself, and the peak of compiling
    headroom_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        """All of them."""
        return sum(msgspec.structs.astuple(self))

    def __add__(self, other: StageMemory) -> StageMemory:
        """Return the bytes of both, kind by kind."""
        pairs = zip(msgspec.structs.astuple(self), msgspec.structs.astuple(other), strict=True)
        return StageMemory(**dict(zip(self.__struct_fields__, map(sum, pairs), strict=True)))


@dataclass(frozen=True, slots=True)
class StageSizes:
    """Bytes of a model's parts under one workload, for finding what fits; without headroom.

    Attributes:
        ends: Bytes of layers ``[0, i)`` for ``i`` from 0 to the number of layers: mapped,
            repacked, KV, and what their graph takes.
        embedding: What the first stage has besides.
        head: What the last stage has besides.
    """

    ends: tuple[int, ...]
    embedding: int
    head: int

    @property
    def num_layers(self) -> int:
        """Of the model."""
        return len(self.ends) - 1

    @property
    def layers(self) -> tuple[int, ...]:
        """Bytes of each layer."""
        return tuple(b - a for a, b in pairwise(self.ends))

    @property
    def whole(self) -> int:
        """Bytes of the whole model."""
        return self.ends[-1] + self.embedding + self.head


def stage_sizes(model: ModelDescription, workload: Workload) -> StageSizes:
    """Weigh the parts of a model.

    Args:
        model: Whose layers.
        workload: Decides the KV cache.
    """
    layers = (
        num_bytes + _repacked(num_bytes) + _kv_bytes(model, number, workload) + LAYER_PROCESS_BYTES
        for number, num_bytes in enumerate(model.layer_bytes)
    )
    return StageSizes(
        ends=tuple(accumulate(layers, initial=0)),
        embedding=model.embedding_bytes,
        head=model.head_bytes + _repacked(model.head_bytes),
    )


def stage_memory(model: ModelDescription, workload: Workload, layers: LayerRange) -> StageMemory:
    """Return what one stage takes, with its headroom.

    Args:
        model: Whose layers.
        workload: Decides the KV cache.
        layers: Of the stage; the embedding and the LM head count where they belong to it.
    """
    own = range(layers.start, layers.stop)
    head = model.head_bytes if layers.stop == model.num_layers else 0
    embedding = model.embedding_bytes if layers.start == 0 else 0
    weights = sum(model.layer_bytes[i] for i in own) + head + embedding
    # Rounded layer by layer, as in ``stage_sizes``: what fits there must fit here.
    repacked = sum(_repacked(model.layer_bytes[i]) for i in own) + _repacked(head)
    kv = sum(_kv_bytes(model, i, workload) for i in own)
    process = PROCESS_BYTES + len(layers) * LAYER_PROCESS_BYTES
    bare = weights + repacked + kv + process
    return StageMemory(
        weights_bytes=weights,
        repacked_bytes=repacked,
        kv_bytes=kv,
        process_bytes=process,
        headroom_bytes=-(-bare // HEADROOM_DIVISOR),
    )


def capacity_for(usable_bytes: int, num_stages: int = 1) -> int:
    """Return how many bytes of ``StageSizes`` fit in so much memory; negative if no process does.

    Args:
        usable_bytes: Of the PC.
        num_stages: On it.
    """
    without_headroom = usable_bytes * HEADROOM_DIVISOR // (HEADROOM_DIVISOR + 1)
    # Each stage rounds its headroom up by less than a byte.
    return without_headroom - num_stages * PROCESS_BYTES - (num_stages - 1)


def usable_for(capacity_bytes: int) -> int:
    """Return the memory a PC must be able to give for a stage of that many bytes.

    Args:
        capacity_bytes: Of ``StageSizes``.
    """
    bare = capacity_bytes + PROCESS_BYTES
    return bare + -(-bare // HEADROOM_DIVISOR)


def _repacked(num_bytes: int) -> int:
    return -(-num_bytes * REPACKED_PERCENT // 100)


def _kv_bytes(model: ModelDescription, layer: int, workload: Workload) -> int:
    heads = model.num_kv_heads[layer]
    keys, values = model.head_size[layer], model.value_head_size[layer]
    if workload.kv_precision == "u8":
        # Keys have scales for each block's channel, values for each token.
        per_token = heads * (-(-keys * 5 // 4) + values + 8)
    else:
        per_token = heads * (keys + values) * (2 if workload.kv_precision == "f16" else 4)
    return per_token * workload.kv_tokens

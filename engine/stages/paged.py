"""A stage on PagedAttention: many sequences in one inference, and a rewind costs nothing.

The transformation is applied when the shard is loaded, because a transformed model can be neither
saved nor cached. Proven on the CPU; the GPU path follows documentation and source and has not been
run on hardware. The NPU has no PagedAttention.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

import numpy as np
import openvino as ov

from engine.domain import StageDescription
from engine.errors import CompileError, InferenceError, KVCacheFullError
from engine.stages.batch_arrays import check_batch, check_finite, logits_rows
from engine.stages.blocks import KVBlocks
from engine.stages.compilation import (
    compile_options,
    compile_shard,
    effective_threads,
    last_line,
    read_shard,
)
from engine.stages.fusion_count import check_fusion, count_paged
from engine.stages.kept_width import KeptWidth
from engine.stages.kernel_class import (
    LEAST_ROWS,
    Subsequences,
    Widened,
    apart,
    filled,
    num_fillers,
    widened,
)
from engine.stages.paged_graph import make_paged
from engine.stages.paged_inputs import PagedInputs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from engine.domain import KeptPrefix, KVUsage, MicroBatch, SequenceId
    from engine.messages.stage_control import LoadShard

_BLOCK_AXIS = 2  # of a value cache, [blocks, kv_heads, block_tokens, head_size]


class PagedStage:
    """One shard on PagedAttention.

    Attributes:
        description: What was loaded.
    """

    def __init__(
        self,
        request: ov.InferRequest,
        blocks: KVBlocks,
        description: StageDescription,
        *,
        rows_alike: bool,
        num_threads: int,
    ) -> None:
        """Take an infer request whose caches are set; ``load_paged`` makes one.

        Args:
            request: Of the compiled shard.
            blocks: One fewer than the caches have.
            description: Of the stage.
            rows_alike: Whether a row must not depend on how many are computed beside it.
            num_threads: Of the device.
        """
        self.description = description
        self._request = request
        self._blocks = blocks
        self._inputs = PagedInputs(request, description.hidden_size)
        self._least_rows = LEAST_ROWS if rows_alike else 1
        self._is_apart = rows_alike and description.mode == "fast"
        self._num_fillers = num_fillers(num_threads) if self._is_apart else 0
        # What another number of rows costs is known of the CPU.
        self._width = KeptWidth(self._least_rows) if description.device == "CPU" else None
        self._row_width = None if description.is_first else description.hidden_size
        part = "logits" if description.is_last else "hidden states"
        self._what = f"{part} of layers {description.layers}"

    def run(self, batch: MicroBatch) -> NDArray[np.float32]:
        """Run one micro-batch; see ``Stage.run``.

        Raises:
            InferenceError: The device failed, or a NaN or infinity came out.
        """
        check_batch(batch, self._blocks.num_tokens, self._row_width)
        for step in batch.steps:
            self._blocks.check_writable(step.sequence_id, step.past_len)
        wide = self._reserve(batch)
        try:
            rows = self._infer(batch, wide)
            check_finite(rows, self._what, may_ban=self.description.is_last)
        except InferenceError:
            for step in batch.steps:
                self._blocks.release(step.sequence_id)
            raise
        if wide.batch is not batch:
            self._resize(batch)  # the rows that were put in are not the sequences'
        return rows

    def _reserve(self, batch: MicroBatch) -> Widened:
        """Take the blocks a batch needs; return it as it is to be run.

        Raises:
            KVCacheFullError: They are not there.
        """
        if self.description.mode == "exact":
            wide = widened(batch)
            try:
                self._resize(wide.batch)
            except KVCacheFullError:
                pass  # what it was asked for may fit still
            else:
                return wide
        self._resize(batch)
        return Widened(batch, np.arange(len(batch.token_ids)))

    def _resize(self, batch: MicroBatch) -> None:
        self._blocks.resize([(s.sequence_id, s.past_len + s.num_tokens) for s in batch.steps])

    def _infer(self, batch: MicroBatch, wide: Widened) -> NDArray[np.float32]:
        """Run a batch in its widened form; return the rows that were asked for.

        Raises:
            InferenceError: The device failed.
        """
        wanted = wide.rows[logits_rows(batch.steps)]
        num_wanted = len(wanted)
        if num_wanted == 1:  # the LM head has a kernel for one row as well
            wanted = np.repeat(wanted, self._least_rows)
        try:
            laid = self._lay_out(wide.batch)
            self._inputs.write(laid.batch, laid.tables, wanted)
            self._compute(len(laid.batch.token_ids))
            output: NDArray[np.float32] = self._request.get_output_tensor(0).data
        except RuntimeError as exc:
            raise InferenceError(
                f"{self.description.device} failed in layers {self.description.layers}: "
                f"{last_line(exc)}"
            ) from exc
        # Tokens lie on axis 0, and an axis of length 1 follows.
        output = output.reshape(output.shape[0], output.shape[-1])
        if self.description.is_last:
            rows = output if self._inputs.takes_rows else output[wanted]
            return rows[:num_wanted]
        return output[: len(wide.rows)] if wide.batch is batch else output[wide.rows]

    def _lay_out(self, batch: MicroBatch) -> Subsequences:
        """Say in which subsequences a batch is computed, and fill it up."""
        laid = Subsequences(batch, [self._blocks.table(s.sequence_id) for s in batch.steps])
        if self._is_apart:
            laid = apart(laid, self._blocks.block_tokens)
        num_rows = max(len(batch.token_ids) + self._num_fillers, self._least_rows)
        if self._width is not None and all(s.num_logits for s in batch.steps):
            num_rows = self._width.choose(num_rows)
        return filled(laid, num_rows, self._blocks.num_blocks)

    def _compute(self, num_rows: int) -> None:
        """Have the device compute what was written.

        Raises:
            RuntimeError: It fails.
        """
        began_s = time.perf_counter()
        self._request.infer()
        if self._width is not None:
            self._width.took(num_rows, time.perf_counter() - began_s)

    def begin_from(self, sequence_id: SequenceId, prefix: KeptPrefix) -> None:
        """Open a sequence with another's first blocks; see ``Stage.begin_from``."""
        self._blocks.share(prefix.sequence_id, sequence_id, prefix.num_tokens)

    def release(self, sequence_id: SequenceId) -> None:
        """Free what is kept for a sequence; see ``Stage.release``."""
        self._blocks.release(sequence_id)

    def kv_usage(self) -> KVUsage:
        """Count the KV blocks; see ``Stage.kv_usage``."""
        return self._blocks.usage()


def load_paged(core: ov.Core, request: LoadShard) -> PagedStage:
    """Load a shard on PagedAttention.

    Args:
        core: For reading and compiling.
        request: What to load and how.

    Returns:
        The stage; its description has no load time and no golden error yet.

    Raises:
        ModelFileError: A file of the shard is missing or cut short.
        CompileError: The device can't run it, or a layer missed its fusion.
    """
    if not request.device.startswith(("CPU", "GPU")):
        raise CompileError(
            f"{request.device} has no PagedAttention.", "Run this stage as stateful there."
        )
    model = read_shard(core, request.xml_path)
    options = compile_options(core, model, request)
    make_paged(model, request.xml_path)
    count = count_paged(model)
    check_fusion(count, request.layers, request.device)
    compiled = compile_shard(core, model, request, options.properties)
    caches = _Caches(compiled)
    num_blocks = math.ceil(request.max_tokens / caches.block_tokens) + request.max_sequences
    infer_request = compiled.create_infer_request()
    # One more than is given out: the rows that a batch is filled up with write there.
    caches.allocate(core, infer_request, request.device, num_blocks + 1)
    description = StageDescription(
        layers=request.layers,
        is_first=request.is_first,
        is_last=request.is_last,
        kind="paged",
        mode=request.mode,
        device=request.device,
        hidden_size=request.hidden_size,
        vocab_size=request.vocab_size,
        num_fused_layers=count.num_fused_layers,
        block_tokens=caches.block_tokens,
        num_blocks=num_blocks,
        block_bytes=caches.block_bytes,
        load_s=0.0,
        golden_error=None,
        notes=options.notes,
    )
    blocks = KVBlocks(num_blocks, caches.block_tokens, caches.block_bytes)
    # What is known of kernels is known of the CPU; exact mode keeps to it everywhere.
    rows_alike = request.mode == "exact" or (request.rows_alike and request.device == "CPU")
    return PagedStage(
        infer_request,
        blocks,
        description,
        rows_alike=rows_alike,
        num_threads=effective_threads(request.num_threads),
    )


class _Caches:
    """The cache inputs of a compiled paged model; layout and type are the device's own."""

    def __init__(self, compiled: ov.CompiledModel) -> None:
        self._ports: dict[str, tuple[ov.Type, list[int]]] = {}
        for port in compiled.inputs:
            name = port.get_any_name()
            if name.startswith(("key_cache.", "value_cache.")):
                # The first axis is the number of blocks, ours to choose; the rest is fixed.
                shape = [dim.get_length() for dim in list(port.get_partial_shape())[1:]]
                self._ports[name] = (port.get_element_type(), shape)
        bits = (math.prod(shape) * kind.bitwidth for kind, shape in self._ports.values())
        self.block_bytes = sum(bits) // 8
        self.block_tokens = self._ports["value_cache.0"][1][_BLOCK_AXIS - 1]

    def allocate(
        self, core: ov.Core, request: ov.InferRequest, device: str, num_blocks: int
    ) -> None:
        """Allocate the caches and set them; what is never written stays unused address space.

        Raises:
            CompileError: The device has no room for them.
        """
        # On the GPU they must lie in its memory; the default context is the one compiled with.
        context = core.get_default_context(device) if device.startswith("GPU") else None
        try:
            for name, (kind, shape) in self._ports.items():
                size = ov.Shape([num_blocks, *shape])
                tensor = (
                    ov.Tensor(kind, size)
                    if context is None
                    else context.create_tensor(kind, size, {})
                )
                request.set_tensor(name, tensor)
        except (RuntimeError, MemoryError) as exc:
            raise CompileError(
                f"{device} has no room for {num_blocks * self.block_bytes} bytes of KV cache: "
                f"{last_line(exc)}",
                "Choose a shorter context or fewer sequences at once.",
            ) from exc

"""A stateful shard on the NPU, through OpenVINO's NPUW. Not run on hardware, only in its emulation.

NPUW makes the shard static: a first call of at most so many tokens, then calls of at most eight.
It keeps the cache itself; a call with smaller positions overwrites it, which is the whole rewind.
There is one cache, and infer requests overwrite each other's: it holds one sequence at a time.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import openvino as ov

from engine.domain import StageDescription
from engine.errors import CompileError, InferenceError, KVCacheFullError
from engine.messages.hidden_states import widened_rows
from engine.stages.batch_arrays import check_batch, check_finite
from engine.stages.blocks import KVBlocks
from engine.stages.compilation import compile_shard, last_line, read_shard
from engine.stages.paged_graph import ROWS_INPUT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from engine.domain import KeptPrefix, KVUsage, MicroBatch, SequenceId, SequenceStep
    from engine.messages.stage_control import LoadShard

_STEP_TOKENS = 8  # of a call after the first
_MAX_PROMPT_TOKENS = 1024
_BLOCK_TOKENS = 64  # NPUW rounds its lengths up to it
_KV_BYTES = 2  # f16
_OUTPUT_NAME = "logits"  # NPUW takes the port of this name, whatever it holds


class NpuStage:
    """One shard on the NPU, for one sequence at a time.

    Attributes:
        description: What was loaded.
    """

    def __init__(
        self,
        compiled: ov.CompiledModel,
        prompt_tokens: int,
        blocks: KVBlocks,
        description: StageDescription,
    ) -> None:
        """Take a compiled shard; ``load_npu`` makes one."""
        self.description = description
        self._request = compiled.create_infer_request()
        self._owner: SequenceId | None = None
        self._prompt_tokens = prompt_tokens
        self._blocks = blocks
        self._row_width = None if description.is_first else description.hidden_size
        self._inputs = {name for port in compiled.inputs for name in port.get_names()}
        part = "logits" if description.is_last else "hidden states"
        self._what = f"{part} of layers {description.layers}"

    def run(self, batch: MicroBatch) -> NDArray[np.float32]:
        """Run one micro-batch; see ``Stage.run``.

        Raises:
            KVCacheFullError: Another sequence is in the cache.
            InferenceError: The device failed, or a NaN or infinity came out.
        """
        check_batch(batch, self._blocks.num_tokens, self._row_width)
        step = batch.steps[0]
        if len(batch.steps) > 1 or self._owner not in {None, step.sequence_id}:
            raise KVCacheFullError(self._blocks.num_blocks, 0)
        self._blocks.resize([(step.sequence_id, step.past_len + step.num_tokens)])
        self._owner = step.sequence_id
        try:
            rows = self._run_step(batch, step)
            check_finite(rows, self._what, may_ban=self.description.is_last)
        except RuntimeError as exc:
            self.release(step.sequence_id)
            raise InferenceError(f"{self.description.device} failed: {last_line(exc)}") from exc
        except InferenceError:
            self.release(step.sequence_id)
            raise
        return rows

    def begin_from(self, sequence_id: SequenceId, prefix: KeptPrefix) -> None:
        """Keep nothing: a chain with an NPU keeps no prefixes, so its first step is refused."""

    def release(self, sequence_id: SequenceId) -> None:
        """Free what is kept for a sequence; see ``Stage.release``."""
        self._blocks.release(sequence_id)
        if self._owner == sequence_id:
            self._owner = None

    def kv_usage(self) -> KVUsage:
        """Count the KV blocks; see ``Stage.kv_usage``."""
        return self._blocks.usage()

    def _run_step(self, batch: MicroBatch, step: SequenceStep) -> NDArray[np.float32]:
        tokens: NDArray[Any] = batch.token_ids
        hidden = widened_rows(batch)
        if hidden is not None and not self.description.is_first:
            tokens = hidden
        parts, done = [], 0
        while done < step.num_tokens:
            past_len = step.past_len + done
            room = _STEP_TOKENS if past_len else self._prompt_tokens
            count = min(room, step.num_tokens - done)
            parts.append(self._call(tokens[done : done + count], past_len))
            done += count
        rows = np.concatenate(parts)
        return rows[step.num_tokens - step.num_logits :] if self.description.is_last else rows

    def _call(self, tokens: NDArray[Any], past_len: int) -> NDArray[np.float32]:
        count = len(tokens)
        total = past_len + count
        arrays: dict[str, NDArray[Any]] = {
            "input_ids": tokens[None].astype(np.int64),
            "inputs_embeds": tokens[None].astype(np.float32),
            "attention_mask": np.ones((1, total), np.int64),
            "position_ids": np.arange(past_len, total)[None],
            "beam_idx": np.zeros(1, np.int32),
        }
        for name in self._inputs & arrays.keys():
            self._request.set_tensor(name, ov.Tensor(np.ascontiguousarray(arrays[name])))
        self._request.infer()
        output: NDArray[np.float32] = self._request.get_output_tensor(0).data
        # The rows are right-aligned in a tensor of the call's greatest length.
        return np.array(output.reshape(-1, output.shape[-1])[-count:], np.float32)


def load_npu(
    core: ov.Core, request: LoadShard, properties: Mapping[str, str] | None = None
) -> NpuStage:
    """Load a shard on the NPU.

    Args:
        core: For reading and compiling.
        request: What to load and how; ``max_tokens`` is the context of its one sequence.
        properties: More of OpenVINO's, such as ``NPUW_DEVICES``.

    Raises:
        ModelFileError: A file of the shard is missing or cut short.
        CompileError: The device can't run it, or exact mode is asked for.
    """
    if request.mode == "exact":
        raise CompileError(
            f"{request.device} computes in f16 and has no exact mode.",
            "Use the CPU where exact numbers are wanted.",
        )
    model = read_shard(core, request.xml_path)
    _take_all_rows(model)
    model.outputs[0].get_tensor().set_names({_OUTPUT_NAME})
    num_blocks = max(math.ceil(request.max_tokens / _BLOCK_TOKENS), 2)
    context = num_blocks * _BLOCK_TOKENS
    prompt = min(_MAX_PROMPT_TOKENS, context - _BLOCK_TOKENS)
    lengths = {
        "NPUW_LLM_MAX_PROMPT_LEN": str(prompt),
        "NPUW_LLM_MIN_RESPONSE_LEN": str(context - prompt),
        "NPUW_LLM_MAX_GENERATION_TOKEN_LEN": str(_STEP_TOKENS),
    }
    cache = {} if request.cache_dir is None else {"CACHE_DIR": request.cache_dir}
    given = {**_NPUW_PROPERTIES, **lengths, **cache, **(properties or {})}
    compiled = compile_shard(core, model, request, given)
    block_bytes = _BLOCK_TOKENS * _values_per_token(model) * _KV_BYTES
    description = StageDescription(
        layers=request.layers,
        is_first=request.is_first,
        is_last=request.is_last,
        kind="stateful",
        mode=request.mode,
        device=request.device,
        hidden_size=request.hidden_size,
        vocab_size=request.vocab_size,
        num_fused_layers=len(request.layers),  # NPUW keeps every cache itself
        block_tokens=_BLOCK_TOKENS,
        num_blocks=num_blocks,
        block_bytes=block_bytes,
        load_s=0.0,
        golden_error=None,
    )
    return NpuStage(compiled, prompt, KVBlocks(num_blocks, _BLOCK_TOKENS, block_bytes), description)


_NPUW_PROPERTIES = {
    "NPU_USE_NPUW": "YES",
    "NPUW_LLM": "YES",
    "NPUW_LLM_BATCH_DIM": "0",
    "NPUW_LLM_SEQ_LEN_DIM": "2",
    # With a shared head it looks for an LM head in a shard that has none.
    "NPUW_LLM_SHARED_HEAD": "NO",
    "NPUW_SLICE_OUT": "NO",
    # Prefill in chunks gives back only the last chunk's rows.
    "NPUW_LLM_PREFILL_HINT": "STATIC",
}


def _take_all_rows(model: ov.Model) -> None:
    """Remove the input that names the rows for the LM head: NPUW knows none of that name."""
    for parameter in model.get_parameters():
        if parameter.get_friendly_name() != ROWS_INPUT:
            continue
        for target in parameter.output(0).get_target_inputs():
            gather = target.get_node()
            gather.output(0).replace(gather.input_value(0))
        model.remove_parameter(parameter)
        model.validate_nodes_and_infer_types()


def _values_per_token(model: ov.Model) -> int:
    shapes = [variable.info.data_shape for variable in model.get_variables()]
    return sum(math.prod(d.get_length() for d in shape if d.is_static) for shape in shapes)

"""The nouns everyone shares: layer ranges, what a model is, and one micro-batch's work.

Knows nothing of files, devices, sockets or time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NewType

import msgspec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NodeId = NewType("NodeId", str)
SequenceId = NewType("SequenceId", int)  # u32, given out by the head, never reused in an epoch
StageKind = Literal["paged", "stateful"]
ComputeMode = Literal["exact", "fast"]
# What hidden states are sent in; and what may be asked for, where "auto" leaves it to the mode.
HiddenPrecision = Literal["f32", "f16", "int8"]
LinkPrecision = Literal["auto", "f32", "f16", "int8"]


class LayerRange(msgspec.Struct, frozen=True, order=True):
    """Decoder layers ``[start, stop)``, half-open, counted from 0."""

    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    def __str__(self) -> str:
        return f"{self.start}..{self.stop - 1}" if len(self) > 1 else str(self.start)


class ModelDescription(msgspec.Struct, frozen=True, kw_only=True):
    """What a model is, as far as dividing and running it needs to know."""

    name: str
    architecture: str  # config.json's model_type; "unknown" where there is none
    num_layers: int
    hidden_size: int
    num_kv_heads: tuple[int, ...]  # per layer
    head_size: tuple[int, ...]  # per layer, of the keys
    value_head_size: tuple[int, ...]  # per layer; differs from head_size in MLA models
    vocab_size: int
    context_length: int | None  # tokens; None where the model does not say
    weight_precision: str  # the element type most weight bytes are stored in: "u4", "i8", "f16"
    layer_bytes: tuple[int, ...]  # weights of each layer
    embedding_bytes: int  # weights only the first shard needs
    head_bytes: int  # weights only the last shard needs; a tied table is counted in both
    eos_token_ids: tuple[int, ...]  # sorted union of generation_config, tokenizer and template

    def kv_bytes_per_token(self, bytes_per_value: int, layers: LayerRange) -> int:
        """Return the bytes one token's keys and values take in the given layers.

        Args:
            bytes_per_value: 4 for f32, 2 for f16, 1 for u8 (without scales).
            layers: The layers counted.
        """
        own = range(layers.start, layers.stop)
        values = (self.num_kv_heads[i] * (self.head_size[i] + self.value_head_size[i]) for i in own)
        return bytes_per_value * sum(values)


class KeptPrefix(msgspec.Struct, frozen=True):
    """The first tokens of a sequence that has ended, whose caches another one begins with."""

    sequence_id: SequenceId  # of the one that has ended
    num_tokens: int  # whole KV blocks of every stage


class SequenceStep(msgspec.Struct, frozen=True):
    """One sequence's share of a micro-batch.

    The step runs positions ``[past_len, past_len + num_tokens)`` of the sequence. What a stage
    has cached beyond ``past_len`` is dropped first: a smaller ``past_len`` *is* the rewind.
    """

    sequence_id: SequenceId
    past_len: int
    num_tokens: int
    num_logits: int  # how many of the last rows go through the LM head: 0 to num_tokens


@dataclass(frozen=True, slots=True, eq=False)
class MicroBatch:
    """The work of one pass through one stage.

    Attributes:
        batch_id: Counts up at the head; u32.
        epoch: Of the placement this batch was made for; u32.
        steps: The sequences, in row order; at least one.
        token_ids: int32 ``[num_tokens]``, all steps' tokens one after the other. They travel to
            every stage, because the last one needs them for penalties and for verifying drafts.
        hidden_states: float32, float16 or int8, C-contiguous ``[num_tokens, hidden_size]``; None on
            the way into the first stage.
        row_scales: float32 ``[num_tokens]``, what one step of int8 is worth in each row; None
            where ``hidden_states`` is not int8.
    """

    batch_id: int
    epoch: int
    steps: tuple[SequenceStep, ...]
    token_ids: NDArray[np.int32]
    hidden_states: NDArray[np.float32] | NDArray[np.float16] | NDArray[np.int8] | None = None
    row_scales: NDArray[np.float32] | None = None

    def taking(
        self, steps: tuple[SequenceStep, ...], rows: NDArray[np.int64] | NDArray[np.bool_]
    ) -> MicroBatch:
        """Return a batch of some of the rows, or of some more than once; its arrays are copies.

        Args:
            steps: Those of the new batch.
            rows: Which rows, in the order of ``steps``: numbers, or whether each is taken.
        """
        hidden, scales = self.hidden_states, self.row_scales
        return MicroBatch(
            self.batch_id,
            self.epoch,
            steps,
            self.token_ids[rows],
            None if hidden is None else hidden[rows],
            None if scales is None else scales[rows],
        )

    @property
    def num_tokens(self) -> int:
        """Rows of the batch."""
        return sum(step.num_tokens for step in self.steps)

    @property
    def num_logits(self) -> int:
        """Rows that go through the LM head."""
        return sum(step.num_logits for step in self.steps)


class SampledRow(msgspec.Struct, frozen=True):
    """What the last stage drew for one sequence of a micro-batch.

    ``token_ids[i]`` was drawn for position ``first_position + i``, given everything before it
    as it was fed; with drafts in the batch, those after the first mismatch mean nothing.
    """

    sequence_id: SequenceId
    first_position: int
    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SampledTokens:
    """The last stage's answer to one micro-batch, on its way to the head."""

    batch_id: int
    epoch: int
    rows: tuple[SampledRow, ...]


class RowTime(msgspec.Struct, frozen=True):
    """How long a stage took for a pass with a few rows of one sequence."""

    rows: int
    seconds: float


class StageDescription(msgspec.Struct, frozen=True, kw_only=True):
    """What was loaded, and what was seen while loading it."""

    layers: LayerRange
    is_first: bool
    is_last: bool
    kind: StageKind
    mode: ComputeMode
    device: str
    hidden_size: int
    vocab_size: int
    num_fused_layers: int  # KV fusions counted in the runtime model; equals len(layers)
    block_tokens: int  # tokens of one KV block
    num_blocks: int  # KV blocks this stage may use
    block_bytes: int  # bytes of one KV block over all layers of the stage
    load_s: float  # reading and compiling
    golden_error: float | None  # relative RMS error of the golden step; None where not run
    notes: tuple[str, ...] = ()  # e.g. "precision f32: bf16 with one thread ends the process"
    row_times: tuple[RowTime, ...] = ()  # in ascending order; of a first stage only


class KVUsage(msgspec.Struct, frozen=True):
    """How full the KV cache is; always ``used + free == total`` blocks."""

    used_blocks: int
    free_blocks: int
    used_bytes: int
    num_sequences: int

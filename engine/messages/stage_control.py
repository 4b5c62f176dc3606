"""The control messages between a node and its stage process, through a pair of pipes."""

from __future__ import annotations

from engine.domain import (
    ComputeMode,
    HiddenPrecision,
    KVUsage,
    LayerRange,
    StageDescription,
    StageKind,
)
from engine.messages.message import Message


class GoldenStep(Message, frozen=True):
    """Where the golden vectors lie: raw little-endian float32 ``[num_tokens, width]``."""

    token_ids: tuple[int, ...]
    input_path: str | None  # hidden states before the first own layer; None on the first stage
    output_path: str  # hidden states after the last own layer, or the last row's logits
    max_relative_error: float


class LoadShard(Message, frozen=True):
    """First message to a stage process: load this, in this way."""

    xml_path: str
    layers: LayerRange
    is_first: bool
    is_last: bool
    hidden_size: int
    vocab_size: int
    device: str
    kind: StageKind
    mode: ComputeMode
    num_threads: int | None
    max_tokens: int  # KV room over all sequences together
    sliding_window: int | None  # the smallest window of any own layer
    cache_dir: str | None
    golden: GoldenStep | None
    max_sequences: int = 1  # at once; each may leave one KV block partly empty
    precision: str | None = None  # fast mode: instead of the device's own choice
    hidden_precision: HiddenPrecision = "f32"  # of what goes to the next stage, where it fits
    times_rows: bool = False  # of a first stage: says what passes cost by the number of their rows
    # Fast mode: whether a row must be the same to the last bit with guesses behind it and without,
    # for a few percent of a single row's time. In exact mode it always is.
    rows_alike: bool = False


class ShardLoaded(Message, frozen=True):
    """The stage process is ready for batches."""

    description: StageDescription


class ReportKVUsage(Message, frozen=True):
    """Ask the stage process how full it is; answered by ``KVUsageReport``."""


class KVUsageReport(Message, frozen=True):
    """The answer to ``ReportKVUsage``."""

    usage: KVUsage


class Shutdown(Message, frozen=True):
    """End in good order."""

"""Golden vectors: what an exact run of the whole model gives at every boundary.

The model is run a few layers at a time, cut out by the same cutter, so that a 40 GB model needs
the memory of those. A stage compares itself with these vectors when it is loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from engine.domain import LayerRange
from engine.errors import CompileError, InferenceError
from engine.splitter.cut import HIDDEN_INPUT, cut_shard
from engine.splitter.lm_head import ROWS_INPUT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import openvino as ov
    from numpy.typing import NDArray

    from engine.splitter.analysis import Analysis

NUM_GOLDEN_TOKENS = 8
MAX_GROUP_BYTES = 256 * 1024 * 1024  # weights are repacked when compiled: this much twice
EXACT = {
    "INFERENCE_PRECISION_HINT": "f32",
    "KV_CACHE_PRECISION": "f32",
    "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0",
}


def golden_token_ids(vocab_size: int) -> tuple[int, ...]:
    """Return token ids spread over a vocabulary, the same for every model of that size."""
    return tuple(
        (k * vocab_size + vocab_size // 3) // NUM_GOLDEN_TOKENS % vocab_size
        for k in range(NUM_GOLDEN_TOKENS)
    )


def golden_run(
    analysis: Analysis,
    groups: Sequence[LayerRange],
    token_ids: tuple[int, ...],
    check_cancelled: Callable[[], None],
) -> Iterator[tuple[LayerRange, NDArray[np.float32]]]:
    """Run the golden tokens through the model, a group of layers at a time.

    Args:
        analysis: Of the whole model.
        groups: All its layers in order, as ``group_layers`` gives them.
        token_ids: The golden tokens.
        check_cancelled: Called before each group; raises to stop.

    Yields:
        ``(group, after)``: hidden states f32 ``[tokens, hidden_size]`` behind each group; behind
        the last one its last row's logits f32 ``[1, vocab_size]``.

    Raises:
        CompileError: A group can't be compiled on the CPU.
        InferenceError: A group gives something that is not finite.
    """
    value: NDArray[np.generic] = np.array([token_ids], dtype=np.int64)
    for group in groups:
        check_cancelled()
        shard = cut_shard(analysis, group).model
        value = _run_once(analysis.core, shard, value, len(token_ids), group)
        yield group, np.ascontiguousarray(value[0], dtype=np.float32)


def group_layers(
    layer_bytes: Sequence[int], stops: frozenset[int], max_bytes: int = MAX_GROUP_BYTES
) -> tuple[LayerRange, ...]:
    """Divide layers into groups whose weights fit a bound together.

    Args:
        layer_bytes: Weights of each layer.
        stops: Layers before which a group must end.
        max_bytes: Of a group; a single layer may have more.
    """
    groups = []
    start = 0
    for layer in range(1, len(layer_bytes) + 1):
        is_full = layer < len(layer_bytes) and sum(layer_bytes[start : layer + 1]) > max_bytes
        if layer in stops or is_full or layer == len(layer_bytes):
            groups.append(LayerRange(start, layer))
            start = layer
    return tuple(groups)


def _run_once(
    core: ov.Core, shard: ov.Model, value: NDArray[np.generic], num_tokens: int, group: LayerRange
) -> NDArray[np.float32]:
    try:
        compiled = core.compile_model(shard, "CPU", EXACT)
        request = compiled.create_infer_request()
        request.infer({i: _feed(i, value, num_tokens) for i in compiled.inputs})
        result: NDArray[np.float32] = request.get_output_tensor(0).data[:, -num_tokens:].copy()
    except RuntimeError as exc:
        reason = str(exc).strip().splitlines()[-1]
        raise CompileError(f"Layers {group} can't be run on the CPU: {reason}") from exc
    if not np.isfinite(result).all():
        raise InferenceError(
            f"Layers {group} of the model give values that are not finite.",
            "The model's weights are damaged; get a whole copy of it.",
        )
    return result


def _feed(port: ov.Output, value: NDArray[np.generic], num_tokens: int) -> NDArray[np.generic]:
    """Fill one input for a single sequence of golden tokens from position 0."""
    feeds: dict[str, NDArray[np.generic]] = {
        "input_ids": value,
        HIDDEN_INPUT: value,
        "attention_mask": np.ones((1, num_tokens), np.int64),
        "position_ids": np.arange(num_tokens, dtype=np.int64)[None],
        "token_type_ids": np.zeros((1, num_tokens), np.int64),
        "beam_idx": np.zeros(1, np.int32),
        ROWS_INPUT: np.array([num_tokens - 1], np.int64),
    }
    return next(feeds[name] for name in sorted(port.get_names()) if name in feeds)

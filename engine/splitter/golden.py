"""Golden vectors: what an exact run of the whole model gives at every boundary.

The model is run a layer at a time, each cut out by the same cutter, so that a 40 GB model needs
the memory of one layer. A stage compares itself with these vectors when it is loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from engine.domain import LayerRange
from engine.errors import CompileError, InferenceError
from engine.splitter.cut import HIDDEN_INPUT, cut_shard
from engine.splitter.lm_head import ROWS_INPUT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import openvino as ov
    from numpy.typing import NDArray

    from engine.splitter.analysis import Analysis

NUM_GOLDEN_TOKENS = 8
EXACT = {
    "INFERENCE_PRECISION_HINT": "f32",
    "KV_CACHE_PRECISION": "f32",
    "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0",
}


def golden_token_ids(vocab_size: int) -> tuple[int, ...]:
    """Return token ids spread over a vocabulary, the same for every model of that size."""
    return tuple((k * vocab_size + vocab_size // 3) // NUM_GOLDEN_TOKENS % vocab_size
                 for k in range(NUM_GOLDEN_TOKENS))


def golden_run(
    analysis: Analysis, token_ids: tuple[int, ...], check_cancelled: Callable[[], None]
) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """Run the golden tokens through the model, a layer at a time.

    Args:
        analysis: Of the whole model.
        token_ids: The golden tokens.
        check_cancelled: Called before each layer; raises to stop.

    Yields:
        ``(layer, after)``: hidden states f32 ``[tokens, hidden_size]`` behind each layer; behind
        the last one its last row's logits f32 ``[1, vocab_size]``.

    Raises:
        CompileError: A layer can't be compiled on the CPU.
        InferenceError: A layer gives something that is not finite.
    """
    value: NDArray[np.generic] = np.array([token_ids], dtype=np.int64)
    for layer in range(analysis.num_layers):
        check_cancelled()
        shard = cut_shard(analysis, LayerRange(layer, layer + 1)).model
        value = _run_once(analysis.core, shard, value, len(token_ids), layer)
        yield layer, np.ascontiguousarray(value[0], dtype=np.float32)


def _run_once(
    core: ov.Core, shard: ov.Model, value: NDArray[np.generic], num_tokens: int, layer: int
) -> NDArray[np.float32]:
    try:
        compiled = core.compile_model(shard, "CPU", EXACT)
        request = compiled.create_infer_request()
        request.infer({i: _feed(i, value, num_tokens) for i in compiled.inputs})
        result: NDArray[np.float32] = request.get_output_tensor(0).data[:, -num_tokens:].copy()
    except RuntimeError as exc:
        reason = str(exc).strip().splitlines()[-1]
        raise CompileError(f"Layer {layer} can't be run on the CPU: {reason}") from exc
    if not np.isfinite(result).all():
        raise InferenceError(
            f"Layer {layer} of the model gives values that are not finite.",
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

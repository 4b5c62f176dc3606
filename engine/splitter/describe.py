"""What a model is, found in its graph without cutting it: ``python -m engine.splitter.describe``.

That is how a worker process runs it, so that a damaged model ends nothing else.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import openvino as ov

from engine.domain import LayerRange, ModelDescription
from engine.splitter.analysis import Analysis, analyse
from engine.splitter.cut import cut_shard
from engine.splitter.orders import Described, DescribeOrder, Progress
from engine.splitter.paged_support import probe_paged_support
from engine.splitter.weights import WeightBytes, weigh
from engine.worker import serve_order

if TYPE_CHECKING:
    from collections.abc import Callable


def describe_model(
    order: DescribeOrder,
    report: Callable[[Progress], None],
    check_cancelled: Callable[[], None],
) -> Described:
    """Find out what a model is, whether it can be cut at every layer, and whether it can be paged.

    Args:
        order: Which model.
        report: Told of each half of the work.
        check_cancelled: Called between them; raises to stop.

    Fails with ``ModelFileError`` if the model can't be read, and with ``UnsupportedModelError``
    if it can't be cut at some layer. Weights stay mapped.
    """
    report(Progress("analyse", 0, 2))
    analysis = analyse(ov.Core(), Path(order.xml))
    model = description_of(order, analysis, weigh(analysis))
    report(Progress("analyse", 1, 2))
    check_cancelled()
    whole = cut_shard(analysis, LayerRange(0, analysis.num_layers))
    support = probe_paged_support(whole.model, analysis.num_layers)
    report(Progress("analyse", 2, 2))
    return Described(model, support.refusal)


def description_of(
    order: DescribeOrder, analysis: Analysis, weights: WeightBytes
) -> ModelDescription:
    """Put together what is known of a model.

    Args:
        order: What is known from beside the graph.
        analysis: Of the whole model.
        weights: Likewise.
    """
    heads, sizes, value_sizes = [], [], []
    for layer in analysis.layers:
        dims = [_static_dims(analysis, cache.read) for cache in layer.caches]
        heads.append(dims[0][0])
        sizes.append(dims[0][-1])
        value_sizes.append(dims[-1][-1])
    return ModelDescription(
        name=order.name,
        architecture=order.architecture,
        num_layers=analysis.num_layers,
        hidden_size=analysis.finder.before(0).hidden_size,
        num_kv_heads=tuple(heads),
        head_size=tuple(sizes),
        value_head_size=tuple(value_sizes),
        vocab_size=vocab_size(analysis),
        context_length=order.context_length,
        weight_precision=weights.precision,
        layer_bytes=weights.layers,
        embedding_bytes=weights.embedding,
        head_bytes=weights.head,
        eos_token_ids=order.eos_token_ids,
    )


def vocab_size(analysis: Analysis) -> int:
    """Return how many logits a model gives for a token.

    Args:
        analysis: Of the whole model.
    """
    (result,) = analysis.graph.of_type("Result")
    shape = analysis.graph.nodes[result].get_input_partial_shape(0)
    return int(shape[shape.rank.get_length() - 1].get_length())


def _static_dims(analysis: Analysis, read: int) -> list[int]:
    shape = analysis.graph.nodes[read].get_output_partial_shape(0)
    return [d.get_length() for d in shape if d.is_static] or [1]


if __name__ == "__main__":
    sys.exit(serve_order(DescribeOrder, describe_model))

"""Fixtures analysed once, graphs changed on purpose, and plain OpenVINO to run shards with."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import openvino as ov

from engine.splitter.analysis import Analysis, analyse
from engine.splitter.cut import cut_shard

if TYPE_CHECKING:
    from engine.domain import LayerRange

MODELS = Path(__file__).parents[2] / "fixtures" / "models"
REFUSED = ("shared-kv-", "recurrent-")
NAMES = sorted(p.name for p in MODELS.iterdir() if not p.name.startswith(REFUSED))
EXACT = {
    "INFERENCE_PRECISION_HINT": "f32",
    "KV_CACHE_PRECISION": "f32",
    "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0",
}
CORE = ov.Core()


def xml_of(name: str) -> Path:
    return MODELS / name / "openvino_model.xml"


@cache
def analysis_of(name: str) -> Analysis:
    return analyse(CORE, xml_of(name))


@cache
def shard_of(name: str, layers: LayerRange) -> ov.Model:
    """Cut a shard once for all tests that only look at it."""
    return cut_shard(analysis_of(name), layers).model


def saved(model: ov.Model, folder: Path) -> Path:
    """Save a model as a fixture is saved; return its XML."""
    folder.mkdir(parents=True, exist_ok=True)
    xml = folder / "openvino_model.xml"
    ov.save_model(model, xml, compress_to_fp16=False)
    return xml


def take_out_beam(model: ov.Model) -> int:
    """Feed what the ``beam_idx`` Gathers feed from their ReadValues; return how many there were."""
    gathers = [
        node
        for node in model.get_ops()
        if node.get_type_name() == "Gather" and "beam_idx" in node.input_value(1).get_names()
    ]
    for gather in gathers:
        for consumer in gather.output(0).get_target_inputs():
            consumer.replace_source_output(gather.input_value(0))
    for parameter in model.get_parameters():
        if "beam_idx" in parameter.output(0).get_names():
            model.remove_parameter(parameter)
    model.validate_nodes_and_infer_types()
    return len(gathers)


def constants(model: ov.Model) -> dict[str, bytes]:
    """Return the bytes of every constant by its name."""
    return {
        node.get_friendly_name(): np.asarray(node.data).tobytes()
        for node in model.get_ops()
        if node.get_type_name() == "Constant"
    }


def input_names(model: ov.Model) -> set[str]:
    return {name for port in model.inputs for name in port.get_names()}


def run_once(model: ov.Model, **feeds: np.ndarray) -> np.ndarray:
    """Run a graph once over a single sequence from position 0; return its output, ``[rows, n]``.

    Masks and positions are filled in for as many tokens as ``feeds`` have.
    """
    compiled = CORE.compile_model(model, "CPU", EXACT)
    num_tokens = next(iter(feeds.values())).shape[1]
    values = {
        "attention_mask": np.ones((1, num_tokens), np.int64),
        "position_ids": np.arange(num_tokens, dtype=np.int64)[None],
        "beam_idx": np.zeros(1, np.int32),
        **feeds,
    }
    request = compiled.create_infer_request()
    request.infer({
        port: values[name] for port in compiled.inputs for name in port.get_names() & values.keys()
    })
    return request.get_output_tensor(0).data[0].copy()

"""A padded model is another depth and the same function."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import openvino as ov
import pytest
from llama_graph import build_llama
from padded_model import OtherModelError, RepeatedWeights
from random_ir import PRESETS
from random_weights import WeightFile

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

SHAPE = dataclasses.replace(PRESETS["tiny"], is_tied=True)
ROLES = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
EXACT = {"INFERENCE_PRECISION_HINT": "f32"}


def _as_converted(model: ov.Model) -> ov.Model:
    """Name matrices as converters do that know no names: by numbers, in the order of their use."""
    for node in model.get_ops():
        parts = node.get_friendly_name().removesuffix("/MatMul").split(".")
        if parts[-1] in ROLES:
            number = int(parts[2]) * len(ROLES) + ROLES.index(parts[-1])
            node.set_friendly_name(f"MatMul_{number}")
        elif parts[-1] == "lm_head" and node.get_type_name() == "MatMul":
            node.set_friendly_name("MatMul_1000000")
    return model


def _logits(model: ov.Model) -> NDArray[np.float32]:
    request = ov.Core().compile_model(model, "CPU", EXACT).create_infer_request()
    ids = np.array([[3, 1, 4, 1, 5]])
    request.infer({
        "input_ids": ids,
        "attention_mask": np.ones_like(ids),
        "position_ids": np.arange(ids.size)[None, :],
        "beam_idx": np.zeros(1, np.int32),
    })
    return np.array(request.get_tensor("logits").data)


def test_layers_that_write_nothing_change_no_logit(tmp_path: Path) -> None:
    with WeightFile(tmp_path / "weights", seed=1) as weights:
        model = _as_converted(build_llama(SHAPE, weights))
        repeated = RepeatedWeights(model, SHAPE.num_layers, 2 * SHAPE.num_layers)
        deeper = build_llama(dataclasses.replace(SHAPE, num_layers=2 * SHAPE.num_layers), repeated)
        assert len(deeper.get_variables()) == 2 * len(model.get_variables())
        np.testing.assert_array_equal(_logits(deeper), _logits(model))


def test_another_number_of_layers_is_refused(tmp_path: Path) -> None:
    with WeightFile(tmp_path / "weights", seed=1) as weights:
        model = _as_converted(build_llama(SHAPE, weights))
        with pytest.raises(OtherModelError):
            RepeatedWeights(model, SHAPE.num_layers + 1, 2 * SHAPE.num_layers)

"""What a stage takes for a token: its layers by their bytes, and the LM head where it has it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from engine.domain import LayerRange
from engine.splitter.layer_work import layer_times, stage_work
from tests.unit.pool.models import model

MODEL = replace(
    model(),
    num_layers=4,
    layer_bytes=(100, 100, 300, 300),
    embedding_bytes=5000,
    head_bytes=1000,
)


def test_layers_are_counted_by_their_bytes_and_the_head_as_layers():
    times = layer_times(MODEL)
    assert times.layers == (0.5, 0.5, 1.5, 1.5)
    assert times.last_extra == 5.0
    assert stage_work(times, LayerRange(0, 2)) == pytest.approx(1.0)
    assert stage_work(times, LayerRange(2, 4)) == pytest.approx(8.0)
    assert stage_work(times, LayerRange(0, 4)) == pytest.approx(9.0)


def test_a_layer_without_weights_still_takes_some_time():
    times = layer_times(replace(MODEL, layer_bytes=(0, 0, 0, 0), head_bytes=0))
    assert all(time > 0 for time in times.layers)

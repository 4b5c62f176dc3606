"""The random model is made as exports are: it fuses, cuts at every boundary and can be paged."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import openvino as ov
import pytest
from random_ir import PRESETS, RandomModelError, build_folder, symmetric

from engine.domain import LayerRange
from engine.splitter.analysis import analyse
from engine.splitter.cut import cut_shard
from engine.splitter.golden import EXACT
from engine.splitter.paged_support import probe_paged_support
from engine.stages.fusion_count import count_stateful_cpu

TINY = PRESETS["tiny"]
PROMPT = [5, 17, 300, 42, 7]
SCRIPT = Path(__file__).parents[3] / "reproduction" / "random_ir.py"
VARIANTS = {
    "symmetric": symmetric(TINY),
    "four-bit head": dataclasses.replace(TINY, head_format="u4"),
    "tied": dataclasses.replace(TINY, is_tied=True),
    "one key head a query head": dataclasses.replace(TINY, num_kv_heads=4),
}


class Chain:
    """Models in a row; what one gives the next one takes. Exact mode."""

    def __init__(self, models: list[ov.Model]) -> None:
        core = ov.Core()
        self._requests = [
            core.compile_model(model, "CPU", EXACT).create_infer_request() for model in models
        ]
        self._past = 0

    def feed(self, ids: list[int]) -> np.ndarray:
        """Run the next tokens of one sequence; return the last one's logits."""
        end = self._past + len(ids)
        value = np.array([ids], np.int64)
        for request in self._requests:
            known = {
                "input_ids": value,
                "inputs_embeds": value,
                "attention_mask": np.ones((1, end), np.int64),
                "position_ids": np.arange(self._past, end, dtype=np.int64)[None],
                "beam_idx": np.zeros(1, np.int32),
                "sampled_tokens_indices": np.array([len(ids) - 1], np.int64),
            }
            names = [port.get_any_name() for port in request.model_inputs]
            value = request.infer({name: known[name] for name in names})[0].copy()
        self._past = end
        return value[0, -1]

    def greedy(self, length: int) -> list[int]:
        """Continue the prompt."""
        ids, tokens = PROMPT, []
        for _ in range(length):
            ids = [int(self.feed(ids).argmax())]
            tokens += ids
        return tokens


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny preset's folder, made by the command a person gives."""
    out = tmp_path_factory.mktemp("random") / "tiny"
    command = [sys.executable, str(SCRIPT), "tiny", str(out)]
    subprocess.run(command, check=True, capture_output=True)
    return out


def _xml(folder: Path) -> Path:
    return folder / "openvino_model.xml"


@pytest.mark.parametrize("cut", range(1, TINY.num_layers))
def test_two_shards_say_what_the_whole_says(tiny: Path, cut: int) -> None:
    core = ov.Core()
    analysis = analyse(core, _xml(tiny))
    ranges = (LayerRange(0, cut), LayerRange(cut, TINY.num_layers))
    shards = [cut_shard(analysis, layers).model for layers in ranges]
    whole = Chain([core.read_model(_xml(tiny))]).greedy(24)
    assert len(set(whole)) > 8, "a loop would prove little"
    assert Chain(shards).greedy(24) == whole


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_can_be_cut(tmp_path: Path, variant: str) -> None:
    build_folder(VARIANTS[variant], tmp_path / "model", seed=1)
    core = ov.Core()
    analysis = analyse(core, _xml(tmp_path / "model"))
    layers = [LayerRange(start, start + 1) for start in range(TINY.num_layers)]
    shards = [cut_shard(analysis, layer).model for layer in layers]
    whole = core.read_model(_xml(tmp_path / "model"))
    assert Chain(shards).greedy(8) == Chain([whole]).greedy(8)


def test_every_layer_gets_the_fused_cache(tiny: Path) -> None:
    core = ov.Core()
    model = core.read_model(_xml(tiny))
    count = count_stateful_cpu(model, core.compile_model(model, "CPU"))
    assert (count.num_fused_layers, count.unfused_states) == (TINY.num_layers, ())


def test_it_can_be_paged(tiny: Path) -> None:
    support = probe_paged_support(ov.Core().read_model(_xml(tiny)), TINY.num_layers)
    assert support.refusal is None


def test_weights_stay_compressed_when_compiled(tiny: Path) -> None:
    core = ov.Core()
    compiled = core.compile_model(core.read_model(_xml(tiny)), "CPU")
    stored = Counter(
        op.input_value(1).get_element_type().get_type_name()
        for op in compiled.get_runtime_model().get_ops()
        if op.get_rt_info()["layerType"].astype(str) == "FullyConnected"
    )
    assert stored == {"u4": 7 * TINY.num_layers, "u8": 1}


@pytest.mark.parametrize("options", [{}, EXACT], ids=["fast", "exact"])
def test_logits_are_finite_and_spread(tiny: Path, options: dict[str, str]) -> None:
    core = ov.Core()
    request = core.compile_model(str(_xml(tiny)), "CPU", options).create_infer_request()
    ids = np.array([PROMPT], np.int64)
    logits = request.infer({
        "input_ids": ids,
        "attention_mask": np.ones_like(ids),
        "position_ids": np.arange(ids.size)[None],
        "beam_idx": np.zeros(1, np.int32),
    })["logits"]
    assert np.isfinite(logits).all()
    assert 0.5 < logits.std() < 5


def test_the_size_is_known_beforehand(tiny: Path) -> None:
    size = (tiny / "openvino_model.bin").stat().st_size
    assert TINY.num_bytes <= size < TINY.num_bytes + 16_384


def test_presets_have_the_sizes_they_stand_for() -> None:
    assert 4.5e9 < PRESETS["llama-8b"].num_bytes < 4.8e9
    assert 0.96e9 < PRESETS["billion"].linear_weights < 0.98e9
    assert 350e6 < PRESETS["half-billion"].linear_weights < 365e6


def test_a_seed_gives_the_same_weights(tmp_path: Path) -> None:
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        build_folder(TINY, tmp_path / name, seed)
    first, second, other = ((tmp_path / name / "openvino_model.bin").read_bytes() for name in "abc")
    assert first == second
    assert first != other


def test_a_folder_that_exists_is_left_alone(tmp_path: Path) -> None:
    with pytest.raises(RandomModelError, match="exists already"):
        build_folder(TINY, tmp_path, seed=0)
    assert list(tmp_path.iterdir()) == []


def test_a_model_bigger_than_the_disk_is_refused_before_work(tmp_path: Path) -> None:
    huge = dataclasses.replace(TINY, num_layers=10**12)
    with pytest.raises(RandomModelError, match="GB free"):
        build_folder(huge, tmp_path / "model", seed=0)
    assert list(tmp_path.iterdir()) == []

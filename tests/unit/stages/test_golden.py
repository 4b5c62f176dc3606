"""The golden step accepts what was computed and refuses anything else."""

import math

import msgspec
import numpy as np
import openvino as ov
import pytest

from engine.domain import LayerRange
from engine.errors import GoldenStepError, ModelFileError
from engine.messages.stage_control import GoldenStep
from engine.splitter.analysis import analyse
from engine.splitter.cut import cut_shard
from engine.stages.golden import relative_error
from engine.stages.loading import load_stage
from tests.unit.stages.running import MODELS, batch, whole

TOKENS = list(range(20, 420, 25))


def stage_request(name, layers, folder, kind):
    """Cut, save and describe one stage of a fixture."""
    xml = folder / f"{name}_{layers.start}.xml"
    if not xml.exists():
        analysis = analyse(ov.Core(), MODELS / name / "openvino_model.xml")
        ov.save_model(cut_shard(analysis, layers).model, xml, compress_to_fp16=False)
    return whole(
        name,
        kind,
        xml_path=str(xml),
        layers=layers,
        is_first=layers.start == 0,
        is_last=layers.stop == 4,
    )


@pytest.fixture(scope="module", params=["llama", "bloom"])
def golden(request, tmp_path_factory):
    """Vectors of a fixture in two stages, computed by the stateful stages."""
    name, folder = request.param, tmp_path_factory.mktemp(request.param)
    first = load_stage(stage_request(name, LayerRange(0, 2), folder, "stateful"))
    last = load_stage(stage_request(name, LayerRange(2, 4), folder, "stateful"))
    hidden = first.run(batch((0, 0, TOKENS, 0)))
    hidden.tofile(folder / "before_2.f32")
    last.run(batch((0, 0, TOKENS, 1), hidden=hidden)).tofile(folder / "logits.f32")
    return name, folder


def steps(folder, limit=1e-4):
    """The golden steps of both stages."""
    before, logits = str(folder / "before_2.f32"), str(folder / "logits.f32")
    tokens = tuple(TOKENS)
    return (
        GoldenStep(token_ids=tokens, input_path=None, output_path=before, max_relative_error=limit),
        GoldenStep(
            token_ids=tokens, input_path=before, output_path=logits, max_relative_error=limit
        ),
    )


@pytest.mark.parametrize("kind", ["paged", "stateful"])
def test_the_right_stages_are_accepted_and_left_empty(golden, kind):
    name, folder = golden
    for layers, step in zip((LayerRange(0, 2), LayerRange(2, 4)), steps(folder), strict=True):
        request = stage_request(name, layers, folder, kind)
        stage = load_stage(msgspec.structs.replace(request, golden=step))
        assert 0 <= stage.description.golden_error < 1e-4
        assert stage.kv_usage().num_sequences == 0
        assert stage.description.load_s > 0


@pytest.mark.parametrize("kind", ["paged", "stateful"])
def test_other_numbers_are_refused(golden, kind):
    """One expected value of a thousand off by one part in a hundred of their size."""
    name, folder = golden
    values = np.fromfile(folder / "before_2.f32", "<f4")
    values[7] += 0.01 * math.sqrt(values.size * float(np.square(values).mean()))
    values.tofile(folder / "off.f32")
    step = msgspec.structs.replace(steps(folder)[0], output_path=str(folder / "off.f32"))
    request = stage_request(name, LayerRange(0, 2), folder, kind)
    with pytest.raises(GoldenStepError, match=r"relative error of 0\.01; at most 0\.0001"):
        load_stage(msgspec.structs.replace(request, golden=step))


def test_vectors_of_another_length_are_named(golden):
    name, folder = golden
    (folder / "short.f32").write_bytes(bytes(100))
    step = msgspec.structs.replace(steps(folder)[0], output_path=str(folder / "short.f32"))
    request = stage_request(name, LayerRange(0, 2), folder, "paged")
    with pytest.raises(ModelFileError, match=r"short\.f32 has 100 bytes; 16 rows of 64"):
        load_stage(msgspec.structs.replace(request, golden=step))


def test_a_stage_that_masks_wrongly_is_told_to_cut(tmp_path):
    """A window nobody mentioned: the golden step's own rewind finds it."""
    name, layers = "mistral-window", LayerRange(0, 2)
    request = stage_request(name, layers, tmp_path, "stateful")
    tokens = [int(t) for t in np.random.default_rng(1).integers(3, 500, 40)]
    load_stage(request).run(batch((0, 0, tokens, 0))).tofile(tmp_path / "out.f32")
    step = GoldenStep(
        token_ids=tuple(tokens),
        input_path=None,
        output_path=str(tmp_path / "out.f32"),
        max_relative_error=1e-4,
    )
    stage = load_stage(msgspec.structs.replace(request, golden=step))
    assert stage.cuts_states
    assert stage.description.golden_error < 1e-4
    assert "rewinds cut the states" in stage.description.notes


def test_a_stage_that_gives_no_numbers_is_refused(tmp_path):
    """Infinite error, not a crash: the embedding of one golden token is NaN."""
    core = ov.Core()
    analysis = analyse(core, MODELS / "llama" / "openvino_model.xml")
    ov.save_model(cut_shard(analysis, LayerRange(1, 3)).model, tmp_path / "s.xml")
    np.full((3, 64), np.nan, "<f4").tofile(tmp_path / "in.f32")
    np.ones((3, 64), "<f4").tofile(tmp_path / "out.f32")
    step = GoldenStep(
        token_ids=(1, 2, 3),
        input_path=str(tmp_path / "in.f32"),
        output_path=str(tmp_path / "out.f32"),
        max_relative_error=0.05,
    )
    request = whole(
        "llama",
        "paged",
        xml_path=str(tmp_path / "s.xml"),
        layers=LayerRange(1, 3),
        is_first=False,
        is_last=False,
        golden=step,
    )
    with pytest.raises(GoldenStepError, match="relative error of inf"):
        load_stage(request)


def test_relative_error_is_the_rms_of_the_difference_over_the_rms_expected():
    expected = np.array([[3.0, 4.0]], np.float32)
    assert relative_error(expected, expected) == 0
    assert relative_error(expected * 1.5, expected) == pytest.approx(0.5)
    assert relative_error(expected, np.zeros_like(expected)) == math.inf

"""The beam_idx Gather: kept where it is, put in where the source has none, and needed."""

import pytest

from engine.domain import LayerRange
from engine.errors import CompileError
from engine.splitter.analysis import analyse
from engine.splitter.cut import cut_shard
from engine.splitter.fusion import reordered_caches
from engine.stages.loading import load_stage
from tests.equivalence.chain import Unsplit, load_chain, order
from tests.unit.splitter.cutting import (
    CORE,
    analysis_of,
    input_names,
    saved,
    take_out_beam,
    xml_of,
)

PROMPT = [5, 17, 300, 42, 7]
RANGES = [LayerRange(0, 2), LayerRange(2, 3), LayerRange(3, 4)]
# Among them: ALiBi without positions, MLA with longer keys, one K/V head, sinks.
WITHOUT_BEAM = ["llama-int4", "bloom", "deepseek-v2", "falcon-mqa", "gpt-oss"]


def load_stateful(analysis, layers, xml):
    return load_stage(order(analysis, layers, xml, "stateful", "exact", None))


@pytest.mark.parametrize("layers", RANGES, ids=str)
def test_a_shard_without_the_gather_is_refused_by_the_state_that_missed_its_fusion(
    layers, tmp_path
):
    analysis = analysis_of("llama")
    shard = cut_shard(analysis, layers).model
    assert reordered_caches(shard) == 2 * len(layers)
    assert take_out_beam(shard) == 2 * len(layers)
    assert reordered_caches(shard) == 0
    xml = saved(shard, tmp_path)
    with pytest.raises(CompileError) as caught:
        load_stateful(analysis, layers, xml)
    assert f"0 of the {len(layers)} layers {layers}" in caught.value.what
    assert f"past_key_values.{layers.start}." in caught.value.what


@pytest.fixture(scope="module", params=WITHOUT_BEAM)
def beamless(request, tmp_path_factory):
    """A fixture that was exported without ``beam_idx``."""
    folder = tmp_path_factory.mktemp(request.param)
    model = CORE.read_model(xml_of(request.param))
    assert take_out_beam(model) == 8
    assert "beam_idx" not in input_names(model)
    return request.param, analyse(CORE, saved(model, folder / "source")), folder


def test_the_cut_puts_in_the_gather_that_the_source_lacks(beamless):
    _, analysis, _ = beamless
    for layers in RANGES:
        cut = cut_shard(analysis, layers)
        assert cut.injected_reorders == 2 * len(layers)
        assert reordered_caches(cut.model) == 2 * len(layers)
        beams = [p for p in cut.model.inputs if "beam_idx" in p.get_names()]
        assert len(beams) == 1, "keys and values must share one"


def test_what_was_put_in_fuses_and_gives_the_unsplit_models_tokens(beamless):
    name, analysis, folder = beamless
    chain = load_chain(analysis, folder / "shards", [2, 3], "stateful")
    fused = [stage.description.num_fused_layers for stage in chain.stages]
    assert fused == [2, 1, 1]
    expected = Unsplit(xml_of(name)).greedy(PROMPT, 32)
    assert chain.greedy([PROMPT], 32) == [expected]


def test_nothing_is_put_in_where_the_source_has_it():
    for layers in RANGES:
        cut = cut_shard(analysis_of("llama"), layers)
        assert cut.injected_reorders == 0
        assert reordered_caches(cut.model) == 2 * len(layers)


def test_a_layer_that_lacks_it_gets_the_parameter_the_others_use(tmp_path):
    """One cache of one layer lost its Gather: the shard still has one ``beam_idx``."""
    model = CORE.read_model(xml_of("llama"))
    read = next(n for n in model.get_ordered_ops() if n.get_type_name() == "ReadValue")
    for target in read.output(0).get_target_inputs():
        for consumer in target.get_node().output(0).get_target_inputs():
            consumer.replace_source_output(read.output(0))
    analysis = analyse(CORE, saved(model, tmp_path / "source"))
    cuts = [cut_shard(analysis, LayerRange(k, k + 1)) for k in range(4)]
    assert sum(cut.injected_reorders for cut in cuts) == 1
    for layers, cut in zip(range(4), cuts, strict=True):
        assert sum("beam_idx" in port.get_names() for port in cut.model.inputs) == 1
        xml = saved(cut.model, tmp_path / str(layers))
        stage = load_stateful(analysis, LayerRange(layers, layers + 1), xml)
        assert stage.description.num_fused_layers == 1

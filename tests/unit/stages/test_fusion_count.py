"""A cache that is not fused is counted and named before a slow stage can start."""

import openvino as ov
import pytest

from engine.domain import LayerRange
from engine.errors import CompileError
from engine.stages.fusion_count import (
    FusionCount,
    check_fusion,
    count_paged,
    count_stateful_cpu,
)
from engine.stages.loading import load_stage
from engine.stages.paged_graph import make_paged
from tests.unit.stages.running import EXACT, MODELS, whole

LLAMA = MODELS / "llama" / "openvino_model.xml"
STATE = "past_key_values.2.keypresent.2.key"


def without_reorder(core):
    """The Llama fixture with the beam Gather of one cache removed."""
    model = core.read_model(LLAMA)
    for op in model.get_ops():
        source = op.input_value(0).get_node() if op.get_type_name() == "Gather" else op
        if source is op or source.get_type_name() != "ReadValue":
            continue
        if source.get_attributes()["variable_id"] == STATE:
            op.output(0).replace(source.output(0))
    model.validate_nodes_and_infer_types()
    return model


def test_every_layer_of_a_whole_model_is_counted():
    core = ov.Core()
    model = core.read_model(LLAMA)
    compiled = core.compile_model(model, "CPU", EXACT)
    assert count_stateful_cpu(model, compiled) == FusionCount(4, ())
    make_paged(model, str(LLAMA))
    assert count_paged(model) == FusionCount(4, ())


def test_a_cache_without_its_gather_is_found_unfused():
    core = ov.Core()
    model = without_reorder(core)
    count = count_stateful_cpu(model, core.compile_model(model, "CPU", EXACT))
    assert count.num_fused_layers == 3
    assert STATE in count.unfused_states
    with pytest.raises(CompileError, match=f"3 of the 4 layers 0..3 .*{STATE}"):
        check_fusion(count, LayerRange(0, 4), "CPU")


@pytest.mark.parametrize("kind", ["paged", "stateful"])
def test_a_shard_without_a_gather_is_not_loaded(kind, tmp_path):
    """Neither way; the sentence names the cache."""
    xml = tmp_path / "shard.xml"
    ov.save_model(without_reorder(ov.Core()), xml, compress_to_fp16=False)
    with pytest.raises(CompileError, match=STATE):
        load_stage(whole("llama", kind, xml_path=str(xml)))

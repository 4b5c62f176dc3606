"""The NPU path, as far as NPUW's emulation on the CPU shows. Not run on hardware."""

import numpy as np
import openvino as ov
import pytest

from engine.domain import LayerRange, SequenceId
from engine.errors import CompileError, KVCacheFullError
from engine.splitter.analysis import analyse
from engine.splitter.cut import cut_shard
from engine.stages.golden import relative_error
from engine.stages.loading import load_stage
from engine.stages.npu import load_npu
from tests.unit.stages.running import MODELS, batch, whole

EMULATED = {"NPUW_DEVICES": "CPU"}
F16_ERROR = 0.06  # of a random model, relative RMS


@pytest.mark.parametrize(("start", "stop"), [(0, 2), (1, 3), (2, 4)])
def test_a_shard_agrees_with_the_exact_one(start, stop, tmp_path):
    """Prefill, decode, a rewind, a chunk longer than a call, a new beginning."""
    layers, xml = LayerRange(start, stop), tmp_path / "s.xml"
    core = ov.Core()
    analysis = analyse(core, MODELS / "llama" / "openvino_model.xml")
    ov.save_model(cut_shard(analysis, layers).model, xml, compress_to_fp16=False)
    place = {"layers": layers, "is_first": start == 0, "is_last": stop == 4, "xml_path": str(xml)}
    npu = load_npu(core, whole("llama", "stateful", device="NPU", mode="fast", **place), EMULATED)
    exact = load_stage(whole("llama", "stateful", **place))
    rng = np.random.default_rng(0)
    for past_len, count, logits in ((0, 20, 1), (20, 1, 1), (21, 5, 5), (23, 1, 1), (24, 20, 1)):
        hidden = rng.standard_normal((count, 64)).astype(np.float32) if start else None
        ids = rng.integers(3, 500, count).tolist()
        work = batch((1, past_len, ids, logits), hidden=hidden)
        assert relative_error(npu.run(work), exact.run(work)) < F16_ERROR
    hidden = rng.standard_normal((1, 64)).astype(np.float32) if start else None
    with pytest.raises(KVCacheFullError):
        npu.run(batch((2, 0, [5], 1), hidden=hidden))
    npu.release(SequenceId(1))
    assert npu.run(batch((2, 0, [5], 1), hidden=hidden)).shape[0] == 1


def test_there_is_no_exact_mode():
    with pytest.raises(CompileError, match="no exact mode"):
        load_stage(whole("llama", "stateful", device="NPU"))

"""What a shard is compiled with."""

import openvino as ov
import pytest

from engine.stages.compilation import compile_options, effective_threads, has_float_weights
from engine.stages.loading import load_stage
from tests.unit.stages.running import MODELS, PROMPTS, batch, whole


class Processor:
    """A core of a processor with the given capabilities."""

    def __init__(self, *capabilities):
        self.capabilities = list(capabilities)

    def get_property(self, device, name):
        assert (device, name) == ("CPU", "OPTIMIZATION_CAPABILITIES")
        return self.capabilities


def model(name):
    return ov.Core().read_model(MODELS / name / "openvino_model.xml")


def hint(name, *capabilities, **changes):
    request = whole(name, "paged", **({"mode": "fast", "num_threads": 1} | changes))
    options = compile_options(Processor(*capabilities), model(name), request)
    return options.properties.get("INFERENCE_PRECISION_HINT"), options.notes


def test_one_thread_with_bf16_and_float_weights_gets_f16():
    """OpenVINO 2026.4.1 dies of SIGFPE there on processors with AMX."""
    precision, notes = hint("llama", "FP32", "BF16")
    assert precision == "f16"
    assert "one thread" in notes[0]
    assert hint("llama-f16", "FP32", "BF16")[0] == "f16"


@pytest.mark.parametrize(
    ("name", "capabilities", "changes"),
    [
        ("llama-int4", ("FP32", "BF16"), {}),
        ("qwen2-int8", ("FP32", "BF16"), {}),
        ("llama", ("FP32",), {}),
        ("llama", ("FP32", "BF16"), {"device": "GPU"}),
    ],
)
def test_elsewhere_the_device_decides(name, capabilities, changes):
    assert hint(name, *capabilities, **changes) == (None, ())


@pytest.mark.skipif(effective_threads(None) < 2, reason="needs two processors")
def test_two_threads_are_left_alone():
    assert hint("llama", "FP32", "BF16", num_threads=2) == (None, ())
    assert hint("llama", "FP32", "BF16", num_threads=None) == (None, ())


def test_only_a_cpu_is_told_how_many_kernels_to_keep():
    """Another device refuses what it does not know."""
    name = "CPU_RUNTIME_CACHE_CAPACITY"
    processor, paged = Processor("FP32"), whole("llama", "paged", mode="fast")
    assert name in compile_options(processor, model("llama"), paged).properties
    on_gpu = whole("llama", "paged", mode="fast", device="GPU")
    assert name not in compile_options(processor, model("llama"), on_gpu).properties


def test_a_given_precision_is_used_and_noted():
    precision, notes = hint("llama", "FP32", "BF16", precision="f32")
    assert precision == "f32"
    assert "f32" in notes[0]


def test_exact_mode_is_f32_throughout():
    request = whole("llama", "stateful", num_threads=1, precision="f16")
    properties = compile_options(Processor("BF16"), model("llama"), request).properties
    assert properties["INFERENCE_PRECISION_HINT"] == "f32"
    assert properties["KV_CACHE_PRECISION"] == "f32"
    assert properties["DYNAMIC_QUANTIZATION_GROUP_SIZE"] == "0"


def test_a_stateful_cache_of_four_bits_is_widened():
    """To set a u4 state ends the process, and rewinds set states."""
    four = model("llama")
    four.set_rt_info("u4", ["runtime_options", "KV_CACHE_PRECISION"])
    for kind, expected in (("stateful", "u8"), ("paged", None)):
        options = compile_options(Processor(), four, whole("llama", kind, mode="fast"))
        assert options.properties.get("KV_CACHE_PRECISION") == expected


def test_only_stateful_shards_are_cached(tmp_path):
    for kind, cached in (("paged", False), ("stateful", True)):
        request = whole("llama", kind, cache_dir=str(tmp_path))
        options = compile_options(Processor(), model("llama"), request)
        assert ("CACHE_DIR" in options.properties) is cached


def test_compressed_weights_are_no_float_weights():
    assert has_float_weights(model("llama"))
    assert has_float_weights(model("llama-f16"))
    assert not has_float_weights(model("llama-int4"))


@pytest.mark.parametrize("kind", ["paged", "stateful"])
def test_a_stage_of_one_thread_in_fast_mode_runs(kind):
    """The case that ended a process, with f32 and with f16 weights."""
    for name in ("llama", "llama-f16"):
        stage = load_stage(whole(name, kind, mode="fast", num_threads=1))
        assert stage.run(batch((0, 0, PROMPTS[0], 1))).shape == (1, 512)

"""Build a language model with real dimensions and random weights, in little memory.

    python reproduction/random_ir.py llama-8b OUT_DIR

Its speed, memory and traffic are a real model's; its text is noise. The folder holds what an
export holds: openvino_model.xml and .bin, config.json and generation_config.json.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

import openvino as ov
from llama_graph import LlamaShape, build_llama
from random_weights import WeightFile

PRESETS = {
    "llama-8b": LlamaShape(  # Llama 3.1 8B
        hidden_size=4096,
        num_layers=32,
        num_heads=32,
        num_kv_heads=8,
        head_size=128,
        ffn_size=14336,
        vocab_size=128256,
        rope_theta=500000.0,
        rms_eps=1e-5,
        context_length=131072,
        group_size=128,
        linear_format="u4",
        table_format="u8",
        head_format="u8",
        is_tied=False,
    ),
    "billion": LlamaShape(  # Llama 3.2 1B
        hidden_size=2048,
        num_layers=16,
        num_heads=32,
        num_kv_heads=8,
        head_size=64,
        ffn_size=8192,
        vocab_size=128256,
        rope_theta=500000.0,
        rms_eps=1e-5,
        context_length=131072,
        group_size=128,
        linear_format="u4",
        table_format="u8",
        head_format="u8",
        is_tied=True,
    ),
    "half-billion": LlamaShape(  # Qwen 2.5 0.5B, without its biases
        hidden_size=896,
        num_layers=24,
        num_heads=14,
        num_kv_heads=2,
        head_size=64,
        ffn_size=4864,
        vocab_size=151936,
        rope_theta=1000000.0,
        rms_eps=1e-6,
        context_length=32768,
        group_size=128,
        linear_format="u4",
        table_format="u8",
        head_format="u8",
        is_tied=True,
    ),
    "tiny": LlamaShape(
        hidden_size=64,
        num_layers=4,
        num_heads=4,
        num_kv_heads=2,
        head_size=16,
        ffn_size=96,
        vocab_size=512,
        rope_theta=10000.0,
        rms_eps=1e-6,
        context_length=512,
        group_size=32,
        linear_format="u4",
        table_format="u8",
        head_format="u8",
        is_tied=False,
    ),
}

_GRAPH_BYTES = 16 * 1024 * 1024  # XML and small constants
_SPARE_BYTES = 256 * 1024 * 1024
_EOS_TOKEN_ID = 2


class RandomModelError(Exception):
    """The model can't be built; says why and what to do."""


def build_folder(shape: LlamaShape, out: Path, seed: int) -> None:
    """Write a model's folder; it appears whole or not at all.

    Args:
        shape: The model's dimensions.
        out: Must not exist.
        seed: The same seed gives the same weights.

    Raises:
        RandomModelError: The folder exists, or the disk is too small. While it works it needs
            the model's size twice.
    """
    if out.exists():
        raise RandomModelError(f"{out} exists already. Delete it, or choose another folder.")
    out.parent.mkdir(parents=True, exist_ok=True)
    _check_disk(shape, out.parent)
    with tempfile.TemporaryDirectory(prefix=".random-ir-", dir=out.parent) as scratch:
        folder = Path(scratch) / "model"
        folder.mkdir()
        _write_model(shape, folder, Path(scratch) / "weights", seed)
        _write_settings(shape, folder)
        folder.rename(out)


def _check_disk(shape: LlamaShape, parent: Path) -> None:
    needed = 2 * (shape.num_bytes + _GRAPH_BYTES) + _SPARE_BYTES
    free = shutil.disk_usage(parent).free
    if free < needed:
        raise RandomModelError(
            f"Building needs {needed / 1e9:.1f} GB and {parent} has {free / 1e9:.1f} GB free. "
            "Free some space, or choose a folder on another disk."
        )


def _write_model(shape: LlamaShape, folder: Path, scratch: Path, seed: int) -> None:
    began = time.perf_counter()
    shown = -1

    def report(num_bytes: int) -> None:
        nonlocal shown
        tenth = min(10, 10 * num_bytes // shape.num_bytes)
        if tenth > shown:
            shown = tenth
            _say(began, f"weights {num_bytes / 1e6:.1f} of {shape.num_bytes / 1e6:.1f} MB")

    with WeightFile(scratch, seed, report) as weights:
        model = build_llama(shape, weights)
        _say(began, "writing openvino_model.xml and .bin")
        ov.save_model(model, str(folder / "openvino_model.xml"), compress_to_fp16=False)
    size = (folder / "openvino_model.bin").stat().st_size
    _say(began, f"openvino_model.bin {size / 1e6:.1f} MB")


def _write_settings(shape: LlamaShape, folder: Path) -> None:
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.ffn_size,
        "num_hidden_layers": shape.num_layers,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads,
        "head_dim": shape.head_size,
        "vocab_size": shape.vocab_size,
        "max_position_embeddings": shape.context_length,
        "rms_norm_eps": shape.rms_eps,
        "rope_parameters": {"rope_theta": shape.rope_theta, "rope_type": "default"},
        "tie_word_embeddings": shape.is_tied,
        "eos_token_id": _EOS_TOKEN_ID,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")
    generation = {"bos_token_id": 1, "eos_token_id": _EOS_TOKEN_ID, "do_sample": False}
    text = json.dumps(generation, indent=2) + "\n"
    (folder / "generation_config.json").write_text(text, "utf-8")


def _say(began: float, what: str) -> None:
    print(f"{time.perf_counter() - began:7.1f} s  {what}", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("preset", choices=sorted(PRESETS))
    parser.add_argument("out", type=Path, help="folder to make")
    parser.add_argument("--layers", type=int, help="another number of layers")
    parser.add_argument("--symmetric", action="store_true", help="i4 and i8, without zero-points")
    parser.add_argument("--int4-head", action="store_true", help="the LM head in four bits")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def _shape(arguments: argparse.Namespace) -> LlamaShape:
    shape = PRESETS[arguments.preset]
    if arguments.layers is not None:
        shape = dataclasses.replace(shape, num_layers=arguments.layers)
    if arguments.int4_head:
        shape = dataclasses.replace(shape, head_format="u4", is_tied=False)
    if arguments.symmetric:
        shape = symmetric(shape)
    return shape


def symmetric(shape: LlamaShape) -> LlamaShape:
    """Return the same model without zero-points: what NPUs prefer.

    Args:
        shape: The model.
    """
    head = "i4" if shape.head_format in {"u4", "i4"} else "i8"
    return dataclasses.replace(shape, linear_format="i4", table_format="i8", head_format=head)


def main() -> int:
    """Build what the command line asks for; return the exit status."""
    arguments = _arguments()
    try:
        build_folder(_shape(arguments), arguments.out, arguments.seed)
    except RandomModelError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Make a target that writes what the embedded model writes and costs several times as much.

    python reproduction/padded_model.py OUT_DIR [--layers 120]

A synthetic model: behind the embedded model's layers stand more, with its weights once again, but
with zeros in the matrices that write to the residual stream. What they compute is added as nothing,
so the logits are the embedded model's and so is how often a draft for it holds. What a pass
computes is a deeper model's, though the file holds each matrix once. It stands in for a large
target with a small draft of the same family where none can be downloaded, and figures taken with
it say so.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import openvino as ov
from llama_graph import LlamaShape, build_llama
from openvino import opset13 as ops
from random_weights import QuantisedWeight

from engine.config import data_folder
from engine.models.embedded import embedded_model
from engine.models.progress import no_progress
from engine.models.unsplit import UnsplitModel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray
    from random_weights import IntFormat

LAYERS = 120
CHECKED_TOKENS = 64
_GROUP_SIZE = 32
_WRITERS = (3, 6)  # of a layer's matrices q, k, v, o, gate, up, down: what the residual stream gets
_PER_LAYER = 7
_TEXT = re.compile(r"chat_template\.jinja|generation_config\.json|.*tokenizer.*")
HELD_OUT = Path(__file__).parent / "held_out" / "answers.json"


class OtherModelError(Exception):
    """The source is not built as is known here, or the copy writes something else."""


class RepeatedWeights:
    """The weights of a model, its layers' once more for every layer beyond the last."""

    def __init__(self, model: ov.Model, num_layers: int, num_wanted: int) -> None:
        """Find them.

        Args:
            model: Llama-shaped, grouped in four bits, with a tied table.
            num_layers: It has.
            num_wanted: Layers that will be asked for.

        Raises:
            OtherModelError: There are others than those.
        """
        nodes = sorted(model.get_ops(), key=_number)  # as a token meets them
        found = [w for n in nodes if n.get_type_name() == "MatMul" and (w := _weight(n))]
        self._norms = [values for n in nodes if (values := _norm(n)) is not None]
        # The last matrix is the LM head, which is the table once more.
        if len(found) != num_layers * _PER_LAYER + 1 or len(self._norms) != 2 * num_layers + 1:
            raise OtherModelError("The model's matrices are not those of a Llama with a tied head.")
        self._table, self._matrices = found[-1], found[:-1]
        self._model = model  # its constants look into its file
        self._num_wanted = num_wanted
        self._num_given = self._num_normed = 0

    def quantised(self, shape: tuple[int, ...], _: IntFormat, deviation: float) -> QuantisedWeight:
        """Return the next matrix; see ``Weights.quantised``.

        Raises:
            OtherModelError: It has another shape.
        """
        del deviation
        if len(shape) == 2:  # rows and columns: the table
            return self._table
        number, self._num_given = self._num_given, self._num_given + 1
        weight = self._matrices[number % len(self._matrices)]
        if tuple(weight.values.shape) != shape:
            raise OtherModelError(f"Matrix {number} is {list(weight.values.shape)}, not {shape}.")
        if number >= len(self._matrices) and number % _PER_LAYER in _WRITERS:
            nothing = np.zeros(tuple(weight.scales.shape), np.float16)
            return QuantisedWeight(weight.values, ops.constant(nothing), weight.zero_points)
        return weight

    def norm(self, size: int) -> NDArray[np.float32]:
        """Return the next norm's weights; see ``Weights.norm``."""
        del size
        number, self._num_normed = self._num_normed, self._num_normed + 1
        if number == 2 * self._num_wanted:
            return self._norms[-1]  # behind all layers
        return self._norms[number % (len(self._norms) - 1)]


def _number(node: ov.Node) -> int:
    """Return when a node was made: the number that names without a meaning end with."""
    digits = re.search(r"\d+$", node.get_friendly_name())
    return int(digits.group()) if digits else 0


def _sources(node: ov.Node) -> Iterator[ov.Node]:
    """Yield what a node is made of within its chain to constants, itself first."""
    yield node
    for given in node.inputs():
        yield from _sources(given.get_source_output().get_node())


def _weight(matmul: ov.Node) -> QuantisedWeight | None:
    """Return the constants that a matrix is decompressed from; None for one that is computed."""
    top = matmul.input(1).get_source_output().get_node()
    if top.get_type_name() != "Convert" or len(top.get_output_partial_shape(0)) != 2:
        return None
    constants = [n for n in _sources(top) if n.get_type_name() == "Constant"]
    values, zeros, scales = constants[:3]
    return QuantisedWeight(values, scales, zeros)


def _norm(node: ov.Node) -> NDArray[np.float32] | None:
    if node.get_type_name() != "Constant" or node.get_element_type() != ov.Type.f32:
        return None
    shape = list(node.get_output_shape(0))
    if len(shape) != 3 or shape[:2] != [1, 1] or shape[2] == 1:
        return None
    return np.array(node.data, np.float32).reshape(-1)


def _shape(config: dict[str, object], layers: int) -> LlamaShape:
    return LlamaShape(
        hidden_size=int(str(config["hidden_size"])),
        num_layers=layers,
        num_heads=int(str(config["num_attention_heads"])),
        num_kv_heads=int(str(config["num_key_value_heads"])),
        head_size=int(str(config["head_dim"])),
        ffn_size=int(str(config["intermediate_size"])),
        vocab_size=int(str(config["vocab_size"])),
        rope_theta=float(str(config["rope_theta"])),
        rms_eps=float(str(config["rms_norm_eps"])),
        context_length=int(str(config["max_position_embeddings"])),
        group_size=_GROUP_SIZE,
        linear_format="u4",
        table_format="u8",
        head_format="u8",
        is_tied=True,
    )


def build(source: Path, out: Path, layers: int) -> None:
    """Write the deeper model's folder.

    Args:
        source: The embedded model's folder.
        out: Must not exist.
        layers: It gets; as many as the source has, or more.

    Raises:
        OtherModelError: The folder exists, or the source is not built as is known here.
    """
    if out.exists():
        raise OtherModelError(f"{out} exists already. Delete it, or choose another folder.")
    config = json.loads((source / "config.json").read_text("utf-8"))
    model = ov.Core().read_model(str(source / "openvino_model.xml"))
    weights = RepeatedWeights(model, int(config["num_hidden_layers"]), layers)
    deeper = build_llama(_shape(config, layers), weights)
    out.mkdir(parents=True)
    ov.save_model(deeper, str(out / "openvino_model.xml"), compress_to_fp16=False)
    config["num_hidden_layers"] = layers
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")
    for file in source.iterdir():
        if _TEXT.fullmatch(file.name):
            shutil.copy(file, out / file.name)


def check(source: Path, out: Path, num_prompts: int) -> None:
    """Compare what both write, greedily, in exact mode.

    Args:
        source: The embedded model's folder.
        out: The deeper model's.
        num_prompts: Of the held-out ones.

    Raises:
        OtherModelError: They differ.
    """
    entries = json.loads(HELD_OUT.read_text("utf-8"))[:: 200 // num_prompts][:num_prompts]
    models = [UnsplitModel(folder / "openvino_model.xml", "exact") for folder in (source, out)]
    for entry in entries:
        runs = [model.generate(entry["ids"], CHECKED_TOKENS) for model in models]
        if runs[0].tokens != runs[1].tokens:
            raise OtherModelError(f"Another answer than the embedded model's: {entry['prompt']}")
        took = runs[0].tokens_per_s / runs[1].tokens_per_s
        print(f"{CHECKED_TOKENS} tokens are the same, at {took:.1f} times the cost")


def main() -> int:
    """Run as the command line says; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path, help="folder to make")
    parser.add_argument("--layers", type=int, default=LAYERS)
    parser.add_argument("--check", type=int, default=3, help="prompts whose answers are compared")
    given = parser.parse_args()
    source = embedded_model(data_folder(), no_progress, lambda: False).folder
    try:
        build(source, given.out, given.layers)
        if given.check:
            check(source, given.out, given.check)
    except OtherModelError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

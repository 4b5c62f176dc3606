"""A model to measure with: whole, and cut in two so that both stages take the same time."""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from random_ir import PRESETS, build_folder
from stage_costs import StageCosts, costs_of

from engine.config import data_folder
from engine.models.embedded import embedded_model
from engine.models.opening import open_model
from engine.models.progress import no_progress
from engine.pipeline.shard_folder import ShardFolder, open_shard_folder
from engine.preparation import split_order
from engine.splitter.process import split_in_process

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.models.files import ModelFiles
    from engine.models.progress import Progress

EMBEDDED = "embedded"
MODELS = Path(__file__).parent / "results" / "models"
_TEXT_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
_COSTS = "stage-costs.json"


@dataclass(frozen=True, slots=True)
class MeasuredModel:
    """A model in both forms.

    Attributes:
        name: As it is shown.
        xml: The unsplit model's ``openvino_model.xml``.
        whole: One shard with every layer.
        split: Two shards.
        costs: What each of the two costs, by the width of a batch.
        whole_costs: What the one costs.
    """

    name: str
    xml: Path
    whole: ShardFolder
    split: ShardFolder
    costs: tuple[StageCosts, ...]
    whole_costs: StageCosts


def prepared(
    source: str,
    folder: Path = MODELS,
    cut: int | None = None,
    mode: str = "fast",
    *,
    speculate: bool = False,
) -> MeasuredModel:
    """Make, or find again, a model in both forms.

    Args:
        source: A preset of ``random_ir``, ``embedded``, or a folder with an IR.
        folder: Where what is made lies, until somebody deletes it.
        cut: The layer before which to cut; None for where both stages take the same time.
        mode: In which costs are measured, and so the cut: fast or exact.
        speculate: Whether guesses may come, in which case rows are computed otherwise.
    """
    way = (mode, "speculate") if speculate else (mode,)
    files = _opened(source, folder)
    place = folder / f"{Path(source).name}-shards"
    whole = _split(files, place / "whole", ())
    whole_costs = _costs(whole, place / "whole", way)[0]
    if cut is None:
        cut = _measured_cut(files, whole.manifest.model.num_layers, place, way)
    split = _split(files, place / f"cut-{cut}", (cut,))
    costs = _costs(split, place / f"cut-{cut}", way)
    return MeasuredModel(Path(source).name, files.xml, whole, split, costs, whole_costs)


def best_cut(num_layers: int, cut: int, first_ms: float, last_ms: float) -> int:
    """Return the cut that makes the slower stage fastest, as seen at another cut.

    Every layer is taken to cost what one of the first stage does; what the last stage costs beyond
    its layers is the LM head.

    Args:
        num_layers: Of the model.
        cut: The layer before which it was cut.
        first_ms: What the first stage took there.
        last_ms: What the last one took.
    """
    layer_ms = first_ms / cut
    head_ms = max(0.0, last_ms - (num_layers - cut) * layer_ms)

    def slower_ms(at: int) -> float:
        return max(at * layer_ms, (num_layers - at) * layer_ms + head_ms)

    return min(range(1, num_layers), key=slower_ms)


def _opened(source: str, folder: Path) -> ModelFiles:
    if source == EMBEDDED:
        return embedded_model(data_folder(), no_progress, lambda: False)
    model = folder / source if source in PRESETS else Path(source)
    if source in PRESETS and not model.exists():
        build_folder(PRESETS[source], model, seed=0)
        # Any tokenizer does, for the weights mean nothing; ids it does not know become no text.
        text = embedded_model(data_folder(), no_progress, lambda: False).folder
        for name in _TEXT_FILES:
            shutil.copy(text / name, model / name)
    return open_model(model, data_folder())


def _split(files: ModelFiles, out: Path, cuts: tuple[int, ...]) -> ShardFolder:
    if not out.exists():
        out.parent.mkdir(parents=True, exist_ok=True)
        order = split_order(files, out, cuts=cuts)
        asyncio.run(split_in_process(msgspec.structs.replace(order, has_golden=False), _ignore))
    return open_shard_folder(out)


def _ignore(_: Progress) -> None:
    """Nobody waits for it."""


def _measured_cut(files: ModelFiles, num_layers: int, place: Path, way: tuple[str, ...]) -> int:
    """Cut in the middle, see what each half takes, and say where to cut instead."""
    middle = num_layers // 2
    name = place / f"cut-{middle}"
    halves = _costs(_split(files, name, (middle,)), name, way)
    return best_cut(num_layers, middle, halves[0].ms(1), halves[1].ms(1))


def _costs(folder: ShardFolder, place: Path, way: tuple[str, ...]) -> tuple[StageCosts, ...]:
    """Return what the stages cost; measured once, for the simulator and for the cut."""
    kept = place.with_name(f"{place.name}-{'-'.join(way)}-{_COSTS}")
    if not kept.exists():
        script = Path(__file__).parent / "stage_costs.py"
        command = [sys.executable, str(script), str(folder.path), *way]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        kept.write_text(done.stdout, "utf-8")
    return costs_of(json.loads(kept.read_text("utf-8")))


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what is measured.

    Args:
        parser: The script's.
    """
    parser.add_argument(
        "model", nargs="?", default="half-billion", help="preset, embedded, or folder of an IR"
    )
    parser.add_argument("--cut", type=int, help="layer to cut before; measured when left out")
    parser.add_argument("--models", type=Path, default=MODELS, help="where models are made")


def main(arguments: Sequence[str]) -> int:
    """Prepare a model and say what its stages cost.

    Args:
        arguments: Of the command line.

    Returns:
        The exit status.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    add_model_arguments(parser)
    given = parser.parse_args(arguments)
    model = prepared(given.model, given.models, given.cut)
    for costs, shard in zip(model.costs, model.split.manifest.shards, strict=True):
        print(f"layers {shard.layers}: {costs}")
    print(f"whole: {model.whole_costs}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

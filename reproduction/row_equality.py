"""Whether a token's logits depend on what is computed beside it, to the last bit.

    python reproduction/row_equality.py MODEL_FOLDER --kind paged --mode exact

A whole model is loaded as one stage with one thread. At several positions the same token is
computed alone, with drafts behind it, again after each rewind, and beside another sequence. Printed
is, for each, at how many positions its logits equal those of the token alone, the largest
difference, how often the greedy choice moved, and what the pass costs beside that of one row.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import openvino as ov

from engine.domain import LayerRange, MicroBatch, SequenceId, SequenceStep
from engine.messages.stage_control import LoadShard
from engine.splitter.analysis import analyse
from engine.splitter.cut import cut_shard
from engine.splitter.paged_support import probe_paged_support
from engine.stages.loading import load_stage

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from engine.stages.stage import Stage

OWN, OTHER = SequenceId(1), SequenceId(2)
PROMPT_TOKENS = 150
NUM_POSITIONS = 8
# Rows of the sequence itself, and of another one beside it.
ARRANGEMENTS = ((1, 0), (2, 0), (3, 0), (4, 0), (5, 0), (8, 0), (16, 0), (1, 0), (1, 1), (4, 1))


def load(folder: Path, scratch: Path, kind: str, mode: str) -> tuple[Stage, int]:
    """Load a whole model as one stage; return it and the size of its vocabulary.

    Args:
        folder: Holds the IR.
        scratch: For the shard.
        kind: Paged or stateful.
        mode: Exact or fast.
    """
    analysis = analyse(ov.Core(), folder / "openvino_model.xml")
    layers = LayerRange(0, analysis.num_layers)
    model = cut_shard(analysis, layers).model
    window = probe_paged_support(model, len(layers)).sliding_window
    xml = scratch / "openvino_model.xml"
    ov.save_model(model, str(xml), compress_to_fp16=False)
    (result,) = analysis.graph.of_type("Result")
    vocab_size = analysis.graph.nodes[result].get_input_partial_shape(0)[2].get_length()
    order = LoadShard(
        xml_path=str(xml),
        layers=layers,
        is_first=True,
        is_last=True,
        hidden_size=analysis.finder.before(0).hidden_size,
        vocab_size=vocab_size,
        device="CPU",
        kind=kind,  # type: ignore[arg-type]
        mode=mode,  # type: ignore[arg-type]
        num_threads=1,
        max_tokens=4096,
        sliding_window=window,
        cache_dir=None,
        golden=None,
        rows_alike=True,
    )
    return load_stage(order), vocab_size


def first_row(
    stage: Stage, past_len: int, ids: NDArray[np.int32], num_other: int
) -> tuple[NDArray[np.float32], float]:
    """Compute a few tokens; return the logits behind the first and the milliseconds of the pass.

    Args:
        stage: Holds both sequences.
        past_len: Of the own one.
        ids: The tokens.
        num_other: Rows of the other sequence in the same batch.
    """
    steps = [SequenceStep(OWN, past_len, len(ids), len(ids))]
    if num_other:
        steps.append(SequenceStep(OTHER, PROMPT_TOKENS, num_other, num_other))
    fed = np.concatenate([ids, ids[:num_other]])
    began = time.perf_counter()
    rows = stage.run(MicroBatch(1, 1, tuple(steps), fed))
    return rows[0].copy(), 1e3 * (time.perf_counter() - began)


def main() -> int:
    """Measure one model in one kind and mode.

    Returns:
        The exit status.
    """
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kind", default="paged")
    parser.add_argument("--mode", default="exact")
    given = parser.parse_args()
    rng = np.random.default_rng(5)
    seen: dict[int, list[tuple[bool, float, bool, float]]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        stage, vocab_size = load(given.folder, Path(scratch), given.kind, given.mode)
        for sequence_id in (OWN, OTHER):
            prompt = rng.integers(0, vocab_size, PROMPT_TOKENS, dtype=np.int32)
            step = SequenceStep(sequence_id, 0, PROMPT_TOKENS, 1)
            stage.run(MicroBatch(1, 1, (step,), prompt))
        for position in range(NUM_POSITIONS):
            past_len = PROMPT_TOKENS + 3 * position
            ids = rng.integers(0, vocab_size, 16, dtype=np.int32)
            alone, _ = first_row(stage, past_len, ids[:1], 0)
            for number, (num_rows, num_other) in enumerate(ARRANGEMENTS):
                row, ms = first_row(stage, past_len, ids[:num_rows], num_other)
                difference = float(np.abs(row - alone).max())
                moved = bool(row.argmax() != alone.argmax())
                seen.setdefault(number, []).append((
                    bool(np.array_equal(row, alone)),
                    difference,
                    moved,
                    ms,
                ))
            first_row(stage, past_len, ids[:3], 0)
    one_row_ms = statistics.median(each[3] for each in seen[0])
    for number, (num_rows, num_other) in enumerate(ARRANGEMENTS):
        equal, differences, moved_, times = zip(*seen[number], strict=True)
        line = {
            "kind": given.kind,
            "mode": given.mode,
            "rows": num_rows,
            "rows of another": num_other,
            "equal": f"{sum(equal)}/{NUM_POSITIONS}",
            "largest difference": max(differences),
            "greedy moved": sum(moved_),
            "cost": round(statistics.median(times) / one_row_ms, 2),
        }
        print(json.dumps(line))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What one pass of a stage costs on one core, by the number of rows and by whose they are.

The stage runs in this process, with nothing of a node around it: what is measured is the stage,
the last one's sampling included. Rows of different sequences attend to different caches; rows of
one sequence are what a draft is verified in, and what a prompt is read in.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from engine.domain import MicroBatch, NodeId, SequenceId, SequenceStep
from engine.messages.chain import OpenSequence, Placement, StagePlace
from engine.pipeline.shard_folder import ShardFolder, open_shard_folder
from engine.sampling.parameters import SamplingParameters
from engine.stages.loading import load_stage
from engine.stages.token_history import TokenHistory

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from engine.stages.stage import Stage

WIDTHS = (1, 2, 3, 4, 5, 8, 16)
CHUNKS = (64, 256)
NUM_PASSES = 11
NUM_CHUNK_PASSES = 3  # they are long
NUM_WARMUPS = 2
CONTEXT_TOKENS = 1024
PAST_TOKENS = 128
_EPOCH = 1


@dataclass(frozen=True, slots=True)
class StageCosts:
    """Milliseconds of CPU time of one pass, medians: on a core of its own, of wall time as well.

    Attributes:
        by_sequences: By the number of sequences with one row each.
        by_rows: By the number of rows of one sequence.
        is_batched: Whether rows share a pass; else each takes one of its own.
    """

    by_sequences: dict[int, float]
    by_rows: dict[int, float]
    is_batched: bool = True

    def ms(self, num_sequences: int = 1, num_rows: int = 1) -> float:
        """Return what a batch takes, by linear interpolation between what was measured.

        Args:
            num_sequences: In the batch.
            num_rows: Of each.
        """
        if not self.is_batched:
            return num_sequences * _between(self.by_rows, num_rows)
        if num_sequences == 1:
            return _between(self.by_rows, num_rows)
        return _between(self.by_sequences, num_sequences * num_rows)

    def __str__(self) -> str:
        one = self.by_sequences[1]
        costs = ", ".join(f"{n}: {ms / one:.2f}" for n, ms in sorted(self.by_sequences.items()))
        rows = ", ".join(f"{n}: {ms / one:.2f}" for n, ms in sorted(self.by_rows.items()))
        return f"{one:.2f} ms; by sequences {costs}; by rows {rows}"


def costs_of(kept: Sequence[Mapping[str, Mapping[str, float]]]) -> tuple[StageCosts, ...]:
    """Return costs as they were kept in JSON, whose keys are text.

    Args:
        kept: One for each stage.
    """
    return tuple(
        StageCosts(
            {int(n): ms for n, ms in stage["by_sequences"].items()},
            {int(n): ms for n, ms in stage["by_rows"].items()},
        )
        for stage in kept
    )


def _between(known: Mapping[int, float], wanted: int) -> float:
    """Interpolate; beyond the last point, go on as between the last two."""
    spans = list(pairwise(sorted(known.items())))
    fitting = (span for span in spans if wanted <= span[1][0])
    (low, low_ms), (high, high_ms) = next(fitting, spans[-1])
    return low_ms + (high_ms - low_ms) * (wanted - low) / (high - low)


def load_here(
    folder: ShardFolder,
    index: int,
    *,
    kind: str = "paged",
    mode: str = "fast",
    sequences: int = 16,
    speculate: bool = False,
) -> Stage:
    """Load a stage into this process, for one thread.

    Args:
        folder: Of shards.
        index: Which one.
        kind: Paged or stateful.
        mode: Fast or exact.
        sequences: At once.
        speculate: As a placement says it.
    """
    place = StagePlace(
        node_id=NodeId("measured"),
        address="wss://127.0.0.1:1",
        stage_index=index,
        layers=folder.manifest.shards[index].layers,
        kind=kind,  # type: ignore[arg-type]
        mode=mode,  # type: ignore[arg-type]
        num_threads=1,
    )
    placement = Placement(
        epoch=_EPOCH,
        manifest_sha256=folder.manifest_sha256,
        context_tokens=4096,
        max_sequences=sequences,
        stages=(place,),
        speculate=speculate,
    )
    return load_stage(folder.order(placement, place))


class _Passes:
    """Passes through one stage, timed."""

    def __init__(self, folder: ShardFolder, index: int, mode: str, *, speculate: bool) -> None:
        sequences = max(WIDTHS)
        self._stage = load_here(folder, index, mode=mode, sequences=sequences, speculate=speculate)
        self._model = folder.manifest.model
        self._history = TokenHistory()
        self._random = np.random.default_rng(0)
        self._num_batches = 0
        for number in range(max(WIDTHS)):
            self._history.open(
                OpenSequence(
                    epoch=_EPOCH,
                    sequence_id=SequenceId(number),
                    num_prompt_tokens=PAST_TOKENS,
                    sampling=SamplingParameters(),
                )
            )
            self.run([SequenceStep(SequenceId(number), 0, PAST_TOKENS, 1)])

    def run(self, steps: Sequence[SequenceStep]) -> float:
        """Run one batch; return milliseconds of CPU time, sampling included."""
        count = sum(step.num_tokens for step in steps)
        ids = self._random.integers(0, min(1000, self._model.vocab_size), count, dtype=np.int32)
        hidden = None
        if not self._stage.description.is_first:
            shape = (count, self._model.hidden_size)
            hidden = self._random.standard_normal(shape, dtype=np.float32)
        batch = MicroBatch(self._num_batches, _EPOCH, tuple(steps), ids, hidden)
        self._num_batches += 1
        began = time.process_time()
        rows = self._stage.run(batch)
        if self._stage.description.is_last:
            self._history.draw(batch, rows)
        return 1e3 * (time.process_time() - began)

    def median_ms(
        self, num_sequences: int, num_rows: int, num_logits: int, num_passes: int = NUM_PASSES
    ) -> float:
        """Return what such a batch takes; the caches are rewound in between."""
        steps = [
            SequenceStep(SequenceId(number), PAST_TOKENS, num_rows, num_logits)
            for number in range(num_sequences)
        ]
        times = [self.run(steps) for _ in range(NUM_WARMUPS + num_passes)]
        return statistics.median(times[NUM_WARMUPS:])


def measure(folder: ShardFolder, index: int, mode: str, *, speculate: bool) -> StageCosts:
    """Measure one stage, paged, on this process's core.

    Args:
        folder: Of shards.
        index: Which one.
        mode: Fast or exact.
        speculate: As a placement says it.
    """
    passes = _Passes(folder, index, mode, speculate=speculate)
    rows = {width: passes.median_ms(1, width, width) for width in WIDTHS}
    # Of a prompt, only the last row goes through the LM head.
    rows |= {width: passes.median_ms(1, width, 1, NUM_CHUNK_PASSES) for width in CHUNKS}
    return StageCosts({width: passes.median_ms(width, 1, 1) for width in WIDTHS}, rows)


def main(arguments: Sequence[str]) -> int:
    """Measure every stage of a folder on the first core; print JSON.

    Args:
        arguments: The folder, fast or exact, and ``speculate`` where guesses may come.

    Returns:
        The exit status.
    """
    os.sched_setaffinity(0, {0})
    path, mode, *guesses = arguments
    folder = open_shard_folder(Path(path))
    stages = range(len(folder.manifest.shards))
    print(
        json.dumps([
            asdict(measure(folder, index, mode, speculate=bool(guesses))) for index in stages
        ])
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The golden step: does this device compute what was computed when the shard was made?

Drivers and precisions differ from PC to PC, and wrong numbers give no error, only wrong text.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from engine.domain import MicroBatch, SequenceId, SequenceStep
from engine.errors import GoldenStepError, InferenceError, ModelFileError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from engine.messages.stage_control import GoldenStep
    from engine.stages.stage import Stage

# No head gives it out: sequence ids count up from 0.
_GOLDEN_SEQUENCE = SequenceId(2**32 - 1)
_REWOUND_TOKENS = 4


class GoldenVectors:
    """The golden step of one stage, read from its files."""

    def __init__(self, golden: GoldenStep, stage: Stage) -> None:
        """Read the vectors.

        Args:
            golden: Names the files.
            stage: The one to be judged; its description says how wide the vectors are.

        Raises:
            ModelFileError: A file is missing or has another length than it must.
        """
        about = stage.description
        self._stage = stage
        self._token_ids = np.array(golden.token_ids, np.int32)
        self._num_logits = int(about.is_last)
        count = len(golden.token_ids)
        self._input: NDArray[np.float32] | None = None
        if golden.input_path is not None and not about.is_first:
            self._input = _read(golden.input_path, count, about.hidden_size)
        rows, width = (1, about.vocab_size) if about.is_last else (count, about.hidden_size)
        self._output = _read(golden.output_path, rows, width)

    def error(self) -> float:
        """Run the whole step; return the relative RMS error, infinite if NaN came out."""
        return self._error_from(0)

    def error_after_rewind(self) -> float:
        """Run the last tokens once more, as after a rewind; ``error`` must have been called."""
        return self._error_from(max(len(self._token_ids) - _REWOUND_TOKENS, 0))

    def close(self) -> None:
        """Give the blocks back."""
        self._stage.release(_GOLDEN_SEQUENCE)

    def _error_from(self, past_len: int) -> float:
        num_tokens = len(self._token_ids) - past_len
        step = SequenceStep(_GOLDEN_SEQUENCE, past_len, num_tokens, self._num_logits)
        hidden = None if self._input is None else self._input[past_len:]
        batch = MicroBatch(0, 0, (step,), self._token_ids[past_len:], hidden)
        try:
            rows = self._stage.run(batch)
        except InferenceError:
            return math.inf
        return relative_error(rows, self._output[-len(rows) :])


def check_golden_error(error: float, limit: float, device: str) -> None:
    """Check a stage's error against what the manifest allows.

    Raises:
        GoldenStepError: It is larger.
    """
    if not error <= limit:
        raise GoldenStepError(
            f"{device} computes this stage with a relative error of {error:.2g}; at most "
            f"{limit:.2g} is allowed."
        )


def relative_error(actual: NDArray[np.float32], expected: NDArray[np.float32]) -> float:
    """Return the RMS of the difference over the RMS of what was expected.

    Args:
        actual: float32 ``[rows, width]``.
        expected: The same shape.
    """
    difference = actual.astype(np.float64) - expected
    size = float(np.square(expected.astype(np.float64)).mean())
    return math.sqrt(float(np.square(difference).mean()) / size) if size else math.inf


def _read(path: str, rows: int, width: int) -> NDArray[np.float32]:
    try:
        values = np.fromfile(Path(path), "<f4")
    except OSError as exc:
        raise ModelFileError(f"{path} can't be read: {exc.strerror}.") from exc
    if values.size != rows * width:
        raise ModelFileError(
            f"{path} has {values.nbytes} bytes; {rows} rows of {width} float32 are needed."
        )
    return values.reshape(rows, width)

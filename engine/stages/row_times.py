"""How long a stage takes for a few rows: what guesses cost that are checked beside a token.

On most devices a few rows cost little more than one, up to a number where another kernel begins.
Which number that is differs with device, precision and model, so it is measured where it counts.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np

from engine.domain import MicroBatch, RowTime, SequenceId, SequenceStep
from engine.errors import DaisyError

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.stages.stage import Stage

# What tells most comes first: there may not be time for all.
ROWS = (1, 4, 2, 16, 8, 5, 3)
_NUM_PASSES = 3  # of each; the first one prepares what the device keeps for the shape
_PAST_TOKENS = 32
_SEQUENCE = SequenceId(2**32 - 1)  # no head gives it out


def measure_row_times(
    stage: Stage, now_s: Callable[[], float], budget_s: float
) -> tuple[RowTime, ...]:
    """Run passes of one sequence with few rows.

    Args:
        stage: A first one, its caches empty; they are so again afterwards.
        now_s: A clock.
        budget_s: What was not begun by then is left out.

    Returns:
        Rows and the seconds of their fastest pass, in ascending order; rows that the device
        refuses are left out.
    """
    began_s = now_s()
    measured: list[RowTime] = []
    try:
        _run(stage, 0, _PAST_TOKENS)
        for num_rows in ROWS:
            if now_s() - began_s >= budget_s:
                break
            measured.append(RowTime(num_rows, _fastest_s(stage, num_rows, now_s)))
    except DaisyError:
        pass  # what it can't run is not sent to it either
    finally:
        stage.release(_SEQUENCE)
    return tuple(sorted(measured, key=attrgetter("rows")))


def _fastest_s(stage: Stage, num_rows: int, now_s: Callable[[], float]) -> float:
    times: list[float] = []
    for _ in range(_NUM_PASSES):
        began_s = now_s()
        _run(stage, _PAST_TOKENS, num_rows)
        times.append(now_s() - began_s)
    return min(times[1:])


def _run(stage: Stage, past_len: int, num_rows: int) -> None:
    """Run rows behind what is cached; on a last stage each has its logits, as guesses have."""
    num_logits = num_rows if stage.description.is_last and past_len else 0
    step = SequenceStep(_SEQUENCE, past_len, num_rows, num_logits)
    # Different tokens, so that no device finds anything twice.
    ids = np.arange(past_len, past_len + num_rows, dtype=np.int32) % stage.description.vocab_size
    stage.run(MicroBatch(0, 0, (step,), ids))

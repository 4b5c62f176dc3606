"""How long a stage takes for a few rows, and for more of them where there is time.

A few are what guesses cost that are checked beside a token; more are what a chunk of a prompt
costs. On most devices a few rows cost little more than one, up to a number where another kernel
begins. Which number that is differs with device, precision and model, so it is measured where it
counts. On a small device many rows take seconds: they are tried only where they will not, and
cost as much as the measured ones let expect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from engine.domain import MicroBatch, RowTime, SequenceId, SequenceStep
from engine.errors import DaisyError

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.stages.stage import Stage

# What tells most comes first: there may not be time for all.
ROWS = (1, 4, 2, 16, 8, 5, 3)
WIDE_ROWS = (64, 256)
_NUM_PASSES = 3  # of each; the first one prepares what the device keeps for the shape
_NUM_WIDE_PASSES = 2
_PAST_TOKENS = 32
_SEQUENCE = SequenceId(2**32 - 1)  # no head gives it out


def measure_row_times(
    stage: Stage, now_s: Callable[[], float], budget_s: float
) -> tuple[RowTime, ...]:
    """Run passes of one sequence with few rows, then with more.

    Args:
        stage: A first one, its caches empty; they are so again afterwards.
        now_s: A clock.
        budget_s: From the end of a first pass on. What was not begun by then is left out, and wide
            passes that would not end by then.

    Returns:
        Rows and the seconds of their fastest pass, in ascending order; rows that the device
        refuses are left out.
    """
    measured: dict[int, float] = {}
    try:
        _run(stage, 0, _PAST_TOKENS)
        # A stage's very first pass prepares much, and takes as long as it takes.
        ends_s = now_s() + budget_s
        _measure_few(stage, measured, now_s, ends_s)
        for num_rows in WIDE_ROWS:
            if not measured or _expected_s(measured, num_rows) > ends_s - now_s():
                break
            measured[num_rows] = _fastest_s(stage, num_rows, now_s, _NUM_WIDE_PASSES)
        # What disturbs is seldom there twice, and one number that seems dear is never tried.
        _measure_few(stage, measured, now_s, ends_s)
    except DaisyError:
        pass  # what it can't run is not sent to it either
    finally:
        stage.release(_SEQUENCE)
    return tuple(RowTime(rows, seconds) for rows, seconds in sorted(measured.items()))


def _measure_few(
    stage: Stage, measured: dict[int, float], now_s: Callable[[], float], ends_s: float
) -> None:
    for num_rows in ROWS:
        if now_s() >= ends_s:
            break
        seconds = _fastest_s(stage, num_rows, now_s, _NUM_PASSES)
        measured[num_rows] = min(seconds, measured.get(num_rows, seconds))


def _expected_s(measured: dict[int, float], num_rows: int) -> float:
    """Return what the passes of a wide number take if all of its rows cost what others did."""
    widest = max(measured)
    return _NUM_WIDE_PASSES * measured[widest] * num_rows / widest


def _fastest_s(stage: Stage, num_rows: int, now_s: Callable[[], float], num_passes: int) -> float:
    times: list[float] = []
    for _ in range(num_passes):
        began_s = now_s()
        _run(stage, _PAST_TOKENS, num_rows)
        times.append(now_s() - began_s)
    return min(times[1:])


def _run(stage: Stage, past_len: int, num_rows: int) -> None:
    """Run rows behind what is cached; each of a few has its logits, as guesses have."""
    num_logits = num_rows if past_len and num_rows < WIDE_ROWS[0] else 0
    step = SequenceStep(_SEQUENCE, past_len, num_rows, num_logits)
    # Different tokens, so that no device finds anything twice.
    ids = np.arange(past_len, past_len + num_rows, dtype=np.int32) % stage.description.vocab_size
    stage.run(MicroBatch(0, 0, (step,), ids))

"""A second turn: what was read before need not be read again.

*again* asks on behind a text the pool has read a moment ago; *fresh* asks as much of a text it has
never seen. Where nothing is reused, both take the same time.
"""

from __future__ import annotations

import argparse
import sys
from itertools import count
from typing import TYPE_CHECKING

from answer_figures import equality_figures
from measuring import (
    Measuring,
    add_arguments,
    finish,
    measuring,
    median_of,
    ratio_text,
    run_script,
    shown,
)
from prompts import PromptError
from protocol import Repetition, run_arms
from tables import Table

if TYPE_CHECKING:
    from comparators import Unsplit
    from measured_pool import MeasuredPool

FIRST_TURN_TOKENS = 1500
QUICK_FIRST_TURN_TOKENS = 300
SECOND_TURN = " And then, tell me more about the river, the bridge and the market of the town."
AGAIN, FRESH = "again", "fresh"
ANSWER_TOKENS = 8


class Turns:
    """First turns, none of which was asked before, and what follows each."""

    def __init__(self, measurement: Measuring, num_tokens: int) -> None:
        """Begin.

        Args:
            measurement: Has the tokenizer.
            num_tokens: Of each first turn.
        """
        self._measurement = measurement
        self._num_tokens = num_tokens
        self._numbers = count(20_000_000)

    def next(self) -> tuple[str, str]:
        """Return a first turn, and the two turns together.

        Raises:
            PromptError: The second's tokens are not the first's and more.
        """
        (first,) = self._measurement.prompts(1, self._num_tokens, next(self._numbers))
        both = first + SECOND_TURN
        first_ids, both_ids = self._measurement.ids([first, both])
        if both_ids[: len(first_ids)] != first_ids:
            raise PromptError("The tokenizer joins the first turn's end with the second's begin.")
        return first, both


def second_turn_runs(
    measurement: Measuring, pool: MeasuredPool, unsplit: Unsplit, turns: Turns
) -> list[Repetition]:
    """Measure the second turn's first token, after the first turn and without it.

    Args:
        measurement: Begun.
        pool: Open.
        unsplit: U3, whose tokens are the right ones.
        turns: To ask.
    """

    def second(both: str) -> dict[str, float]:
        (answer,) = pool.answers([both], ANSWER_TOKENS)
        (expected,) = unsplit.answers(measurement.ids([both]), ANSWER_TOKENS)
        figures = {"ttft_s": answer.token_times_s[0] - answer.asked_s}
        return figures | equality_figures([answer.token_ids], [expected.token_ids])

    def again() -> dict[str, float]:
        first, both = turns.next()
        pool.answers([first], 2)
        return second(both)

    given = measurement.given
    arms = {AGAIN: again, FRESH: lambda: second(turns.next()[1])}
    return run_arms(arms, {**pool.processes, **unsplit.processes}, given.blocks, given.warmups)


def measure(given: argparse.Namespace) -> None:
    """Measure what the command line asks for.

    Args:
        given: The command line.
    """
    num_tokens = QUICK_FIRST_TURN_TOKENS if given.quick else given.first_turn
    with measuring(given) as measurement:
        unsplit = measurement.unsplit("batched")
        rows = []
        for kind in given.kinds:
            pool = measurement.pool(kind, 2, reuses_prefixes=True)
            turns = Turns(measurement, num_tokens)
            runs = second_turn_runs(measurement, pool, unsplit, turns)
            measurement.record[kind] = runs
            equal = [r.figures["num_equal"] for r in runs if r.slot.arm == AGAIN]
            rows.append((
                kind,
                shown(median_of(runs, FRESH, "ttft_s"), 3),
                shown(median_of(runs, AGAIN, "ttft_s"), 3),
                ratio_text(runs, "ttft_s", FRESH, AGAIN, given.max_disturbed),
                f"{sum(equal):.0f} of {len(equal)}",
            ))
        table = Table(
            title=f"Second turn after {num_tokens} tokens, {measurement.model.name}, {given.mode}",
            columns=("stages", "fresh s", "again s", "fresh / again (range; pairs)", "same tokens"),
            rows=tuple(rows),
        )
        finish(measurement, "second-turn", [table])


def main() -> int:
    """Run the script; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    add_arguments(parser, blocks=3)
    parser.add_argument("--first-turn", type=int, default=FIRST_TURN_TOKENS, help="tokens of it")
    parser.add_argument("--kinds", nargs="+", default=["paged", "stateful"])
    given = parser.parse_args()
    return run_script(lambda: measure(given))


if __name__ == "__main__":
    sys.exit(main())

"""Long prompts: how soon the first token comes, and what those who are being answered feel of it.

The unsplit model reads the prompt in chunks as large as they may be, in one process with nothing
around it (U3 with one user). Then three users are answered while a fourth one's prompt is read.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from random import Random
from typing import TYPE_CHECKING

from answer_figures import Answer
from measuring import (
    LOOPBACK_MS,
    Measuring,
    add_arguments,
    finish,
    measuring,
    median_of,
    ratio_text,
    run_script,
    shown,
)
from pipeline_simulator import CHUNK_TOKENS, Pipeline, User, simulate
from protocol import Repetition, run_arms
from tables import Plot, Table

from engine.domain import RowTime
from engine.metrics import itl_ms, percentiles
from engine.scheduler.prompt_rows import PromptRows
from engine.scheduler.row_costs import RowCosts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from comparators import Unsplit
    from measured_pool import MeasuredPool

PROMPTS = (512, 2048)
QUICK_PROMPTS = (256,)
DECODING_USERS = 3
TIMED_ROWS = (1, 4, 8, 16, 64, 256)  # about what a stage times when it is loaded
HAS_BEGUN = 8  # tokens each of them has before the long prompt comes
UNSPLIT, SPLIT = "unsplit", "split"
ALONE, BESIDE = "alone", "beside"


async def read_beside(
    pool: MeasuredPool, decoding: Sequence[str], num_tokens: int, long_prompt: str | None
) -> dict[str, float]:
    """Answer some users, with or without a long prompt that comes when all of them are at it.

    Args:
        pool: Open for one user more.
        decoding: Their prompts.
        num_tokens: Of their answers.
        long_prompt: Of one more; None for nobody.

    Returns:
        The gaps between tokens of those users: while the prompt was read, or with none, of all.
    """
    answers = [Answer(0.0) for _ in decoding]
    last = Answer(0.0)
    all_have_begun = asyncio.Event()

    def look() -> None:
        if all(len(answer.token_ids) >= HAS_BEGUN for answer in answers):
            all_have_begun.set()

    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(pool.answer(user, text, num_tokens, answer, look))
            for user, (text, answer) in enumerate(zip(decoding, answers, strict=True))
        ]
        await all_have_begun.wait()
        if long_prompt is not None:
            await pool.answer(len(tasks), long_prompt, 2, last)
    gaps = [gap for answer in answers for gap in _gaps_during(answer, last)]
    seen = percentiles(gaps)
    figures = {"num_gaps": float(len(gaps))}
    if seen is not None:
        figures |= {"itl_ms_p50": seen.p50, "itl_ms_p95": seen.p95, "itl_ms_p99": seen.p99}
    if last.token_times_s:
        figures["ttft_s"] = last.token_times_s[0] - last.asked_s
    return figures


def _gaps_during(answer: Answer, last: Answer) -> tuple[float, ...]:
    """Return the gaps an answer had while another one's prompt was read; all if there was none."""
    times_s = answer.token_times_s
    if not last.token_times_s:
        return itl_ms(times_s)
    before = [t for t in times_s if t <= last.asked_s][-1:]
    during = [t for t in times_s if last.asked_s < t <= last.token_times_s[0]]
    after = [t for t in times_s if t > last.token_times_s[0]][:1]
    return itl_ms([*before, *during, *after])


def first_token_runs(
    measurement: Measuring, pool: MeasuredPool, unsplit: Unsplit, num_tokens: int
) -> list[Repetition]:
    """Measure the time to the first token of prompts of one length.

    Args:
        measurement: Begun.
        pool: Open.
        unsplit: U3.
        num_tokens: Of each prompt.
    """
    # A new prompt for each run: nothing may be found in a cache.
    numbers = iter(range(1000 * num_tokens, 1001 * num_tokens))

    def prompt() -> str:
        return measurement.prompts(1, num_tokens, next(numbers))[0]

    def ttft(answers: Sequence[Answer]) -> dict[str, float]:
        return {"ttft_s": answers[0].token_times_s[0] - answers[0].asked_s}

    arms: dict[str, Callable[[], dict[str, float]]] = {
        UNSPLIT: lambda: ttft(unsplit.answers(measurement.ids([prompt()]), 2)),
        SPLIT: lambda: ttft(pool.answers([prompt()], 2)),
    }
    given = measurement.given
    processes = {**unsplit.processes, **pool.processes}
    return run_arms(arms, processes, given.blocks, given.warmups)


def beside_runs(measurement: Measuring, pool: MeasuredPool, prompt_tokens: int) -> list[Repetition]:
    """Measure what users who are being answered feel of a long prompt.

    Args:
        measurement: Begun.
        pool: Open for one user more than are being answered.
        prompt_tokens: Of the long prompt.
    """
    given = measurement.given
    decoding = measurement.prompts(DECODING_USERS)
    numbers = iter(range(10_000_000, 11_000_000))

    def run(*, is_beside: bool) -> dict[str, float]:
        long_prompt = None
        if is_beside:
            long_prompt = measurement.prompts(1, prompt_tokens, next(numbers))[0]
        return pool.run(read_beside(pool, decoding, given.tokens, long_prompt))

    arms = {ALONE: lambda: run(is_beside=False), BESIDE: lambda: run(is_beside=True)}
    return run_arms(arms, pool.processes, given.blocks, given.warmups)


def _first_token_table(measurement: Measuring, runs: dict[int, list[Repetition]]) -> Table:
    rows = []
    lines: dict[str, list[tuple[float, float]]] = {}
    limit = measurement.given.max_disturbed
    for num_tokens, repetitions in runs.items():
        for arm in (UNSPLIT, SPLIT):
            ttft_s = median_of(repetitions, arm, "ttft_s") or 0.0
            lines.setdefault(arm, []).append((num_tokens, ttft_s))
        rows.append((
            f"{num_tokens}",
            shown(median_of(repetitions, UNSPLIT, "ttft_s"), 2),
            shown(median_of(repetitions, SPLIT, "ttft_s"), 2),
            ratio_text(repetitions, "ttft_s", UNSPLIT, SPLIT, limit),
            shown(_simulated_gain(measurement, num_tokens), 2),
        ))
    return Table(
        title=f"Time to first token, {measurement.model.name}, {measurement.given.mode}",
        columns=(
            "prompt tokens",
            "unsplit s",
            "split s",
            "unsplit / split (range; pairs)",
            "simulated gain",
        ),
        rows=tuple(rows),
        plot=Plot("prompt tokens", "seconds to the first token", lines),
    )


def _simulated_gain(measurement: Measuring, num_tokens: int) -> float:
    """Return how much sooner the simulator has the first token, from costs measured alone."""
    model = measurement.model

    def ttft_ms(pipeline: Pipeline) -> float:
        return simulate(pipeline, [User(2, num_tokens)], Random(0)).token_times_ms[0][0]

    stages = tuple(costs.ms for costs in model.costs)
    first = RowCosts(RowTime(rows, stages[0](1, rows) / 1e3) for rows in TIMED_ROWS)
    rows = PromptRows(first, len(stages), CHUNK_TOKENS)
    split = Pipeline(stages, LOOPBACK_MS, LOOPBACK_MS, chunk_tokens=rows.alone(num_tokens))
    return ttft_ms(Pipeline((model.whole_costs.ms,))) / ttft_ms(split)


def _beside_table(measurement: Measuring, runs: Sequence[Repetition], prompt_tokens: int) -> Table:
    limit = measurement.given.max_disturbed
    return Table(
        title=f"{DECODING_USERS} users while a prompt of {prompt_tokens} tokens is read, "
        f"{measurement.model.name}",
        columns=("", "ITL p50 ms", "ITL p95 ms", "ITL p99 ms", "gaps", "TTFT of the prompt s"),
        rows=(
            *(
                (
                    arm,
                    *(shown(median_of(runs, arm, f"itl_ms_{p}")) for p in ("p50", "p95", "p99")),
                    shown(median_of(runs, arm, "num_gaps"), 0),
                    shown(median_of(runs, arm, "ttft_s"), 2),
                )
                for arm in (ALONE, BESIDE)
            ),
            (
                "beside / alone",
                *(ratio_text(runs, f"itl_ms_{p}", BESIDE, ALONE, limit)
                  for p in ("p50", "p95", "p99")),
                "",
                "",
            ),
        ),
    )  # fmt: skip


def measure(given: argparse.Namespace) -> None:
    """Measure what the command line asks for.

    Args:
        given: The command line.
    """
    prompts = QUICK_PROMPTS if given.quick else tuple(given.prompts)
    with measuring(given) as measurement:
        unsplit = measurement.unsplit("batched")
        pool = measurement.pool(given.kind, DECODING_USERS + 1)
        runs = {n: first_token_runs(measurement, pool, unsplit, n) for n in prompts}
        beside = beside_runs(measurement, pool, max(prompts))
        measurement.record |= {"first_token": runs, "beside": beside}
        tables = [
            _first_token_table(measurement, runs),
            _beside_table(measurement, beside, max(prompts)),
        ]
        finish(measurement, "prefill", tables)


def main() -> int:
    """Run the script; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    add_arguments(parser, blocks=3)
    parser.add_argument("--prompts", type=int, nargs="+", default=list(PROMPTS))
    parser.add_argument("--kind", default="paged", choices=["paged", "stateful"])
    given = parser.parse_args()
    return run_script(lambda: measure(given))


if __name__ == "__main__":
    sys.exit(main())

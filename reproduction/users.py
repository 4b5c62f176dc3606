"""Users at once: a pool of two nodes, paged and stateful, beside the unsplit model on one core.

For each number of users the unsplit model with one user (U1), the unsplit model with all of them
batched (U3) and the pool both ways run in turn, so that each ratio is of neighbours. With two users
there is the unsplit model on each of both cores as well: no pool of two can give more than that.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from comparators import measure_each, why_no_peer
from measuring import (
    LOOPBACK_MS,
    UNSPLIT,
    Measuring,
    add_arguments,
    finish,
    measuring,
    median_of,
    ratio_text,
    run_script,
    seen_costs,
    shown,
    simulated_tokens_per_s,
    split_arm,
)
from protocol import Repetition, run_arms
from tables import Plot, Table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from answer_figures import Answer
    from comparators import Unsplit
    from measured_pool import MeasuredPool

USERS = (1, 2, 4, 8, 16)
QUICK_USERS = (1, 2)
BATCHED = "U3"
ON_EACH_CORE = "2 x U1"
_CORES = 2


def measure_users(
    measurement: Measuring,
    pools: Mapping[str, MeasuredPool],
    unsplit: Mapping[str, Unsplit],
    references: Sequence[Answer],
    num_users: int,
) -> list[Repetition]:
    """Run all arms for one number of users.

    Args:
        measurement: Begun.
        pools: By kind.
        unsplit: U1, also on the second core, and U3.
        references: The unsplit model's answers.
        num_users: At once.
    """
    given = measurement.given
    prompts = measurement.prompts(num_users)
    ids = measurement.ids(prompts)
    arms = {
        UNSPLIT: lambda: unsplit[UNSPLIT].measure(ids[:1], given.tokens),
        BATCHED: lambda: unsplit[BATCHED].measure(ids, given.tokens),
        **_control_arm(unsplit, ids, given.tokens),
        **{k: split_arm(pool, prompts, given.tokens, references) for k, pool in pools.items()},
    }
    processes = {name: pid for one in unsplit.values() for name, pid in one.processes.items()}
    for kind, pool in pools.items():
        processes |= {f"{kind} {name}": pid for name, pid in pool.processes.items()}
    return run_arms(arms, processes, given.blocks, given.warmups)


def _control_arm(
    unsplit: Mapping[str, Unsplit], ids: list[list[int]], num_tokens: int
) -> dict[str, Callable[[], dict[str, float]]]:
    if len(ids) != _CORES:
        return {}
    each = [unsplit[UNSPLIT], unsplit[ON_EACH_CORE]]
    return {ON_EACH_CORE: lambda: measure_each(each, ids, num_tokens)}


def table_of(measurement: Measuring, by_users: Mapping[int, Sequence[Repetition]]) -> Table:
    """Return what was found, with the simulator's figure beside it.

    Args:
        measurement: Done.
        by_users: Runs by the number of users; of one user among them.
    """
    given, model = measurement.given, measurement.model
    kinds = given.kinds
    costs = {k: seen_costs(_of_kind(by_users[1], k), k, model, given.tokens) for k in kinds}
    measurement.record["seen_costs"] = costs
    lines: dict[str, list[tuple[float, float]]] = {}
    rows = []
    for num_users, runs in by_users.items():
        one = median_of(runs, UNSPLIT, "tokens_per_s") or 1.0
        for arm in (BATCHED, *[ON_EACH_CORE] * (num_users == _CORES), *kinds):
            rate = median_of(runs, arm, "tokens_per_s")
            simulated = None
            if arm in kinds:
                is_batched = arm == "paged"
                shapes = [replace(c, is_batched=is_batched) for c in model.costs]
                pipeline = costs[arm].pipeline(shapes, LOOPBACK_MS)
                simulated = simulated_tokens_per_s(pipeline, num_users, given.tokens)
            lines.setdefault(arm, []).append((num_users, (rate or 0.0) / one))
            rows.append((
                f"{num_users}",
                arm,
                shown(rate),
                ratio_text(runs, "tokens_per_s", arm, UNSPLIT, given.max_disturbed),
                shown(simulated),
                *(shown(median_of(runs, arm, figure)) for figure in _TIMES),
                shown(median_of(runs, arm, "ttft_s_p50"), 2),
                *(shown(median_of(runs, arm, figure), 2) for figure in _SHARES),
                shown(median_of(runs, arm, "bytes_per_row"), 0),
                _equality(runs, arm),
            ))
    return Table(
        title=f"Users at once, {model.name}, {given.mode}, {given.tokens} tokens each",
        columns=(
            "users", "arm", "tokens/s", "ratio to U1 (range; pairs)", "simulated tokens/s",
            "TPOT p50 ms", "TPOT p95 ms", "ITL p50 ms", "ITL p95 ms", "ITL p99 ms", "TTFT p50 s",
            "stage 1 busy", "stage 2 busy", "frames/token", "bytes/row", "equal tokens",
        ),
        rows=tuple(rows),
        plot=Plot("users", "tokens/s as a ratio to U1", lines),
        notes=(
            f"A row is {model.split.manifest.model.hidden_size} hidden states. {why_no_peer()}",
            "U2 and U4, those with a drafter, are in the table of guessing.py.",
        ),
    )  # fmt: skip


_TIMES = ("tpot_ms_p50", "tpot_ms_p95", "itl_ms_p50", "itl_ms_p95", "itl_ms_p99")
_SHARES = ("stage_0_busy", "stage_1_busy", "frames_per_token")


def _of_kind(runs: Sequence[Repetition], kind: str) -> list[Repetition]:
    """Return runs whose processes are called as those of one pool alone."""
    return [
        Repetition(
            run.slot,
            run.figures,
            replace(
                run.usage,
                cpu_s={n.removeprefix(f"{kind} "): s for n, s in run.usage.cpu_s.items()
                       if n.startswith(f"{kind} ")},
            ),
        )
        for run in runs
    ]  # fmt: skip


def _equality(runs: Sequence[Repetition], arm: str) -> str:
    equal, total = median_of(runs, arm, "num_equal"), median_of(runs, arm, "num_answers")
    if equal is None or total is None:
        return ""
    first = median_of(runs, arm, "first_difference_p50")
    place = "" if first is None else f", differ from {first:.0f}"
    return f"{equal:.0f} of {total:.0f}{place}"


def measure(given: argparse.Namespace) -> None:
    """Measure what the command line asks for.

    Args:
        given: The command line.
    """
    numbers = QUICK_USERS if given.quick else tuple(sorted({1, *given.users}))
    with measuring(given) as measurement:
        unsplit = {
            UNSPLIT: measurement.unsplit(),
            BATCHED: measurement.unsplit("batched"),
            ON_EACH_CORE: measurement.unsplit(core=1),
        }
        pools = {kind: measurement.pool(kind, max(numbers)) for kind in given.kinds}
        prompts = measurement.ids(measurement.prompts(max(numbers)))
        references = unsplit[UNSPLIT].answers(prompts, given.tokens)
        by_users = {}
        for num_users in numbers:
            by_users[num_users] = measure_users(measurement, pools, unsplit, references, num_users)
            print(f"{num_users} users: done", file=sys.stderr, flush=True)
        table = table_of(measurement, by_users)
        measurement.record |= {"repetitions": by_users, "references": references}
        finish(measurement, "users", [table])


def main() -> int:
    """Run the script; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    add_arguments(parser, blocks=3)
    parser.add_argument("--users", type=int, nargs="+", default=list(USERS))
    parser.add_argument("--kinds", nargs="+", default=["paged", "stateful"])
    given = parser.parse_args()
    return run_script(lambda: measure(given))


if __name__ == "__main__":
    sys.exit(main())

"""Nodes far from each other: round trips of set lengths, users at once, beside the simulator.

The link is checked before each of its settings is used, with round trips of its own.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from deadline_queue import LinkSettings
from delay_link import BASE_PORT, DelayLink, delay_link, enter_own_network
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
    from collections.abc import Mapping, Sequence

    from answer_figures import Answer
    from comparators import Unsplit
    from delay_link import RoundTrips
    from measured_pool import MeasuredPool
    from measuring import SeenCosts

ROUND_TRIPS_MS = (0.0, 20.0, 50.0, 100.0)
QUICK_ROUND_TRIPS_MS = (0.0, 20.0)
USERS = (1, 2, 4, 8)
QUICK_USERS = (1, 2)
_CALIBRATION = "1 users"


def arm_of(num_users: int) -> str:
    """Return the name of an arm.

    Args:
        num_users: At once.
    """
    return f"{num_users} users"


def set_link(link: DelayLink, round_trip_ms: float, given: argparse.Namespace) -> RoundTrips:
    """Give the link a round trip, and see that it has it.

    Args:
        link: Laid.
        round_trip_ms: 0 takes the nodes off it: plain loopback.
        given: Its jitter and rate.
    """
    if round_trip_ms == 0:
        link.set(None)
        return link.check()
    one_way_ms = max(0.0, (round_trip_ms - given.jitter_ms) / 2)
    return link.calibrated(LinkSettings(one_way_ms, given.jitter_ms, given.mbit_per_s))


def measure_link(
    measurement: Measuring,
    pool: MeasuredPool,
    unsplit: Unsplit,
    references: Sequence[Answer],
    users: Sequence[int],
) -> list[Repetition]:
    """Run all numbers of users over the link as it is set.

    Args:
        measurement: Begun.
        pool: Open.
        unsplit: U1.
        references: The unsplit model's answers.
        users: Numbers of them.
    """
    given = measurement.given
    prompts = measurement.prompts(max(users))
    first = measurement.ids(prompts[:1])
    arms = {
        UNSPLIT: lambda: unsplit.measure(first, given.tokens),
        **{arm_of(n): split_arm(pool, prompts[:n], given.tokens, references) for n in users},
    }
    processes = {**unsplit.processes, **pool.processes}
    return run_arms(arms, processes, given.blocks, given.warmups)


def table_of(
    measurement: Measuring,
    runs: Mapping[float, Sequence[Repetition]],
    trips: Mapping[float, RoundTrips],
    users: Sequence[int],
) -> Table:
    """Return what was found, with the simulator's figure beside it.

    Args:
        measurement: Done.
        runs: By round trip in milliseconds; 0 among them.
        trips: As they were measured.
        users: Numbers of them.
    """
    given, model = measurement.given, measurement.model
    costs: SeenCosts = seen_costs(runs[0.0], _CALIBRATION, model, given.tokens)
    measurement.record["seen_costs"] = costs
    lines: dict[str, list[tuple[float, float]]] = {}
    rows = []
    for round_trip_ms, repetitions in runs.items():
        one = median_of(repetitions, UNSPLIT, "tokens_per_s") or 1.0
        hop_ms = LOOPBACK_MS + (trips[round_trip_ms].p50_ms / 2 if round_trip_ms else 0.0)
        for num_users in users:
            arm = arm_of(num_users)
            rate = median_of(repetitions, arm, "tokens_per_s") or 0.0
            pipeline = costs.pipeline(model.costs, hop_ms)
            simulated = simulated_tokens_per_s(pipeline, num_users, given.tokens)
            lines.setdefault(arm, []).append((round_trip_ms, rate / one))
            rows.append((
                f"{round_trip_ms:g}",
                f"{trips[round_trip_ms].p50_ms:.2f}, {trips[round_trip_ms].p95_ms:.2f}",
                f"{num_users}",
                shown(rate),
                ratio_text(repetitions, "tokens_per_s", arm, UNSPLIT, given.max_disturbed),
                shown(simulated),
                f"{100 * (rate / simulated - 1):+.0f} %",
                shown(median_of(repetitions, arm, "itl_ms_p50")),
                shown(median_of(repetitions, arm, "itl_ms_p99")),
                shown(median_of(repetitions, arm, "ttft_s_p50"), 2),
            ))
    return Table(
        title=f"Users over a link, {model.name}, {given.kind}, {given.tokens} tokens each",
        columns=(
            "round trip ms", "measured p50, p95", "users", "tokens/s",
            "ratio to U1 (range; pairs)", "simulated tokens/s", "off by", "ITL p50 ms",
            "ITL p99 ms", "TTFT p50 s",
        ),
        rows=tuple(rows),
        plot=Plot("round trip, ms", "tokens/s as a ratio to U1", lines),
    )  # fmt: skip


def measure(given: argparse.Namespace) -> None:
    """Measure what the command line asks for.

    Args:
        given: The command line.
    """
    asked = QUICK_ROUND_TRIPS_MS if given.quick else given.round_trips
    round_trips = sorted({0.0, *asked})  # without it, the simulator has nothing to go by
    users = QUICK_USERS if given.quick else tuple(sorted({1, *given.users}))
    ports = [BASE_PORT, BASE_PORT + 1]
    with measuring(given) as measurement, delay_link(ports, given.seed) as link:
        unsplit = measurement.unsplit()
        pool = measurement.pool(given.kind, max(users), BASE_PORT)
        ids = measurement.ids(measurement.prompts(max(users)))
        references = unsplit.answers(ids, given.tokens)
        runs, trips = {}, {}
        for round_trip_ms in round_trips:
            trips[round_trip_ms] = set_link(link, round_trip_ms, given)
            before = link.carried()
            runs[round_trip_ms] = measure_link(measurement, pool, unsplit, references, users)
            spent = {name: value - before[name] for name, value in link.carried().items()}
            measurement.record[f"link at {round_trip_ms:g} ms"] = spent
            print(f"{trips[round_trip_ms]}: done, {spent}", file=sys.stderr, flush=True)
        link.set(None)
        table = table_of(measurement, runs, trips, users)
        measurement.record |= {"repetitions": runs, "round_trips": trips}
        finish(measurement, "delay", [table])


def main() -> int:
    """Run the script; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    add_arguments(parser, tokens=128, blocks=2)
    parser.add_argument(
        "--round-trips", type=float, nargs="+", default=list(ROUND_TRIPS_MS), help="milliseconds"
    )
    parser.add_argument("--users", type=int, nargs="+", default=list(USERS))
    parser.add_argument("--kind", default="paged", choices=["paged", "stateful"])
    parser.add_argument("--jitter-ms", type=float, default=0.0, help="at most, each way")
    parser.add_argument("--mbit-per-s", type=float, help="of each direction; no limit if left out")
    parser.add_argument("--seed", type=int, default=0, help="of the jitter")
    given = parser.parse_args()
    enter_own_network()
    return run_script(lambda: measure(given))


if __name__ == "__main__":
    sys.exit(main())

"""Guessing ahead: a pool of two nodes with drafts that hold as often as is set, against without.

Beside it the unsplit model on one core: plain with one user (U1), with the same drafter (U2 for
one user, U4 for several). Answers must be those without guesses, token for token, in exact mode;
in fast mode a batch of another width may decide a near-tie otherwise, and what was recorded then
holds no longer: use exact mode, or a model that means something.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from answer_figures import equality_figures
from deadline_queue import LinkSettings
from delay_link import BASE_PORT, delay_link, enter_own_network
from measured_guesses import Guesses, write_guesses
from measured_pool import MeasuredPool, PoolShape
from measuring import (
    LOOPBACK_MS,
    UNSPLIT,
    WARM_TOKENS,
    Measuring,
    add_arguments,
    finish,
    measuring,
    median_of,
    ratio_text,
    run_script,
    seen_costs,
    shown,
    split_arm,
)
from pipeline_simulator import PLAIN as PLAIN_DECODING
from pipeline_simulator import Speculation, User, simulate
from protocol import Repetition, run_arms
from tables import Plot, Table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from answer_figures import Answer
    from comparators import Unsplit

ACCEPTANCES = (0.0, 0.7)
USERS = (1, 2)
SIMULATED_TOKENS = 2000  # of each user: which drafts are right is chance
PLAIN, GUESSED, UNSPLIT_GUESSED = "plain", "guessed", "U2/U4"


def guesses_file(
    measurement: Measuring, references: Sequence[Answer], acceptance: float, folder: Path
) -> Path:
    """Write what is guessed, and return the file.

    Args:
        measurement: Begun; says how many drafts.
        references: The answers without guesses.
        acceptance: Of each draft.
        folder: For the file.
    """
    prompts = measurement.ids(measurement.prompts(len(references)))
    guesses = Guesses(
        prompts=prompts,
        answers=[answer.token_ids for answer in references],
        acceptance=acceptance,
        num_drafts=measurement.given.drafts,
        vocab_size=measurement.model.split.manifest.model.vocab_size,
    )
    path = folder / f"guesses-{acceptance:g}.json"
    write_guesses(path, guesses)
    return path


def measure_arms(
    measurement: Measuring,
    pool: MeasuredPool,
    unsplit: Mapping[str, Unsplit],
    references: Sequence[Answer],
    guesses: Path,
) -> list[Repetition]:
    """Run plain and guessed answers of as many users as there are references.

    Args:
        measurement: Begun.
        pool: Its nodes guess.
        unsplit: ``stateful`` and ``batched``.
        references: One for each user.
        guesses: What the unsplit model is guessed by.
    """
    given = measurement.given
    prompts = measurement.prompts(len(references))
    ids = measurement.ids(prompts)

    def guessed() -> dict[str, float]:
        figures, answers = pool.measure(prompts, given.tokens, is_guessed=True)
        seen = [answer.token_ids for answer in answers]
        return figures | equality_figures(seen, [r.token_ids for r in references])

    arms: dict[str, Callable[[], dict[str, float]]] = {
        UNSPLIT: lambda: unsplit["stateful"].measure(ids[:1], given.tokens),
        UNSPLIT_GUESSED: lambda: unsplit["batched"].measure(ids, given.tokens, guesses),
        PLAIN: split_arm(pool, prompts, given.tokens, references),
        GUESSED: guessed,
    }
    processes = {name: pid for one in unsplit.values() for name, pid in one.processes.items()}
    return run_arms(arms, processes | pool.processes, given.blocks, given.warmups)


def runs_of(
    measurement: Measuring,
    unsplit: Mapping[str, Unsplit],
    references: Sequence[Answer],
    guesses: Path,
    users: Sequence[int],
) -> dict[int, list[Repetition]]:
    """Open a pool whose head guesses from a file, and run every number of users.

    Args:
        measurement: Begun.
        unsplit: ``stateful`` and ``batched``.
        references: One for each user at most.
        guesses: The file.
        users: Numbers of them.
    """
    given = measurement.given
    shape = PoolShape(
        kind=given.kind,
        mode=given.mode,
        max_users=max(users),
        base_port=BASE_PORT if given.round_trip_ms else 0,
        guesses=guesses,
    )
    with MeasuredPool(measurement.model.split, shape) as pool:
        pool.answers(measurement.prompts(1), WARM_TOKENS, is_guessed=True)
        return {
            num_users: measure_arms(measurement, pool, unsplit, references[:num_users], guesses)
            for num_users in users
        }


def table_of(
    measurement: Measuring, runs: Mapping[tuple[float, int], Sequence[Repetition]]
) -> Table:
    """Return what was found.

    Args:
        measurement: Done.
        runs: By acceptance and number of users.
    """
    limit = measurement.given.max_disturbed
    simulated = _simulated(measurement, runs)
    rows = []
    lines: dict[str, list[tuple[float, float]]] = {}
    for (acceptance, num_users), repetitions in runs.items():
        one = median_of(repetitions, UNSPLIT, "tokens_per_s") or 1.0
        for arm in (UNSPLIT_GUESSED, PLAIN, GUESSED):
            rate = median_of(repetitions, arm, "tokens_per_s") or 0.0
            line = lines.setdefault(f"{arm}, {num_users} users", [])
            line.append((acceptance, rate / one))
            equal = median_of(repetitions, arm, "num_equal")
            rows.append((
                f"{acceptance:g}",
                f"{num_users}",
                arm,
                shown(rate),
                ratio_text(repetitions, "tokens_per_s", arm, UNSPLIT, limit),
                ratio_text(repetitions, "tokens_per_s", arm, PLAIN, limit),
                shown(simulated.get((acceptance, num_users, arm))),
                shown(median_of(repetitions, arm, "frames_per_token"), 2),
                "" if equal is None else f"{equal:.0f} of {num_users}",
            ))
    return Table(
        title=f"Guessing ahead, {measurement.model.name}, {measurement.given.mode}, "
        f"{measurement.given.drafts} drafts a frame, {measurement.given.tokens} tokens, "
        f"round trip {measurement.given.round_trip_ms:g} ms",
        columns=(
            "acceptance",
            "users",
            "arm",
            "tokens/s",
            "ratio to U1 (range; pairs)",
            "ratio to plain",
            "simulated tokens/s",
            "frames/token",
            "equal tokens",
        ),
        rows=tuple(rows),
        plot=Plot("acceptance", "tokens/s as a ratio to U1", lines),
    )


def _simulated(
    measurement: Measuring, runs: Mapping[tuple[float, int], Sequence[Repetition]]
) -> dict[tuple[float, int, str], float]:
    """Return the simulator's throughput of each arm of the pool, from what one user took."""
    given, model = measurement.given, measurement.model
    one = next(repetitions for (_, num_users), repetitions in runs.items() if num_users == 1)
    hop_ms = LOOPBACK_MS + given.round_trip_ms / 2
    plain = seen_costs(one, PLAIN, model, given.tokens).pipeline(model.costs, hop_ms)
    # As the head counts them: the way round over one stage's time.
    frame_ms = [cost(1, given.drafts + 1) for cost in plain.costs]
    num_stages = len(frame_ms)
    ways = round(num_stages * (1 + num_stages * hop_ms / sum(frame_ms)))
    guessed = replace(plain, num_in_flight=max(num_stages, ways), max_groups=num_stages)
    found = {}
    for acceptance, num_users in runs:
        num_frames = max(1, guessed.num_batches // num_users)
        frames = Speculation(given.drafts + 1, acceptance, num_frames=num_frames)
        users = [User(SIMULATED_TOKENS)] * num_users
        for arm, pipeline, speculation in (
            (PLAIN, plain, PLAIN_DECODING),
            (GUESSED, guessed, frames),
        ):
            seen = simulate(pipeline, users, Random(0), speculation)
            found[acceptance, num_users, arm] = seen.tokens_per_s
    return found


def measure(given: argparse.Namespace) -> None:
    """Measure what the command line asks for.

    Args:
        given: The command line.
    """
    acceptances = (max(given.acceptances),) if given.quick else given.acceptances
    users = (1,) if given.quick else tuple(sorted({1, *given.users}))
    with ExitStack() as stack:
        measurement = stack.enter_context(measuring(given))
        place = stack.enter_context(tempfile.TemporaryDirectory())
        if given.round_trip_ms:
            link = stack.enter_context(delay_link([BASE_PORT, BASE_PORT + 1]))
            measurement.record["round_trips"] = link.calibrated(
                LinkSettings(given.round_trip_ms / 2)
            )
        unsplit = {kind: measurement.unsplit(kind) for kind in ("stateful", "batched")}
        ids = measurement.ids(measurement.prompts(max(users)))
        references = unsplit["stateful"].answers(ids, given.tokens)
        runs = {}
        for acceptance in sorted(acceptances):
            guesses = guesses_file(measurement, references, acceptance, Path(place))
            by_users = runs_of(measurement, unsplit, references, guesses, users)
            runs |= {(acceptance, num_users): each for num_users, each in by_users.items()}
        measurement.record |= {
            f"acceptance {acceptance:g}, {num_users} users": repetitions
            for (acceptance, num_users), repetitions in runs.items()
        }
        finish(measurement, "guessing", [table_of(measurement, runs)])


def main() -> int:
    """Run the script; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    add_arguments(parser, blocks=3)
    parser.set_defaults(mode="exact")
    parser.add_argument("--acceptances", type=float, nargs="+", default=list(ACCEPTANCES))
    parser.add_argument("--drafts", type=int, default=3, help="of each frame")
    parser.add_argument("--users", type=int, nargs="+", default=list(USERS))
    parser.add_argument("--kind", default="paged", choices=["paged", "stateful"])
    parser.add_argument("--round-trip-ms", type=float, default=0.0, help="between the nodes")
    given = parser.parse_args()
    if given.round_trip_ms:
        enter_own_network()
    return run_script(lambda: measure(given))


if __name__ == "__main__":
    sys.exit(main())

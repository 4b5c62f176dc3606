"""Guessing ahead: a pool of two nodes with drafts that hold as often as is set, against without.

Beside it the unsplit model on one core: plain with one user (U1), with the same drafter (U2 for
one user, U4 for several). Answers must be those without guesses, token for token: in exact mode
those of the unsplit model, in fast mode, which rounds more, those that the pool itself gives to one
user without guesses, and the oracle of U2 and U4 knows what U3 answers to one.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from answer_figures import equality_figures
from delay import set_link
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

from engine.scheduler.circuit import MAX_FRAMES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from answer_figures import Answer
    from comparators import Unsplit

ACCEPTANCES = (0.0, 0.7)
USERS = (1, 2)
SIMULATED_TOKENS = 2000  # of each user: which drafts are right is chance
PLAIN, UNSPLIT_GUESSED = "plain", "U2/U4"
OWN_CHOICE = "own"  # of the number of drafts: the program's
ONE_PLAIN = f"{PLAIN}, 1 users"


class Setting(NamedTuple):
    """Under which arms are run against each other.

    Attributes:
        round_trip_ms: Of the link; 0 for plain loopback.
        acceptance: Of each draft.
    """

    round_trip_ms: float
    acceptance: float


class References(NamedTuple):
    """Answers without guesses.

    Attributes:
        pool: What the pool must answer with guesses.
        unsplit: The same of U2 and U4.
    """

    pool: Sequence[Answer]
    unsplit: Sequence[Answer]


Runs = dict[Setting, list[Repetition]]


def drafts_of(word: str) -> int | None:
    """Return a number of drafts as the command line says it; None for the program's own choice.

    Args:
        word: A number, or ``own``.
    """
    return None if word == OWN_CHOICE else int(word)


def guessed_arm(num_drafts: int | None, num_users: int) -> str:
    """Return the name of an arm of the pool that guesses.

    Args:
        num_drafts: Of each frame; None for the program's own choice.
        num_users: At once.
    """
    return f"guessed {OWN_CHOICE if num_drafts is None else num_drafts}, {num_users} users"


class Arms:
    """What can be run once, and gives figures."""

    def __init__(
        self,
        measurement: Measuring,
        pool: MeasuredPool,
        unsplit: Mapping[str, Unsplit],
        references: References,
        place: Path,
    ) -> None:
        """Take over what is open.

        Args:
            measurement: Begun.
            pool: Its nodes guess as they are told.
            unsplit: ``stateful``, and ``guessed`` where U2 and U4 are measured.
            references: Known answers, one for each user at most.
            place: For files.
        """
        self._given = measurement.given
        self._prompts = measurement.prompts(len(references.pool))
        self._ids = measurement.ids(self._prompts)
        self._vocab_size = measurement.model.split.manifest.model.vocab_size
        self._pool = pool
        self._unsplit = unsplit
        self._references = references
        self._place = place

    def of(self, acceptance: float) -> dict[str, Callable[[], dict[str, float]]]:
        """Return all arms of one setting.

        Args:
            acceptance: Of each draft.
        """
        given = self._given
        tokens = given.tokens
        arms: dict[str, Callable[[], dict[str, float]]] = {
            UNSPLIT: lambda: self._unsplit["stateful"].measure(self._ids[:1], tokens)
        }
        for num_users in given.users:
            prompts = self._prompts[:num_users]
            if "guessed" in self._unsplit:
                arms[f"{UNSPLIT_GUESSED}, {num_users} users"] = self._unsplit_guessed(
                    acceptance, num_users
                )
            if num_users in given.plain_users:
                plain = split_arm(self._pool, prompts, tokens, self._references.pool)
                arms[f"{PLAIN}, {num_users} users"] = plain
            if num_users in given.guessed_users:
                for num_drafts in map(drafts_of, given.drafts):
                    arm = self._guessed(acceptance, num_drafts, num_users)
                    arms[guessed_arm(num_drafts, num_users)] = arm
        return arms

    def _guesses(
        self, references: Sequence[Answer], acceptance: float, num_drafts: int | None
    ) -> Guesses:
        answers = [answer.token_ids for answer in references]
        return Guesses(self._ids, answers, acceptance, num_drafts, self._vocab_size)

    def _unsplit_guessed(self, acceptance: float, num_users: int) -> Callable[[], dict[str, float]]:
        num_drafts = next(filter(None, map(drafts_of, self._given.drafts)), 0)
        path = self._place / f"guesses-{acceptance:g}.json"
        write_guesses(path, self._guesses(self._references.unsplit, acceptance, num_drafts))
        ids = self._ids[:num_users]
        return lambda: self._unsplit["guessed"].measure(ids, self._given.tokens, path)

    def _guessed(
        self, acceptance: float, num_drafts: int | None, num_users: int
    ) -> Callable[[], dict[str, float]]:
        guesses = self._guesses(self._references.pool, acceptance, num_drafts)

        def run() -> dict[str, float]:
            self._pool.guess_by(guesses)
            prompts = self._prompts[:num_users]
            figures, answers = self._pool.measure(prompts, self._given.tokens, is_guessed=True)
            references = [r.token_ids for r in self._references.pool[:num_users]]
            return figures | equality_figures([a.token_ids for a in answers], references)

        return run


def table_of(measurement: Measuring, runs: Runs) -> Table:
    """Return what was found.

    Args:
        measurement: Done.
        runs: By setting.
    """
    given = measurement.given
    simulated = _simulated(measurement, runs)
    rows = []
    lines: dict[str, list[tuple[float, float]]] = {}
    x = "round trip, ms" if len({s.round_trip_ms for s in runs}) > 1 else "acceptance"
    for setting, repetitions in runs.items():
        one = median_of(repetitions, UNSPLIT, "tokens_per_s") or 1.0
        for arm in dict.fromkeys(r.slot.arm for r in repetitions):
            if arm == UNSPLIT:
                continue
            rate = median_of(repetitions, arm, "tokens_per_s") or 0.0
            line = lines.setdefault(f"{arm}, a={setting.acceptance:g}" if "trip" in x else arm, [])
            line.append((setting[int("trip" not in x)], rate / one))
            rows.append(_row(given, setting, arm, repetitions, simulated.get((setting, arm))))
    return Table(
        title=f"Guessing ahead, {measurement.model.name}, {given.mode}, {given.tokens} tokens",
        columns=(
            "round trip ms",
            "acceptance",
            "arm",
            "tokens/s",
            "ratio to U1 (range; pairs)",
            "ratio to plain, same users",
            "ratio to plain, 1 user",
            "simulated tokens/s",
            "frames/token",
            "accepted of drafted",
            "equal tokens",
        ),
        rows=tuple(rows),
        plot=Plot(x, "tokens/s as a ratio to U1", lines),
    )


def _row(
    given: argparse.Namespace,
    setting: Setting,
    arm: str,
    repetitions: Sequence[Repetition],
    simulated: float | None,
) -> tuple[str, ...]:
    limit = given.max_disturbed
    arms = {r.slot.arm for r in repetitions}

    def ratio_to(reference: str) -> str:
        if reference not in arms:
            return ""
        return ratio_text(repetitions, "tokens_per_s", arm, reference, limit)

    users = arm.partition(", ")[2]
    drafted = median_of(repetitions, arm, "drafted")
    accepted = median_of(repetitions, arm, "accepted") or 0.0
    equal = median_of(repetitions, arm, "num_equal")
    return (
        f"{setting.round_trip_ms:g}",
        f"{setting.acceptance:g}",
        arm,
        shown(median_of(repetitions, arm, "tokens_per_s")),
        ratio_to(UNSPLIT),
        ratio_to(f"{PLAIN}, {users}"),
        ratio_to(ONE_PLAIN),
        shown(simulated),
        shown(median_of(repetitions, arm, "frames_per_token"), 2),
        f"{accepted / drafted:.2f}" if drafted else "",
        "" if equal is None else f"{equal:.0f} of {users.partition(' ')[0]}",
    )


def _simulated(measurement: Measuring, runs: Runs) -> dict[tuple[Setting, str], float]:
    """Return the simulator's throughput of the pool's arms, from what one user took.

    What the program chooses by itself is not simulated.
    """
    given, model = measurement.given, measurement.model
    calibration = next(iter(runs.values()))
    if ONE_PLAIN not in {r.slot.arm for r in calibration}:
        return {}
    costs = seen_costs(calibration, ONE_PLAIN, model, given.tokens)
    found = {}
    for setting in runs:
        hop_ms = LOOPBACK_MS + setting.round_trip_ms / 2
        plain = costs.pipeline(model.costs, hop_ms)
        num_stages = len(plain.costs)
        for num_users in given.users:
            users = [User(SIMULATED_TOKENS)] * num_users
            seen = simulate(plain, users, Random(0), PLAIN_DECODING)
            found[setting, f"{PLAIN}, {num_users} users"] = seen.tokens_per_s
            for num_drafts in filter(None, map(drafts_of, given.drafts)):
                # As the head counts them: the way round over one stage's time.
                frame_ms = sum(cost(1, num_drafts + 1) for cost in plain.costs)
                ways = min(round(num_stages * (1 + num_stages * hop_ms / frame_ms)), MAX_FRAMES)
                pipeline = replace(
                    plain, num_in_flight=max(num_stages, ways), max_groups=num_stages
                )
                num_frames = max(1, pipeline.num_batches // num_users)
                frames = Speculation(num_drafts + 1, setting.acceptance, num_frames=num_frames)
                seen = simulate(pipeline, users, Random(0), frames)
                found[setting, guessed_arm(num_drafts, num_users)] = seen.tokens_per_s
    return found


def measure(given: argparse.Namespace) -> None:
    """Measure what the command line asks for.

    Args:
        given: The command line.
    """
    if given.quick:
        given.acceptances, given.users = [max(given.acceptances)], [1]
    given.plain_users = given.users if given.plain_users is None else given.plain_users
    given.guessed_users = given.users if given.guessed_users is None else given.guessed_users
    with ExitStack() as stack:
        measurement = stack.enter_context(measuring(given))
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ports = [BASE_PORT, BASE_PORT + 1]
        link = stack.enter_context(delay_link(ports)) if any(given.round_trips) else None
        kinds = ["stateful"] if given.no_unsplit_guesses else ["stateful", "guessed"]
        unsplit = {kind: measurement.unsplit(kind) for kind in kinds}
        shape = PoolShape(
            kind=given.kind,
            mode=given.mode,
            max_users=max(given.users),
            base_port=0 if link is None else BASE_PORT,
            is_guessed=True,
        )
        pool = stack.enter_context(MeasuredPool(measurement.model.split, shape))
        references = _references(measurement, pool, unsplit)
        arms = Arms(measurement, pool, unsplit, references, place)
        pool.answers(measurement.prompts(1), WARM_TOKENS, is_guessed=True)
        processes = {name: pid for one in unsplit.values() for name, pid in one.processes.items()}
        processes |= pool.processes
        runs: Runs = {}
        trips = {}
        for round_trip_ms in sorted(given.round_trips):
            if link is not None:
                trips[round_trip_ms] = set_link(link, round_trip_ms, given)
            for acceptance in sorted(given.acceptances):
                setting = Setting(round_trip_ms, acceptance)
                runs[setting] = run_arms(
                    arms.of(acceptance), processes, given.blocks, given.warmups
                )
                measurement.record[str(setting)] = runs[setting]
                print(f"{setting}: done", file=sys.stderr, flush=True)
        if link is not None:
            link.set(None)
        measurement.record["round_trips"] = trips
        finish(measurement, given.name, [table_of(measurement, runs)])


def _references(
    measurement: Measuring, pool: MeasuredPool, unsplit: Mapping[str, Unsplit]
) -> References:
    """Return the answers that are known to be right, each asked by itself."""
    given = measurement.given
    prompts = measurement.prompts(max(given.users))
    ids = measurement.ids(prompts)
    if given.mode == "exact":
        answers = unsplit["stateful"].answers(ids, given.tokens)
        return References(answers, answers)
    guessed = unsplit.get("guessed")
    alone = [] if guessed is None else [guessed.answers([one], given.tokens)[0] for one in ids]
    return References([pool.answers([one], given.tokens)[0] for one in prompts], alone)


def main() -> int:
    """Run the script; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    add_arguments(parser, blocks=3)
    parser.set_defaults(speculate=True)
    parser.add_argument("--acceptances", type=float, nargs="+", default=list(ACCEPTANCES))
    parser.add_argument(
        "--drafts",
        nargs="+",
        default=["3"],
        help=f"of each frame; or {OWN_CHOICE}, for the program's own choice",
    )
    parser.add_argument("--users", type=int, nargs="+", default=list(USERS))
    parser.add_argument("--plain-users", type=int, nargs="+", help="of those, asked plainly")
    parser.add_argument("--guessed-users", type=int, nargs="+", help="of those, asked with drafts")
    parser.add_argument("--no-unsplit-guesses", action="store_true", help="without U2 and U4")
    parser.add_argument("--kind", default="paged", choices=["paged", "stateful"])
    parser.add_argument(
        "--round-trips", type=float, nargs="+", default=[0.0], help="between the nodes, in ms"
    )
    parser.add_argument("--name", default="guessing", help="of the raw data's file")
    parser.set_defaults(jitter_ms=0.0, mbit_per_s=None)  # as ``set_link`` takes them
    given = parser.parse_args()
    if any(given.round_trips):
        enter_own_network()
    return run_script(lambda: measure(given))


if __name__ == "__main__":
    sys.exit(main())

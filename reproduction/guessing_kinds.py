"""Guessing ahead by the program's own drafters, kind of prompt by kind of prompt.

Each prompt is answered once in every setting, one after the other, and in the other order for the
next prompt; so each of them is paired with the plain answer to the same prompt. A prompt is never
guessed twice by a drafter that remembers: it would know the answer. Beside the pool of two, a pool
of one with the whole model, and the plain loop of the unsplit model.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from delay import set_link
from delay_link import BASE_PORT, delay_link, enter_own_network
from measured_guesses import program_guesses
from measured_pool import MeasuredPool, PoolShape
from measuring import UNSPLIT, Measuring, add_arguments, finish, measuring, run_script, shown
from process_usage import UsageMeter
from tables import Table

from engine.messages.control import Generate
from engine.pipeline.chat_text import load_chat_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from comparators import Unsplit
    from measured_guesses import Who
    from process_usage import Usage

HELD_OUT = Path(__file__).parent / "held_out"
PLAIN, SUFFIX, MODEL = "plain", "suffix", "draft model"
SETTINGS = {SUFFIX: "suffix", MODEL: "model"}
SPLIT, WHOLE = "split", "unsplit"
ALL = "all"


@dataclass(frozen=True, slots=True)
class Run:
    """One answer.

    Attributes:
        round_trip_ms: Of the link.
        number: Of the prompt.
        kind: Of the prompt.
        arm: Where it ran and who guessed.
        figures: What was measured.
        usage: What the processes used meanwhile.
    """

    round_trip_ms: float
    number: int
    kind: str
    arm: str
    figures: dict[str, float]
    usage: Usage


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt.

    Attributes:
        kind: Of text that is asked for.
        messages: As a chat template takes them.
        ids: The same, tokenized.
    """

    kind: str
    messages: tuple[dict[str, object], ...]
    ids: list[int]


def prompts_of(measurement: Measuring) -> list[Prompt]:
    """Return the prompts that are asked for, kinds in turn.

    Args:
        measurement: Begun.
    """
    given = measurement.given
    entries = json.loads((HELD_OUT / f"{given.prompts}.json").read_text("utf-8"))
    by_kind: dict[str, list[str]] = defaultdict(list)
    for entry in entries:
        by_kind[entry["kind"]].append(entry["prompt"])
    text = load_chat_text(measurement.model.split)
    now = datetime.now().astimezone()

    def made(kind: str, prompt: str) -> Prompt:
        messages: tuple[dict[str, object], ...] = ({"role": "user", "content": prompt},)
        asked = Generate(request_id="measured", messages=messages)
        return Prompt(kind, messages, text.prompt_ids(asked, now))

    return [
        made(kind, prompts[number])
        for number in range(given.first, given.first + given.per_kind)
        for kind, prompts in by_kind.items()
        if number < len(prompts)
    ]


class Askers:
    """What can answer a prompt, plainly and with guesses."""

    def __init__(self, measurement: Measuring, unsplit: Unsplit) -> None:
        """Begin with the unsplit model alone.

        Args:
            measurement: Begun.
            unsplit: Its plain loop.
        """
        self._given = measurement.given
        self._unsplit = unsplit
        self._pools: dict[str, MeasuredPool] = {}

    def add(self, name: str, pool: MeasuredPool) -> None:
        """Take a pool whose nodes guess as they are told.

        Args:
            name: Of the arm.
            pool: Open.
        """
        self._pools[name] = pool

    def arms(self, *, with_whole: bool) -> list[str]:
        """Return the arms there are.

        Args:
            with_whole: Whether what no link reaches is among them.
        """
        pools = [name for name in self._pools if with_whole or name == SPLIT]
        arms = [f"{name}, {who}" for name in pools for who in self._given.settings]
        return [UNSPLIT, *arms] if with_whole else arms

    def measure(self, arm: str, prompt: Prompt) -> dict[str, float]:
        """Answer a prompt.

        Args:
            arm: Which of them.
            prompt: It.
        """
        tokens = self._given.tokens
        if arm == UNSPLIT:
            return self._unsplit.measure([prompt.ids], tokens)
        name, _, who = arm.partition(", ")
        pool = self._pools[name]
        if who == PLAIN:
            return pool.measure([prompt.messages], tokens)[0]
        setting: Who = SETTINGS[who]  # type: ignore[assignment]
        pool.guess_by(replace(program_guesses(setting), num_drafts=self._given.drafts))
        return pool.measure([prompt.messages], tokens, is_guessed=True)[0]

    @property
    def processes(self) -> dict[str, int]:
        """Every process that computes, by name."""
        named = {
            f"{n} {p}": i for n, pool in self._pools.items() for p, i in pool.processes.items()
        }
        return named | self._unsplit.processes


def runs_of(
    askers: Askers, prompts: Sequence[Prompt], arms: Sequence[str], round_trip_ms: float
) -> Iterator[Run]:
    """Answer every prompt in every arm, in the other order for every other prompt of a kind.

    Args:
        askers: Open.
        prompts: Kinds in turn.
        arms: Which.
        round_trip_ms: Of the link, as it is set.

    Yields:
        What each answer took.
    """
    num_of: dict[str, int] = defaultdict(int)
    for number, prompt in enumerate(prompts):
        num_of[prompt.kind] += 1
        for arm in arms if num_of[prompt.kind] % 2 else reversed(arms):
            meter = UsageMeter(askers.processes)
            figures = askers.measure(arm, prompt)
            yield Run(round_trip_ms, number, prompt.kind, arm, figures, meter.stop())


def table_of(title: str, runs: Sequence[Run], max_disturbed: float) -> Table:
    """Return what was found, kind by kind and of all together.

    Args:
        title: Of the table.
        runs: All of them.
        max_disturbed: Share of a run's time without a core that is let pass.
    """
    cells: dict[tuple[float, str, str], dict[int, Run]] = defaultdict(dict)
    for run in runs:
        for kind in (run.kind, ALL):
            cells[run.round_trip_ms, kind, run.arm][run.number] = run
    rows = []
    for (round_trip_ms, kind, arm), mine in sorted(cells.items(), key=_place):
        name = arm.partition(", ")[0]
        plain = {} if arm == UNSPLIT else cells[round_trip_ms, kind, f"{name}, {PLAIN}"]
        drafted = sum(run.figures.get("drafted", 0.0) for run in mine.values())
        accepted = sum(run.figures.get("accepted", 0.0) for run in mine.values())
        rates = sorted(run.figures["tokens_per_s"] for run in mine.values())
        rows.append((
            f"{round_trip_ms:g}",
            kind,
            arm,
            shown(statistics.median(rates)),
            ratios_text(mine, plain, max_disturbed),
            ratios_text(mine, cells.get((0.0, kind, UNSPLIT), {}), max_disturbed),
            f"{accepted / drafted:.2f}" if drafted else "",
            shown(_tokens_per_pass(mine, accepted), 2) if drafted else "",
        ))
    return Table(
        title=title,
        columns=(
            "round trip ms",
            "kind",
            "arm",
            "tokens/s",
            "ratio to plain (range; pairs)",
            "ratio to U1",
            "accepted of drafted",
            "tokens per verification",
        ),
        rows=tuple(rows),
    )


def _place(cell: tuple[tuple[float, str, str], object]) -> tuple[float, bool]:
    round_trip_ms, kind, _ = cell[0]
    return round_trip_ms, kind == ALL  # each kind by itself first


def _tokens_per_pass(runs: Mapping[int, Run], accepted: float) -> float:
    """Return the tokens of an answer for each that was drawn and not guessed."""
    tokens = sum(run.figures["num_tokens"] for run in runs.values())
    return tokens / max(tokens - accepted, 1.0)


def ratios_text(mine: Mapping[int, Run], others: Mapping[int, Run], max_disturbed: float) -> str:
    """Return the median of the ratios of answers to the same prompts, or that there is none.

    Args:
        mine: By prompt.
        others: By prompt.
        max_disturbed: Share of a run's time without a core that is let pass.
    """
    pairs = [(mine[number], others[number]) for number in mine if number in others]
    ratios = [
        one.figures["tokens_per_s"] / other.figures["tokens_per_s"]
        for one, other in pairs
        if not one.usage.is_disturbed(max_disturbed) and not other.usage.is_disturbed(max_disturbed)
    ]
    if not ratios:
        return "disturbed" if pairs else ""
    median, least, most = statistics.median(ratios), min(ratios), max(ratios)
    return f"{median:.2f} ({least:.2f} to {most:.2f}; {len(ratios)})"


def measure(given: argparse.Namespace) -> None:
    """Measure what the command line asks for.

    Args:
        given: The command line.
    """
    if given.quick:
        given.per_kind = 1
    with ExitStack() as stack:
        measurement = stack.enter_context(measuring(given))
        prompts = prompts_of(measurement)
        ports = [BASE_PORT, BASE_PORT + 1]
        link = stack.enter_context(delay_link(ports)) if any(given.round_trips) else None
        askers = Askers(measurement, measurement.unsplit())
        shape = PoolShape(mode=given.mode, is_guessed=True, has_draft_model=MODEL in given.settings)
        far = replace(shape, base_port=0 if link is None else BASE_PORT)
        model = measurement.model
        askers.add(SPLIT, stack.enter_context(MeasuredPool(model.split, far)))
        if given.whole:
            askers.add(WHOLE, stack.enter_context(MeasuredPool(model.whole, shape)))
        for arm in askers.arms(with_whole=True):  # of a prompt that is none of those measured
            askers.measure(arm, replace(prompts[0], messages=({"role": "user", "content": "Hi"},)))
        runs: list[Run] = []
        trips = {}
        for round_trip_ms in sorted(given.round_trips):
            if link is not None:
                trips[round_trip_ms] = set_link(link, round_trip_ms, given)
            arms = askers.arms(with_whole=not round_trip_ms)
            # A drafter that remembers gets other prompts for every link.
            count = len(prompts) // len(given.round_trips)
            begin = sorted(given.round_trips).index(round_trip_ms) * count
            runs += runs_of(askers, prompts[begin : begin + count], arms, round_trip_ms)
            print(f"round trip {round_trip_ms:g} ms: done", file=sys.stderr, flush=True)
        if link is not None:
            link.set(None)
        measurement.record |= {"runs": list(map(asdict, runs)), "round_trips": trips}
        drafts = "own choice of" if given.drafts is None else f"{given.drafts}"
        title = f"Guessing ahead by kind, {model.name}, {given.mode}, {given.tokens} tokens, "
        finish(
            measurement,
            "guessing-kinds",
            [table_of(f"{title}{drafts} drafts", runs, given.max_disturbed)],
        )


def main() -> int:
    """Run the script; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    add_arguments(parser, tokens=64, blocks=1)
    parser.set_defaults(model="embedded", speculate=True, jitter_ms=0.0, mbit_per_s=None)
    parser.add_argument("--prompts", default="answers", choices=["answers", "tasks"])
    parser.add_argument("--per-kind", type=int, default=4, help="prompts of each kind, all links")
    parser.add_argument("--first", type=int, default=0, help="number of the first one of each kind")
    parser.add_argument(
        "--settings", nargs="+", default=[PLAIN, SUFFIX], choices=[PLAIN, *SETTINGS]
    )
    parser.add_argument(
        "--drafts", type=int, help="of each frame; the program's choice if left out"
    )
    parser.add_argument("--whole", action="store_true", help="a pool of one beside it")
    parser.add_argument("--round-trips", type=float, nargs="+", default=[0.0], help="in ms")
    given = parser.parse_args()
    if any(given.round_trips):
        enter_own_network()
    return run_script(lambda: measure(given))


if __name__ == "__main__":
    sys.exit(main())

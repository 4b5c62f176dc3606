"""What every script over a pool begins and ends with: options, a quiet machine, results."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from answer_figures import Answer, equality_figures
from comparators import Unsplit
from machine import MachineBusyError, alone, refuse_when_busy
from measured_model import MeasuredModel, add_model_arguments, prepared
from measured_pool import MeasuredPool, PoolShape
from pipeline_simulator import Pipeline, User, simulate
from prompts import prompt_of
from protocol import (
    Repetition,
    TooDisturbedError,
    add_protocol_arguments,
    paired_ratio,
    write_results,
)
from svg_plot import svg
from tables import Table, markdown, svg_name

from engine.errors import DaisyError
from engine.pipeline.chat_text import load_chat_text

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence

    from stage_costs import StageCosts

    from engine.models.tokenizer import Tokenizer

TOKENS = 256
PROMPT_TOKENS = 32
QUICK_TOKENS = 24
WARM_TOKENS = 4  # four-bit weights are repacked at the first pass, which takes seconds
LOOPBACK_MS = 0.1  # of one hop: two processes are woken
UNSPLIT = "U1"
U1_PROCESS = "unsplit stateful"


def add_arguments(parser: argparse.ArgumentParser, *, tokens: int = TOKENS, blocks: int) -> None:
    """Add the options every script over a pool has.

    Args:
        parser: The script's.
        tokens: Of each answer.
        blocks: Of A B B A, unless others are asked for.
    """
    add_model_arguments(parser)
    parser.add_argument("--tokens", type=int, default=tokens, help="of each answer")
    parser.add_argument("--mode", choices=["fast", "exact"], default="fast")
    parser.add_argument("--quick", action="store_true", help="about a minute; shows that it works")
    add_protocol_arguments(parser)
    parser.set_defaults(blocks=blocks, warmups=1, speculate=False)


@dataclass(slots=True)
class Measuring:
    """One measurement, begun.

    Attributes:
        given: The command line.
        load: The machine's, when it began.
        model: What is measured.
        tokenizer: Its own.
        record: What will be kept.
    """

    given: argparse.Namespace
    load: float
    model: MeasuredModel
    tokenizer: Tokenizer
    stack: ExitStack
    record: dict[str, object] = field(default_factory=dict)

    def pool(
        self, kind: str, max_users: int, base_port: int = 0, *, reuses_prefixes: bool = False
    ) -> MeasuredPool:
        """Open a pool; it ends with the measurement.

        Args:
            kind: Paged or stateful.
            max_users: At once.
            base_port: Of the first node; 0 lets the system choose.
            reuses_prefixes: Whether prompts may begin with what is kept of others.
        """
        shape = PoolShape(
            kind=kind,  # type: ignore[arg-type]
            mode=self.given.mode,
            max_users=max_users,
            base_port=base_port,
            reuses_prefixes=reuses_prefixes,
        )
        pool = self.stack.enter_context(MeasuredPool(self.model.split, shape))
        pool.answers(self.prompts(1), WARM_TOKENS)
        return pool

    def unsplit(self, kind: str = "stateful", core: int = 0) -> Unsplit:
        """Load the unsplit model; it ends with the measurement.

        Args:
            kind: ``stateful``, ``batched``, or ``guessed`` for batched with a drafter.
            core: Where it runs.
        """
        path = self.model.xml if kind == "stateful" else self.model.whole.path
        unsplit = Unsplit(kind, path, self.given.mode, core)
        self.stack.callback(unsplit.close)
        unsplit.answers(self.ids(self.prompts(1)), WARM_TOKENS)
        return unsplit

    def prompts(self, num_users: int, num_tokens: int = PROMPT_TOKENS, first: int = 0) -> list[str]:
        """Return a prompt for each user.

        Args:
            num_users: How many.
            num_tokens: Of each.
            first: Number of the first one; another gives others.
        """
        return [prompt_of(self.tokenizer, num_tokens, first + n) for n in range(num_users)]

    def ids(self, prompts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of prompts.

        Args:
            prompts: As texts.
        """
        return [self.tokenizer.encode(text, add_special_tokens=True) for text in prompts]


@contextmanager
def measuring(given: argparse.Namespace) -> Iterator[Measuring]:
    """Refuse a busy machine, keep others out, and prepare the model.

    Args:
        given: The command line.

    Yields:
        The measurement; what it opens is closed at its end.

    Raises:
        MachineBusyError: The machine is busy, or measures already.
    """
    if given.quick:
        given.blocks, given.warmups = 1, 0
        given.tokens = min(given.tokens, QUICK_TOKENS)
    load = refuse_when_busy(given.max_load, given.force)
    with alone(), ExitStack() as stack:
        model = prepared(
            given.model, given.models, given.cut, given.mode, speculate=given.speculate
        )
        tokenizer = load_chat_text(model.split).tokenizer
        yield Measuring(given, load, model, tokenizer, stack)


def split_arm(
    pool: MeasuredPool,
    prompts: Sequence[str],
    num_tokens: int,
    references: Sequence[Answer],
) -> Callable[[], dict[str, float]]:
    """Return what measures a pool once, and compares its tokens with the unsplit model's.

    Args:
        pool: Open.
        prompts: One for each user.
        num_tokens: Of each answer.
        references: Of the unsplit model, in the same order; there may be more of them.
    """

    def run() -> dict[str, float]:
        figures, answers = pool.measure(prompts, num_tokens)
        ids = [answer.token_ids for answer in answers]
        return figures | equality_figures(ids, [r.token_ids for r in references[: len(ids)]])

    return run


def ratio_text(
    repetitions: Sequence[Repetition], figure: str, arm: str, reference: str, max_disturbed: float
) -> str:
    """Return a paired ratio as it is shown, or that there is none.

    Args:
        repetitions: Of both arms.
        figure: Which.
        arm: Divided.
        reference: By this.
        max_disturbed: As ``paired_ratio`` takes it.
    """
    try:
        ratio = paired_ratio(repetitions, figure, arm, reference, max_disturbed)
    except TooDisturbedError:
        return "disturbed"
    return f"{ratio.median:.2f} ({ratio.smallest:.2f} to {ratio.largest:.2f}; {ratio.num_pairs})"


def median_of(repetitions: Sequence[Repetition], arm: str, figure: str) -> float | None:
    """Return the median of a figure over an arm's runs; None where it was never taken.

    Args:
        repetitions: Of all arms.
        arm: Whose.
        figure: Which.
    """
    seen = sorted(
        r.figures[figure] for r in repetitions if r.slot.arm == arm and figure in r.figures
    )
    return seen[len(seen) // 2] if seen else None


def shown(value: float | None, digits: int = 1) -> str:
    """Return a figure as a table shows it.

    Args:
        value: None shows as nothing.
        digits: Behind the point.
    """
    return "" if value is None else f"{value:.{digits}f}"


@dataclass(frozen=True, slots=True)
class SeenCosts:
    """What one user's tokens took of each core, for the simulator.

    Attributes:
        stage_ms: CPU time of each stage process for one token.
        node_ms: CPU time of each node process for one token.
    """

    stage_ms: tuple[float, ...]
    node_ms: tuple[float, ...]

    def pipeline(
        self, costs: Sequence[StageCosts], hop_ms: float, num_in_flight: int | None = None
    ) -> Pipeline:
        """Return the pipeline these make, with the row costs that were measured alone.

        Args:
            costs: Of each stage.
            hop_ms: Of each hop.
            num_in_flight: Micro-batches; None for as many as stages.
        """
        stages = [
            _cost(cost, stage_ms, node_ms)
            for cost, stage_ms, node_ms in zip(costs, self.stage_ms, self.node_ms, strict=True)
        ]
        return Pipeline(tuple(stages), hop_ms, hop_ms, num_in_flight)


def _cost(costs: StageCosts, stage_ms: float, node_ms: float) -> Callable[[int, int], float]:
    one_ms = costs.ms(1, 1)

    def cost(num_sequences: int, num_rows: int) -> float:
        return stage_ms * costs.ms(num_sequences, num_rows) / one_ms + node_ms

    return cost


def seen_costs(
    repetitions: Sequence[Repetition], arm: str, model: MeasuredModel, num_tokens: int
) -> SeenCosts:
    """Return what one user's tokens took, the prompt's share left out.

    Args:
        repetitions: With the arm in which one user was answered; its processes are called
            ``node N`` and ``stage N``.
        arm: That.
        model: Its costs say how many tokens the prompt is worth.
        num_tokens: Of the answer.
    """
    own = [r.usage.cpu_s for r in repetitions if r.slot.arm == arm]
    numbers = range(len(model.costs))
    prompt_tokens = [costs.ms(1, PROMPT_TOKENS) / costs.ms(1, 1) for costs in model.costs]

    def median_ms(name: str, num: float) -> float:
        return 1e3 * sorted(cpu_s[name] for cpu_s in own)[len(own) // 2] / num

    return SeenCosts(
        tuple(median_ms(f"stage {n}", num_tokens + prompt_tokens[n]) for n in numbers),
        tuple(median_ms(f"node {n}", num_tokens) for n in numbers),
    )


def simulated_tokens_per_s(pipeline: Pipeline, num_users: int, num_tokens: int) -> float:
    """Return the simulator's throughput of users who are answered at once.

    Args:
        pipeline: As it was seen.
        num_users: At once.
        num_tokens: Of each answer.
    """
    users = [User(num_tokens)] * num_users
    return simulate(pipeline, users, Random(0)).tokens_per_s


def finish(measurement: Measuring, name: str, tables: Sequence[Table]) -> None:
    """Print the tables, and keep them, their plots and the raw data.

    Args:
        measurement: Whose record is kept.
        name: Of the script.
        tables: In order.
    """
    record = {
        "load": measurement.load,
        "model": measurement.model.name,
        "layers": [str(s.layers) for s in measurement.model.split.manifest.shards],
        "mode": measurement.given.mode,
        "costs": measurement.model.costs,
        "tables": tables,
        **measurement.record,
    }
    path = write_results(measurement.given.results, name, record)
    for number, table in enumerate(tables):
        print(f"\n{markdown(table)}")
        if table.plot is not None:
            plot = path.with_name(svg_name(path, number))
            plot.write_text(svg(table), "utf-8")
            print(f"plot: {os.path.relpath(plot)}")
    print(f"\nraw data: {os.path.relpath(path)}")


def run_script(measure: Callable[[], None]) -> int:
    """Run a script; return its exit status, with what failed on standard error.

    Args:
        measure: The script.
    """
    try:
        measure()
    except DaisyError as error:
        print(f"{error.what}\n{error.advice}", file=sys.stderr)
        return error.exit_code
    except MachineBusyError as error:
        print(error, file=sys.stderr)
        return 1
    return 0

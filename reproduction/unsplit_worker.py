"""The unsplit model on one core, asked by lines of JSON: prompts in, timed answers out.

*stateful* is a plain OpenVINO loop, one answer after the other. *batched* is one paged stage that
holds every layer, driven by the pool's own scheduler in this one process: the same kernels and the
same batches as the pool's, without a node, a pipe, a link or text around it. That makes it the
hardest fair comparison: what a pool loses against it, it loses to being a pool.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from answer_figures import Answer
from measured_guesses import Guesses, read_guesses
from stage_costs import load_here

from engine.domain import SampledTokens, SequenceId
from engine.messages.chain import OpenSequence
from engine.models.unsplit import UnsplitModel
from engine.pipeline.shard_folder import open_shard_folder
from engine.sampling.parameters import SamplingParameters
from engine.scheduler.limits import SchedulerLimits
from engine.scheduler.request import Sequence
from engine.scheduler.scheduler import Scheduler
from engine.scheduler.speculation import Speculation
from engine.stages.token_history import TokenHistory

if TYPE_CHECKING:
    from collections.abc import Sequence as OrderedItems

    from oracle_drafter import OracleDrafter

    from engine.domain import MicroBatch

MAX_USERS = 16
MAX_TOKENS = 4096 * MAX_USERS
BLOCK_TOKENS = 32
_EPOCH = 1


class Answerer(Protocol):
    """Whatever gives answers."""

    def answers(
        self, prompts: OrderedItems[list[int]], num_tokens: int, guesses: Guesses | None = None
    ) -> list[Answer]:
        """Answer each prompt with so many tokens, greedily, past any end."""
        ...


class OneByOne:
    """The plain loop."""

    def __init__(self, xml: Path, mode: str) -> None:
        """Load the model.

        Args:
            xml: Its IR.
            mode: Fast or exact.
        """
        self._model = UnsplitModel(xml, mode, 1)  # type: ignore[arg-type]

    def answers(
        self, prompts: OrderedItems[list[int]], num_tokens: int, _: Guesses | None = None
    ) -> list[Answer]:
        """Answer one after the other, without guesses; see ``Answerer``."""
        return [self._answer(prompt, num_tokens) for prompt in prompts]

    def _answer(self, prompt: list[int], num_tokens: int) -> Answer:
        asked_s = time.perf_counter()
        run = self._model.generate(prompt, num_tokens)
        # The loop is too plain to look at the clock at each token; its steps are alike.
        first_s = asked_s + run.ttft_s
        step_s = 1 / run.tokens_per_s if run.tokens_per_s else 0.0
        times_s = [first_s + number * step_s for number in range(num_tokens)]
        return Answer(asked_s, times_s, run.tokens)


class Batched:
    """One stage with every layer, and the scheduler."""

    def __init__(self, shards: Path, mode: str, *, speculate: bool) -> None:
        """Load the model.

        Args:
            shards: One shard.
            mode: Fast or exact.
            speculate: Whether guesses may come.
        """
        self._stage = load_here(
            open_shard_folder(shards), 0, mode=mode, sequences=MAX_USERS, speculate=speculate
        )
        self._history = TokenHistory()

    def answers(
        self, prompts: OrderedItems[list[int]], num_tokens: int, guesses: Guesses | None = None
    ) -> list[Answer]:
        """Answer all at once; see ``Answerer``."""
        limits = SchedulerLimits(
            max_tokens=MAX_TOKENS,
            block_tokens=BLOCK_TOKENS,
            max_sequences=MAX_USERS,
            vocab_size=self._stage.description.vocab_size,
        )
        drafter = None if guesses is None else guesses.drafter()
        # One stage computes one frame after the other: there is nothing to send ahead.
        speculation = None if guesses is None else Speculation(guesses.lengths(), max_frames=1)
        scheduler = Scheduler(limits, _EPOCH, speculation)
        asked_s = time.perf_counter()
        answers = {SequenceId(number): Answer(asked_s) for number in range(len(prompts))}
        for sequence_id, prompt in zip(answers, prompts, strict=True):
            self._history.open(
                OpenSequence(
                    epoch=_EPOCH,
                    sequence_id=sequence_id,
                    num_prompt_tokens=len(prompt),
                    sampling=SamplingParameters(),
                )
            )
            scheduler.add(Sequence(sequence_id, prompt, num_tokens))
        while (batch := _next_batch(scheduler, drafter)) is not None:
            drawn = self._history.draw(batch, self._stage.run(batch))
            now_s = time.perf_counter()
            for sequence_id, ids in scheduler.apply(SampledTokens(batch.batch_id, _EPOCH, drawn)):
                answers[sequence_id].take(now_s, ids)
        for sequence_id in answers:
            self._stage.release(sequence_id)
            self._history.close(sequence_id)
        return list(answers.values())


def _next_batch(scheduler: Scheduler, drafter: OracleDrafter | None) -> MicroBatch | None:
    """Have guessed what is wanted, and return the next batch."""
    if drafter is not None:
        requests = scheduler.drafts.wanted()
        for request, ids in zip(requests, map(drafter.guess, requests), strict=True):
            scheduler.drafts.offer(request.sequence_id, len(request.token_ids), ids)
    return scheduler.next_micro_batch()


def main(arguments: list[str]) -> int:
    """Serve until standard input ends.

    Args:
        arguments: ``stateful``, ``batched`` or ``guessed``, fast or exact, the IR or the one
            shard's folder, and the number of the core.

    Returns:
        The exit status.
    """
    kind, mode, path, core = arguments
    os.sched_setaffinity(0, {int(core)})
    model: Answerer = (
        OneByOne(Path(path), mode)
        if kind == "stateful"
        else Batched(Path(path), mode, speculate=kind == "guessed")
    )
    print("[]", flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        guesses = asked.get("guesses")
        known = None if guesses is None else read_guesses(Path(guesses))
        answers = model.answers(asked["prompts"], asked["num_tokens"], known)
        print(json.dumps([asdict(answer) for answer in answers]), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

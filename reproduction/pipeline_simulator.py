"""A discrete-event simulation of the pipeline: what a run takes if nothing is in the way; pure.

Micro-batches queue at the stages in the order in which they come, as frames do. The head forms
them as ``engine.scheduler`` does: sequences served longest ago first, divided into as many
micro-batches as there are stages, prompts in chunks that follow each other. What a stage costs is
measured (``stage_costs``); what a link and a node take is given.
*Synchronous* means that a sequence waits for its frame; *continuous* that frames extend the chain
that is in flight, and that those behind a wrong draft are dropped at the door of each stage that
knows of it: the last one at once, the first one with the head.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    Cost = Callable[[int, int], float]  # milliseconds, by the number of sequences and rows of each

CHUNK_TOKENS = 256


@dataclass(frozen=True, slots=True)
class Pipeline:
    """What micro-batches pass through.

    Attributes:
        costs: Of each stage, its node's own work on the same core included.
        hop_ms: From the end of one stage to the queue of the next.
        return_ms: From the end of the last stage to the head.
        num_in_flight: Micro-batches at once; None for as many as stages.
        max_groups: Micro-batches the users are divided among; None for as many as are in flight.
        chunk_tokens: Of a prompt at once; the same all the time, as for a prompt alone.
    """

    costs: tuple[Cost, ...]
    hop_ms: float = 0.0
    return_ms: float = 0.0
    num_in_flight: int | None = None
    max_groups: int | None = None
    chunk_tokens: int = CHUNK_TOKENS

    @property
    def num_batches(self) -> int:
        """Micro-batches that may be under way at once."""
        return len(self.costs) if self.num_in_flight is None else self.num_in_flight

    @property
    def num_groups(self) -> int:
        """Micro-batches the running sequences are divided among."""
        if len(self.costs) == 1:
            return 1
        return self.num_batches if self.max_groups is None else self.max_groups


@dataclass(frozen=True, slots=True)
class Speculation:
    """How drafts are verified.

    Attributes:
        rows: Of a frame; synchronous, one more than there are drafts.
        acceptance: Chance of each draft.
        draft_ms: For each draft.
        num_frames: Of one sequence in flight; 1 is synchronous.
    """

    rows: int
    acceptance: float
    draft_ms: float = 0.0
    num_frames: int = 1


PLAIN = Speculation(rows=1, acceptance=0.0)


@dataclass(frozen=True, slots=True)
class User:
    """Who asks.

    Attributes:
        answer_tokens: Wanted.
        prompt_tokens: To be read first; 0 for none, so that only decoding is seen.
        start_ms: When.
    """

    answer_tokens: int
    prompt_tokens: int = 0
    start_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Simulated:
    """What came of it.

    Attributes:
        token_times_ms: Of each user, ascending.
        busy: Share of the time each stage computed.
        num_batches: That were sent.
    """

    token_times_ms: tuple[tuple[float, ...], ...]
    busy: tuple[float, ...]
    num_batches: int

    @property
    def tokens_per_s(self) -> float:
        """Over the time in which every user was being answered."""
        begin = max(times[0] for times in self.token_times_ms)
        end = min(times[-1] for times in self.token_times_ms)
        num = sum(begin < t <= end for times in self.token_times_ms for t in times)
        return 1e3 * num / (end - begin)


@dataclass(eq=False, slots=True)
class _Running:
    user: User
    prompt_left: int
    num_steps: int = 0  # in flight, of the present chain
    chain: int = 0  # counts wrong drafts as the head knows them
    chain_at_tail: int = 0
    times: list[float] = field(default_factory=list)

    @property
    def is_done(self) -> bool:
        return len(self.times) >= self.user.answer_tokens


@dataclass(frozen=True, slots=True)
class _Step:
    running: _Running
    rows: int
    chain: int
    is_chunk: bool
    is_silent: bool  # a chunk that is not the prompt's last


@dataclass(slots=True)
class _Batch:
    steps: list[_Step]
    drawn: list[tuple[_Step, int, bool]] = field(default_factory=list)


class _Simulation:
    def __init__(
        self, pipeline: Pipeline, users: Sequence[User], speculation: Speculation, random: Random
    ) -> None:
        self._pipeline = pipeline
        self._speculation = speculation
        self._random = random
        self._all = [_Running(user, user.prompt_tokens) for user in users]
        self._served: list[_Running] = []  # longest ago first
        self._queues: list[deque[_Batch]] = [deque() for _ in pipeline.costs]
        self._is_busy = [False] * len(pipeline.costs)
        self._busy_ms = [0.0] * len(pipeline.costs)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._num_events = self._num_batches = self._num_in_flight = 0
        self._now_ms = 0.0

    def run(self) -> Simulated:
        for running in self._all:
            self._at(running.user.start_ms, lambda r=running: self._begin(r))
        while self._events:
            self._now_ms, _, happen = heapq.heappop(self._events)
            happen()
        times = tuple(tuple(r.times[: r.user.answer_tokens]) for r in self._all)
        busy = tuple(ms / self._now_ms for ms in self._busy_ms)
        return Simulated(times, busy, self._num_batches)

    def _at(self, time_ms: float, happen: Callable[[], None]) -> None:
        self._num_events += 1  # what was put first happens first
        heapq.heappush(self._events, (time_ms, self._num_events, happen))

    def _begin(self, running: _Running) -> None:
        self._served.append(running)
        self._fill()

    # ---- the head -------------------------------------------------------------------------------

    def _fill(self) -> None:
        while self._num_in_flight < self._pipeline.num_batches and (steps := self._next_steps()):
            self._num_in_flight += 1
            self._num_batches += 1
            num_drafts = sum(step.rows - 1 for step in steps if not step.is_chunk)
            ready_ms = self._now_ms + num_drafts * self._speculation.draft_ms
            batch = _Batch(steps)
            self._at(ready_ms, lambda b=batch: self._arrive(0, b))

    def _next_steps(self) -> list[_Step]:
        most = -(-len(self._served) // self._pipeline.num_groups)
        ready = [running for running in self._served if self._is_ready(running)][:most]
        for running in ready:
            self._served.remove(running)
            self._served.append(running)
        return [self._step_of(running) for running in ready]

    def _is_ready(self, running: _Running) -> bool:
        if running.prompt_left:
            return running.num_steps < len(self._pipeline.costs)
        has_begun = bool(running.times) or not running.user.prompt_tokens
        return running.num_steps < (self._speculation.num_frames if has_begun else 1)

    def _step_of(self, running: _Running) -> _Step:
        running.num_steps += 1
        if running.prompt_left:
            rows = min(self._pipeline.chunk_tokens, running.prompt_left)
            running.prompt_left -= rows
            return _Step(running, rows, running.chain, True, running.prompt_left > 0)
        return _Step(running, self._speculation.rows, running.chain, False, False)

    def _return(self, batch: _Batch) -> None:
        self._num_in_flight -= 1
        for step, num_tokens, was_wrong in batch.drawn:
            running = step.running
            if step.chain != running.chain:
                continue
            running.num_steps -= 1
            running.times += [self._now_ms] * num_tokens
            if was_wrong:
                running.chain += 1
                running.num_steps = 0
            if running.is_done and running in self._served:
                self._served.remove(running)
        self._fill()

    # ---- the stages -----------------------------------------------------------------------------

    def _arrive(self, stage: int, batch: _Batch) -> None:
        self._queues[stage].append(batch)
        self._compute_next(stage)

    def _compute_next(self, stage: int) -> None:
        if self._is_busy[stage] or not self._queues[stage]:
            return
        batch = self._queues[stage].popleft()
        batch.steps = [step for step in batch.steps if not self._is_stale(stage, step)]
        took_ms = self._cost(stage, batch.steps)
        self._is_busy[stage] = True
        self._busy_ms[stage] += took_ms
        self._at(self._now_ms + took_ms, lambda: self._computed(stage, batch))

    def _is_stale(self, stage: int, step: _Step) -> bool:
        is_tail = stage == len(self._pipeline.costs) - 1
        running = step.running
        return running.is_done or step.chain != (
            running.chain_at_tail if is_tail else running.chain
        )

    def _cost(self, stage: int, steps: Sequence[_Step]) -> float:
        if not steps:
            return 0.0
        cost = self._pipeline.costs[stage]
        if any(step.is_chunk for step in steps):
            return cost(1, sum(step.rows for step in steps))
        return cost(len(steps), max(step.rows for step in steps))

    def _computed(self, stage: int, batch: _Batch) -> None:
        self._is_busy[stage] = False
        if stage < len(self._pipeline.costs) - 1:
            hop_ms = self._pipeline.hop_ms
            self._at(self._now_ms + hop_ms, lambda: self._arrive(stage + 1, batch))
        else:
            batch.drawn = [(step, *self._drawn(step)) for step in batch.steps]
            self._at(self._now_ms + self._pipeline.return_ms, lambda: self._return(batch))
        self._compute_next(stage)

    def _drawn(self, step: _Step) -> tuple[int, bool]:
        """Return how many tokens a step gives, and whether a draft in it or behind it was wrong."""
        if step.is_chunk:
            return (0 if step.is_silent else 1), False
        if self._speculation is PLAIN:
            return 1, False
        for number in range(1, step.rows + 1):
            if self._random.random() >= self._speculation.acceptance:
                step.running.chain_at_tail += 1
                return number, True
        return step.rows, False


def simulate(
    pipeline: Pipeline,
    users: Sequence[User],
    random: Random,
    speculation: Speculation = PLAIN,
) -> Simulated:
    """Run the pipeline until every user has the answer.

    Args:
        pipeline: Stages and links.
        users: Who asks.
        random: Draws which drafts are right.
        speculation: How drafts are verified; plain decoding when left out.
    """
    return _Simulation(pipeline, users, speculation, random).run()

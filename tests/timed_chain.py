"""A scheduler before stages that take as long as was measured; time is a number."""

import heapq
from collections import defaultdict
from itertools import count
from typing import NamedTuple

from engine.domain import SampledRow, SampledTokens, SequenceId
from engine.scheduler.limits import SchedulerLimits
from engine.scheduler.request import Sequence
from engine.scheduler.scheduler import Scheduler


class Pass(NamedTuple):
    """Rows of a micro-batch, and those of prompts among them."""

    num_rows: int
    num_prompt_rows: int


class TimedChain:
    """Stages that are alike; frames keep their order, and each waits until a stage is free.

    Attributes:
        token_times_s: Of each sequence, by its number.
        passes: What was sent, in order.
    """

    def __init__(self, num_stages, costs, link_s=0.0, **limits):
        """Begin at 0 s.

        Args:
            num_stages: Of the chain.
            costs: What the stages take; the scheduler knows, unless ``limits`` say otherwise.
            link_s: From a stage to the next one, and from the last one to the head.
            limits: Others than usual.
        """
        self.scheduler = Scheduler(
            SchedulerLimits(**{
                "max_tokens": 1 << 20,
                "block_tokens": 32,
                "max_sequences": 16,
                "num_stages": num_stages,
                "max_chunks_in_flight": num_stages,
                "row_costs": costs,
                **limits,
            }),
            epoch=1,
        )
        self._costs = costs
        self._link_s = link_s
        self._free_s = [0.0] * num_stages
        self._events = []
        self._num_events = count()
        self._num_asked = 0
        self.now_s = 0.0
        self.token_times_s = defaultdict(list)
        self.passes = []

    def ask(self, num_prompt_tokens, num_tokens):
        """Ask now; return the number of the sequence."""
        self._num_asked += 1
        prompt = range(num_prompt_tokens)
        self.scheduler.add(Sequence(SequenceId(self._num_asked), prompt, num_tokens))
        return self._num_asked

    def run_until(self, is_enough=lambda: False):
        """Let time pass until enough has happened, or nothing is left to do."""
        while not is_enough():
            while (batch := self.scheduler.next_micro_batch()) is not None:
                self._send(batch)
            if not self._events:
                return
            self.now_s, _, answer = heapq.heappop(self._events)
            for sequence_id, _ in self.scheduler.apply(answer):
                self.token_times_s[sequence_id].append(self.now_s)

    def _send(self, batch):
        num_prompt = sum(s.num_tokens for s in batch.steps if s.num_tokens != s.num_logits)
        self.passes.append(Pass(batch.num_tokens, num_prompt))
        pass_s = self._costs.cost(batch.num_tokens) * self._costs.one_row_s
        at_s = self.now_s
        for stage, free_s in enumerate(self._free_s):
            at_s = self._free_s[stage] = max(at_s + self._link_s * (stage > 0), free_s) + pass_s
        rows = tuple(
            SampledRow(step.sequence_id, step.past_len + step.num_tokens, (9,))
            for step in batch.steps
            if step.num_logits
        )
        answer = SampledTokens(batch.batch_id, 1, rows)
        heapq.heappush(self._events, (at_s + self._link_s, next(self._num_events), answer))

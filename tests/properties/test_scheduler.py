"""A scheduler, a chain that keeps order, and everything that can happen to both.

The model of the chain holds real caches: for each sequence the token ids it has computed, in
blocks that are counted. It follows the stage protocol to the letter, so whatever the scheduler
sends out of order, twice, too early or without room is seen there.
"""

from collections import deque

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from engine.domain import SampledRow, SampledTokens, SequenceId
from engine.scheduler.limits import SchedulerLimits
from engine.scheduler.request import Sequence, SequenceState
from engine.scheduler.scheduler import Scheduler

MAX_TOKENS = 96
BLOCK_TOKENS = 8
ENDS = {SequenceState.FINISHED, SequenceState.CANCELLED, SequenceState.FAILED}


def next_token(token_ids):
    """Stand for the model: the next token depends on every token before it."""
    token = len(token_ids)
    for token_id in token_ids:
        token = (token * 31 + token_id) % 997
    return token


def reference_answer(sequence, prompt):
    token_ids = list(prompt)
    for _ in range(sequence.max_output_tokens):
        token_ids.append(next_token(token_ids))
    return tuple(token_ids[len(prompt) :])


class Chain:
    """All stages as one: frames are run in the order in which they were sent."""

    def __init__(self, epoch, num_computed):
        self.epoch = epoch
        self.num_computed = num_computed
        self.frames = deque()
        self.answers = deque()
        self.caches = {}
        self.fails_next = False

    def run_frame(self):
        kind, about = self.frames.popleft()
        if kind == "close":
            self.caches.pop(about, None)
            return
        starts = {step.sequence_id: step.past_len for step in about.steps}
        if self.fails_next or any(
            start > len(self.caches.get(sequence_id, [])) for sequence_id, start in starts.items()
        ):
            self.fails_next = False
            for sequence_id in starts:
                self.caches.pop(sequence_id, None)
            self.answers.append(("failed", about.batch_id))
            return
        self.answers.append(("sampled", self.sampled(about)))

    def sampled(self, batch):
        rows, first = [], 0
        for step in batch.steps:
            cache = self.caches.setdefault(step.sequence_id, [])
            del cache[step.past_len :]
            cache.extend(batch.token_ids[first : first + step.num_tokens].tolist())
            first += step.num_tokens
            computed = self.num_computed.get(step.sequence_id, 0)
            self.num_computed[step.sequence_id] = computed + step.num_tokens
            if step.num_logits:
                rows.append(SampledRow(step.sequence_id, len(cache), (next_token(cache),)))
        used = sum(-(-len(cache) // BLOCK_TOKENS) for cache in self.caches.values())
        assert used <= MAX_TOKENS // BLOCK_TOKENS, "the scheduler promised room that is not there"
        return SampledTokens(batch.batch_id, self.epoch, tuple(rows))


class Head:
    """What the head does around the scheduler: open, close, send, receive, replay."""

    def __init__(self, limits):
        self.limits = limits
        self.num_computed = {}
        self.prompts = {}
        self.sequences = {}
        self.received = {}
        self.closed = set()
        self.disturbed = set()  # sequences that may be computed more than once
        self.place(epoch=0)

    def place(self, epoch):
        self.scheduler = Scheduler(self.limits, epoch)
        self.chain = Chain(epoch, self.num_computed)

    def ask(self, num_prompt_tokens, max_output_tokens):
        sequence_id = SequenceId(len(self.sequences) + 1)
        prompt = [int(sequence_id) * 100 + offset for offset in range(num_prompt_tokens)]
        self.prompts[sequence_id] = prompt
        self.sequences[sequence_id] = Sequence(sequence_id, prompt, max_output_tokens)
        self.scheduler.add(self.sequences[sequence_id])

    def send(self):
        batch = self.scheduler.next_micro_batch()
        for sequence_id in self.scheduler.take_preempted():
            self.disturbed.add(sequence_id)
            self.chain.frames.append(("close", sequence_id))
        for sequence_id, sequence in self.sequences.items():
            if sequence.state in ENDS and sequence_id not in self.closed:
                self.closed.add(sequence_id)
                self.chain.frames.append(("close", sequence_id))
        if batch is not None:
            self.chain.frames.append(("batch", batch))
        return batch is not None

    def receive(self):
        kind, about = self.chain.answers.popleft()
        if kind == "failed":
            self.disturbed.update(self.scheduler.replay(about))
            return
        for sequence_id, token_ids in self.scheduler.apply(about):
            self.received.setdefault(sequence_id, []).extend(token_ids)

    def go_round(self):
        """Send one micro-batch, run and receive everything; say whether there was anything."""
        is_busy = self.send() or bool(self.chain.frames or self.chain.answers)
        while self.chain.frames:
            self.chain.run_frame()
        while self.chain.answers:
            self.receive()
        return is_busy

    def check_answers(self):
        for sequence_id, sequence in self.sequences.items():
            assert sequence.state in ENDS, "something never finishes"
            expected = reference_answer(sequence, self.prompts[sequence_id])
            received = tuple(self.received.get(sequence_id, ()))
            assert received == sequence.output_ids == expected[: len(received)]
            if sequence.state is SequenceState.FINISHED:
                assert received == expected
                if sequence_id not in self.disturbed:
                    # Each token once; the last one is never fed back.
                    assert self.num_computed[sequence_id] == sequence.num_tokens - 1


class SchedulerAndChain(RuleBasedStateMachine):
    """The head's loop with its steps in any order."""

    @initialize(
        num_stages=st.integers(1, 3),
        max_sequences=st.integers(1, 5),
        chunk_tokens=st.integers(1, 12),
        max_batch_tokens=st.integers(5, 20),
        max_chunks_in_flight=st.integers(1, 2),
    )
    def begin(self, **limits):
        self.head = Head(
            SchedulerLimits(max_tokens=MAX_TOKENS, block_tokens=BLOCK_TOKENS, **limits)
        )
        self.late_answers = []

    @precondition(lambda self: len(self.head.sequences) < 12)
    @rule(num_prompt_tokens=st.integers(1, 40), max_output_tokens=st.integers(1, 30))
    def ask(self, num_prompt_tokens, max_output_tokens):
        self.head.ask(num_prompt_tokens, max_output_tokens)

    @rule()
    def send(self):
        self.head.send()

    @precondition(lambda self: self.head.chain.frames)
    @rule()
    def run_one(self):
        self.head.chain.run_frame()

    @precondition(lambda self: self.head.chain.answers)
    @rule()
    def receive_one(self):
        self.head.receive()

    @rule(turns=st.integers(1, 8))
    def go_round(self, turns):
        for _ in range(turns):
            self.head.go_round()

    @precondition(lambda self: self.head.sequences)
    @rule(data=st.data())
    def cancel(self, data):
        self.head.scheduler.cancel(data.draw(st.sampled_from(sorted(self.head.sequences))))

    @precondition(lambda self: self.head.chain.frames)
    @rule()
    def fail_next_batch(self):
        self.head.chain.fails_next = True

    @precondition(lambda self: self.head.chain.answers)
    @rule()
    def give_up_a_batch(self):
        kind, about = self.head.chain.answers.popleft()
        self.head.scheduler.fail(about if kind == "failed" else about.batch_id)

    @rule(data=st.data())
    def rewind(self, data):
        running = [
            sequence
            for sequence in self.head.sequences.values()
            if sequence.state in {SequenceState.PREFILL, SequenceState.DECODE}
        ]
        if running:
            sequence = data.draw(st.sampled_from(running))
            length = data.draw(st.integers(0, sequence.num_computed_tokens))
            self.head.scheduler.rewind(sequence.sequence_id, length)
            self.head.disturbed.add(sequence.sequence_id)

    @rule()
    def place_again(self):
        answers = self.head.chain.answers
        self.late_answers.extend(about for kind, about in answers if kind == "sampled")
        withdrawn = self.head.scheduler.withdraw()
        self.head.disturbed.update(sequence.sequence_id for sequence in withdrawn)
        self.head.place(epoch=self.head.chain.epoch + 1)
        for sequence in withdrawn:
            self.head.scheduler.add(sequence)

    @precondition(lambda self: self.late_answers)
    @rule()
    def receive_a_late_answer(self):
        assert self.head.scheduler.apply(self.late_answers.pop()) == []

    @precondition(lambda self: hasattr(self, "head"))
    @invariant()
    def scheduler_is_whole(self):
        self.head.scheduler.check_integrity()
        for sequence_id in self.head.sequences:
            in_flight = self.head.scheduler._in_flight.steps_of(sequence_id)
            assert len(in_flight) <= self.head.limits.max_chunks_in_flight

    def teardown(self):
        """Let everything that is left finish, then compare every answer."""
        if not hasattr(self, "head"):
            return
        for _ in range(5000):
            if not self.head.go_round():
                break
        self.head.check_answers()
        load = self.head.scheduler.load()
        assert load.free_blocks == load.total_blocks
        assert not self.head.chain.caches


TestSchedulerAndChain = SchedulerAndChain.TestCase
TestSchedulerAndChain.settings = settings(max_examples=300, stateful_step_count=50, deadline=None)

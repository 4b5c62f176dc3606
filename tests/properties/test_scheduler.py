"""A scheduler, a chain that keeps order, and everything that can happen to both.

The model of the chain holds real caches: token ids in blocks, which a paged stage shares between
sequences and a stateful one hands over. It follows the stage protocol to the letter, so whatever
the scheduler sends out of order, twice, too early, without room or into what others read is seen
there, and so is an answer that was computed from another's tokens.
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

from engine.domain import RowTime, SampledRow, SampledTokens, SequenceId
from engine.scheduler.cache_room import Opened
from engine.scheduler.limits import PrefixReuse, SchedulerLimits
from engine.scheduler.request import Sequence, SequenceState
from engine.scheduler.row_costs import RowCosts
from engine.scheduler.scheduler import Scheduler
from engine.stages.blocks import KVBlocks

MAX_TOKENS = 96
BLOCK_TOKENS = 8
# Not measured; each row as dear as the first; rows that cost nothing; several at a time.
COSTS = [
    RowCosts(RowTime(rows, seconds) for rows, seconds in times.items())
    for times in ({}, {1: 1.0, 2: 2.0}, {1: 1.0, 64: 1.1}, {1: 1.0, 4: 1.0, 5: 2.5, 8: 2.5})
]
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

    def __init__(self, epoch, num_computed, block_tokens, reuse):
        self.epoch = epoch
        self.num_computed = num_computed
        self.reuse = reuse
        self.frames = deque()
        self.answers = deque()
        self.blocks = KVBlocks(MAX_TOKENS // block_tokens, block_tokens, 1)
        self.memory = {}  # token ids by block and place in it
        self.fails_next = False

    def run_frame(self):
        kind, about = self.frames.popleft()
        if kind == "change":
            self.change(about)
            return
        starts = {step.sequence_id: step.past_len for step in about.steps}
        if self.fails_next or any(
            start > self.blocks.num_tokens(sequence_id) for sequence_id, start in starts.items()
        ):
            self.fails_next = False
            for sequence_id in starts:
                self.blocks.release(sequence_id)
            self.answers.append(("failed", about.batch_id))
            return
        self.answers.append(("sampled", self.sampled(about)))

    def change(self, change):
        if not isinstance(change, Opened):
            self.blocks.release(change.sequence_id)
            return
        prefix = change.prefix
        if prefix is None:
            return
        assert self.blocks.num_tokens(prefix.sequence_id) >= prefix.num_tokens, "it is not there"
        self.num_computed[change.sequence_id] = prefix.num_tokens
        if self.reuse is PrefixReuse.SHARED:
            self.blocks.share(prefix.sequence_id, change.sequence_id, prefix.num_tokens)
        else:
            self.blocks.hand_over(prefix.sequence_id, change.sequence_id)
            self.blocks.resize([(change.sequence_id, prefix.num_tokens)])

    def sampled(self, batch):
        """Write the batch's tokens where they belong, then draw from what is read there."""
        rows, first = [], 0
        for step in batch.steps:
            self.blocks.check_writable(step.sequence_id, step.past_len)
        # It raises where the scheduler promised room that is not there.
        self.blocks.resize([(s.sequence_id, s.past_len + s.num_tokens) for s in batch.steps])
        for step in batch.steps:
            for offset in range(step.num_tokens):
                at = self.place(step.sequence_id, step.past_len + offset)
                self.memory[at] = int(batch.token_ids[first + offset])
            first += step.num_tokens
            computed = self.num_computed.get(step.sequence_id, 0)
            self.num_computed[step.sequence_id] = computed + step.num_tokens
            if step.num_logits:
                length = step.past_len + step.num_tokens
                read = [self.memory[self.place(step.sequence_id, at)] for at in range(length)]
                rows.append(SampledRow(step.sequence_id, length, (next_token(read),)))
        self.blocks.check()
        return SampledTokens(batch.batch_id, self.epoch, tuple(rows))

    def place(self, sequence_id, position):
        number, offset = divmod(position, self.blocks.block_tokens)
        return int(self.blocks.table(sequence_id)[number]), offset


class Head:
    """What the head does around the scheduler: tell of changes, send, receive, replay."""

    def __init__(self, limits, stage_block_tokens):
        self.limits = limits
        self.stage_block_tokens = stage_block_tokens
        self.num_computed = {}
        self.prompts = {}
        self.sequences = {}
        self.received = {}
        self.disturbed = set()  # sequences that may be computed more than once
        self.stopped = set()  # those that ended before their limit
        self.place(epoch=0)

    def place(self, epoch):
        self.scheduler = Scheduler(self.limits, epoch)
        reuse = self.limits.prefix_reuse
        self.chain = Chain(epoch, self.num_computed, self.stage_block_tokens, reuse)

    def ask(self, prompt, max_output_tokens, reuses_prefix):
        sequence_id = SequenceId(len(self.sequences) + 1)
        self.prompts[sequence_id] = prompt
        self.sequences[sequence_id] = Sequence(
            sequence_id, prompt, max_output_tokens, reuses_prefix=reuses_prefix
        )
        self.scheduler.add(self.sequences[sequence_id])

    def send(self):
        batch = self.scheduler.next_micro_batch()
        for change in self.scheduler.take_changes():
            sequence = self.sequences[change.sequence_id]
            if isinstance(change, Opened) and change.prefix is not None:
                assert sequence.reuses_prefix
                assert change.prefix.num_tokens < sequence.num_tokens
            if sequence.state not in ENDS and not isinstance(change, Opened):
                self.disturbed.add(change.sequence_id)
            self.chain.frames.append(("change", change))
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
            if sequence.state is SequenceState.FINISHED and sequence_id not in self.stopped:
                assert received == expected
                if sequence_id not in self.disturbed:
                    # Each token once; the last one is never fed back.
                    assert self.num_computed[sequence_id] == sequence.num_tokens - 1


class SchedulerAndChain(RuleBasedStateMachine):  # noqa: PLR0904 - each can happen
    """The head's loop with its steps in any order."""

    @initialize(
        num_stages=st.integers(1, 3),
        max_sequences=st.integers(1, 5),
        chunk_tokens=st.integers(1, 12),
        prefix_reuse=st.sampled_from(PrefixReuse),
        stage_block_tokens=st.sampled_from((BLOCK_TOKENS, BLOCK_TOKENS // 2)),
        max_batch_tokens=st.integers(5, 20),
        max_chunks_in_flight=st.integers(1, 2),
        row_costs=st.sampled_from(COSTS),
    )
    def begin(self, stage_block_tokens, **limits):
        self.head = Head(
            SchedulerLimits(max_tokens=MAX_TOKENS, block_tokens=BLOCK_TOKENS, **limits),
            stage_block_tokens,
        )
        self.late_answers = []

    @precondition(lambda self: len(self.head.sequences) < 16)
    @rule(
        family=st.integers(1, 2),
        num_common=st.sampled_from((0, 5, 16, 17, 24, 32, 40)),
        num_own=st.integers(0, 12),
        max_output_tokens=st.integers(1, 24),
        reuses_prefix=st.sampled_from((True, True, True, False)),
    )
    def ask(self, family, num_common, num_own, max_output_tokens, reuses_prefix):
        """Ask what begins as others do, like a system prompt of two applications."""
        own = 1000 * (len(self.head.sequences) + 1)
        prompt = [100 * family + offset for offset in range(num_common)]
        prompt += [own + offset for offset in range(num_own)]
        self.head.ask(prompt or [7], max_output_tokens, reuses_prefix)

    @precondition(lambda self: len(self.head.sequences) < 16)
    @rule(data=st.data(), num_own=st.integers(1, 8), max_output_tokens=st.integers(1, 20))
    def ask_on(self, data, num_own, max_output_tokens):
        """Take the next turn of a chat."""
        ended = [i for i, each in self.head.sequences.items() if each.state in ENDS]
        if ended:
            before = data.draw(st.sampled_from(ended))
            said = [*self.head.prompts[before], *self.head.sequences[before].output_ids]
            prompt = [*said[-60:], *range(5000, 5000 + num_own)]
            self.head.ask(prompt, max_output_tokens, reuses_prefix=True)

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

    @rule(turns=st.integers(1, 24))
    def go_round(self, turns):
        for _ in range(turns):
            self.head.go_round()

    @precondition(lambda self: self.head.sequences)
    @rule(data=st.data())
    def cancel(self, data):
        self.head.scheduler.cancel(data.draw(st.sampled_from(sorted(self.head.sequences))))

    @rule(data=st.data())
    def stop(self, data):
        """End an answer at a stop string, which is seen when the next step is on its way."""
        decoding = [
            each.sequence_id
            for each in self.head.sequences.values()
            if each.state is SequenceState.DECODE
        ]
        if decoding:
            sequence_id = data.draw(st.sampled_from(decoding))
            self.head.stopped.add(sequence_id)
            self.head.scheduler.finish(sequence_id)

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
            num_ahead = self.head.limits.row_costs.is_measured
            assert len(in_flight) <= self.head.limits.max_chunks_in_flight + num_ahead

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
        usage = self.head.chain.blocks.usage()
        assert usage.num_sequences == len(load.kept_ids)
        used_tokens = usage.used_blocks * self.head.stage_block_tokens
        assert used_tokens <= load.kept_blocks * BLOCK_TOKENS
        if self.head.limits.prefix_reuse is PrefixReuse.NONE:
            assert not load.kept_ids
        if self.head.limits.prefix_reuse is PrefixReuse.TAKEN_OVER:
            assert len(load.kept_ids) <= self.head.limits.max_sequences


TestSchedulerAndChain = SchedulerAndChain.TestCase
TestSchedulerAndChain.settings = settings(max_examples=300, stateful_step_count=50, deadline=None)

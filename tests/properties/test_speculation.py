"""Speculation changes no token: any drafter, any number of drafts and frames, whatever happens."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from engine.domain import RowTime
from engine.scheduler.limits import SchedulerLimits
from engine.scheduler.request import SequenceState
from engine.scheduler.row_costs import RowCosts
from engine.scheduler.speculation import Speculation
from engine.scheduler.token_line import TokenLine
from reproduction.fixed_draft_length import FixedDraftLength
from tests.properties.toy_chain import (
    BLOCK_TOKENS,
    SAMPLINGS,
    VOCABULARY,
    ToyStage,
    reference_answer,
)
from tests.speculating import Head, always

LENGTHS = (1, 3, 5, 7, 10, 15)
COSTS = [RowCosts(), RowCosts([RowTime(1, 1.0), RowTime(4, 1.1), RowTime(8, 2.5)])]
RUNNING = {SequenceState.PREFILL, SequenceState.DECODE}


def head(num_stages, num_drafts, max_frames, guess, **changes):
    limits = SchedulerLimits(**{
        "max_tokens": 512,
        "block_tokens": BLOCK_TOKENS,
        "max_sequences": 4,
        "num_stages": num_stages,
        "vocab_size": VOCABULARY,
        "max_chunks_in_flight": num_stages,
        **changes,
    })
    speculation = Speculation(FixedDraftLength(num_drafts, 99), max_frames)

    def stages():
        num_blocks = limits.max_tokens // BLOCK_TOKENS
        return [ToyStage(number, num_stages, num_blocks) for number in range(num_stages)]

    def answer(prompt, num_tokens, sampling):
        return reference_answer(prompt, num_tokens, sampling, num_stages)

    return Head(limits, stages, answer, speculation, guess)


def finish(started):
    for _ in range(2000):
        if not started.go_round():
            break
    started.check_answers()
    load = started.scheduler.load()
    assert load.free_blocks == load.total_blocks
    for stage in started.chain.stages:
        assert not stage.caches
        assert stage.blocks.usage().used_blocks == 0


@pytest.mark.parametrize("num_drafts", LENGTHS)
@pytest.mark.parametrize("kind", ["right", "wrong", "mixed"])
@pytest.mark.parametrize("num_stages", [1, 2, 4])
def test_any_drafter_gives_the_tokens_that_are_drawn_without_it(num_stages, kind, num_drafts):
    """Four sequences, greedy and sampled, with penalties and without, on small caches too."""
    for max_tokens in (512, 64):
        started = head(
            num_stages, num_drafts, num_stages, always(kind, VOCABULARY), max_tokens=max_tokens
        )
        for number, sampling in enumerate(SAMPLINGS):
            started.ask([number + 1, 3, 2], 40, sampling)
        finish(started)


@pytest.mark.parametrize("num_drafts", LENGTHS)
def test_guesses_that_hold_save_rounds_and_those_that_do_not_cost_none(num_drafts):
    """One sequence, one stage: a frame gives one token, or one more than its drafts."""

    def num_frames(kind):
        started = head(1, num_drafts, 1, always(kind, VOCABULARY))
        started.ask([1, 2], 48, SAMPLINGS[0])
        finish(started)
        return started.scheduler._num_batches

    assert num_frames("wrong") == 48
    assert num_frames("right") == 1 + -(-47 // (num_drafts + 1))


def test_frames_of_one_sequence_follow_each_other_down_the_chain():
    """Two stages, all guesses hold: the second frame leaves before the first is answered."""
    started = head(2, 3, 2, always("right", VOCABULARY))
    started.ask([1, 2], 48, SAMPLINGS[0])
    started.go_round()  # the prompt
    most = 0
    while started.go_round():
        started.ask_for_drafts()
        while started.draft_one():
            pass
        while started.send():
            started.ask_for_drafts()
            while started.draft_one():
                pass
        most = max(most, len(started.scheduler._in_flight.steps_of(1)))
    assert most == 2
    finish(started)


def test_what_stood_on_a_wrong_guess_is_not_computed_by_the_last_stage():
    """Always wrong, two frames under way: the second is dropped at the door."""
    started = head(2, 3, 2, always("wrong", VOCABULARY))
    started.ask([1, 2], 30, SAMPLINGS[0])
    finish(started)
    first, last = started.chain.stages
    assert last.num_rows < first.num_rows


def test_a_sequence_that_does_not_speculate_is_never_guessed():
    """Beside one that does."""
    started = head(2, 3, 2, always("right", VOCABULARY))
    one = started.ask([1, 2], 20, SAMPLINGS[0], speculates=False)
    other = started.ask([2, 2], 20, SAMPLINGS[0])
    finish(started)
    assert started.sequences[one].num_drafted_tokens == 0
    assert started.sequences[other].num_accepted_tokens > 10


class Speculating(RuleBasedStateMachine):
    """The head's loop, the stages and a late drafter, with their steps in any order."""

    @initialize(
        num_stages=st.integers(1, 4),
        num_drafts=st.sampled_from(LENGTHS),
        max_frames=st.integers(1, 6),
        max_tokens=st.sampled_from([64, 96, 512]),
        chunk_tokens=st.integers(1, 12),
        max_batch_tokens=st.integers(4, 40),
        row_costs=st.sampled_from(COSTS),
        rightness=st.sampled_from([0.0, 0.5, 0.8, 1.0]),
        seed=st.integers(0, 99),
    )
    def begin(self, num_stages, num_drafts, max_frames, rightness, seed, **limits):
        rng = random.Random(seed)  # noqa: S311 - it draws guesses
        truth = always("right", VOCABULARY)

        def guess(asker, sequence, request):
            ids = truth(asker, sequence, request)[: rng.randint(0, request.max_drafts)]
            # One beyond the vocabulary as well: it must never reach a stage.
            return tuple(i if rng.random() < rightness else rng.randint(0, VOCABULARY) for i in ids)

        self.head = head(num_stages, num_drafts, max_frames, guess, **limits)

    @precondition(lambda self: len(self.head.sequences) < 10)
    @rule(
        prompt=st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=24),
        max_output_tokens=st.integers(1, 30),
        sampling=st.sampled_from(SAMPLINGS),
        speculates=st.sampled_from([True, True, True, False]),
    )
    def ask(self, prompt, max_output_tokens, sampling, speculates):
        self.head.ask(prompt, max_output_tokens, sampling, speculates=speculates)

    @rule(holds=st.booleans())
    def send(self, holds):
        held = {r.sequence_id for r in self.head.asked} if holds else ()
        self.head.send(held)

    @rule()
    def ask_for_drafts(self):
        self.head.ask_for_drafts()

    @rule()
    def draft_one(self):
        self.head.draft_one()

    @rule(number=st.integers(0, 3), turns=st.integers(1, 3))
    def run_a_stage(self, number, turns):
        for _ in range(turns):
            self.head.chain.run_one(number % self.head.limits.num_stages)

    @rule(gives_up=st.sampled_from([False, False, True]))
    def receive(self, gives_up):
        self.head.receive(gives_up=gives_up)

    @rule(turns=st.integers(1, 6))
    def go_round(self, turns):
        for _ in range(turns):
            self.head.go_round()

    @precondition(lambda self: self.head.sequences)
    @rule(data=st.data())
    def cancel(self, data):
        self.head.scheduler.cancel(data.draw(st.sampled_from(sorted(self.head.sequences))))

    @rule(number=st.integers(0, 3))
    def fail_next_batch(self, number):
        self.head.chain.stages[number % self.head.limits.num_stages].fails_next = True

    @rule(data=st.data())
    def rewind(self, data):
        running = [s for s in self.head.sequences.values() if s.state in RUNNING]
        if running:
            sequence = data.draw(st.sampled_from(running))
            length = data.draw(st.integers(0, sequence.num_computed_tokens))
            self.head.scheduler.rewind(sequence.sequence_id, length)
            sequence.num_losses = 0  # a head that rewinds so often loses steps so often

    @rule()
    def place_again(self):
        self.head.lose_stages()

    @precondition(lambda self: hasattr(self, "head"))
    @invariant()
    def scheduler_is_whole(self):
        self.head.scheduler.check_integrity()
        for stage in self.head.chain.stages:
            stage.blocks.check()

    def teardown(self):
        """Let everything that is left finish, then compare every answer."""
        if hasattr(self, "head"):
            for stage in self.head.chain.stages:
                stage.fails_next = False
            finish(self.head)


TestSpeculating = Speculating.TestCase
TestSpeculating.settings = settings(max_examples=120, stateful_step_count=50, deadline=None)


@given(st.data())
def test_a_late_guess_is_heard_only_as_far_as_the_line_went_on_as_it_says(data):
    """Whatever was committed between asking and answering."""
    ids = st.lists(st.integers(0, 2), max_size=4)
    line = TokenLine([0, 1])
    line.ask(4)
    committed = data.draw(ids)
    if committed:
        line.commit(committed)
    offered = data.draw(ids)
    line.offer(2, offered, 100)
    assert line.ids(0, line.num_committed).tolist() == [0, 1, *committed]
    whole = line.ids(0, line.length).tolist()
    if line.num_guessed:
        assert whole == [0, 1, *offered]

"""Speculation on real stages gives the unsplit model's greedy tokens, whoever guesses.

In fast mode, whose tokens are not the unsplit model's, they are those of the same stages without
guesses; a prompt that is read again may be rounded otherwise there, so none is.

The long form deals 50 prompts, of 256 tokens each, out over the ways of ``speculation_design``:
each drafter writes all of them on each kind of stage. What it compared is printed at its end.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from pathlib import Path

import openvino as ov
import pytest

from engine.domain import LayerRange, NodeId, RowTime, SequenceId
from engine.errors import InferenceError
from engine.messages.chain import Placement, StagePlace
from engine.models.tokenizer import load_tokenizer
from engine.pipeline.draft_loading import DraftTarget, find_draft, load_draft_model
from engine.sampling.parameters import SamplingParameters
from engine.scheduler.draft_length import DraftLength
from engine.scheduler.drafters_in_turn import DraftersInTurn
from engine.scheduler.limits import SchedulerLimits
from engine.scheduler.request import SequenceState
from engine.scheduler.row_costs import RowCosts
from engine.scheduler.speculation import Speculation
from engine.scheduler.suffix_drafter import SuffixDrafter
from engine.splitter.analysis import analyse
from reproduction.fixed_draft_length import FixedDraftLength
from reproduction.oracle_drafter import OracleDrafter, Recording
from tests.equivalence.chain import LONG, Chain, Stages, Unsplit
from tests.equivalence.speculation_design import (
    CHOSEN,
    FACTORS,
    Way,
    covering_design,
    every_pair,
    pairs_of,
    share_of,
)
from tests.speculating import Head

pytestmark = [
    pytest.mark.embedded,
    pytest.mark.processes,
    pytest.mark.timeout(3600 if LONG else 300),
]

SHORT = [  # every drafter but the one that is part of another, both kinds, each trouble
    Way("in turn", "paged", CHOSEN, 2, "guessed", "lost stages"),
    Way("oracle 0", "paged", 15, 2, "not guessed", "failed frames"),
    Way("oracle 0.8", "stateful", 7, 2, "guessed", "cancels"),
    Way("model", "stateful", 5, 2, "alone", "lost stages"),
]
WAYS = covering_design() if LONG else SHORT
FAST = [
    Way("in turn", "paged", CHOSEN, 2, "guessed", "cancels"),
    Way("oracle 0.5", "paged", 15, 4, "not guessed", "none"),
]
NUM_PROMPTS = 50 if LONG else 2
NUM_TOKENS = 256 if LONG else 16
NUM_FAST_PROMPTS = 16 if LONG else 2
NUM_OTHERS = 16 if LONG else 2
OTHERS_TOKENS = 48 if LONG else 8
CUTS = {1: [], 2: [15], 3: [10, 20], 4: [8, 15, 22]}
VOCABULARY = 49152
COSTS = RowCosts(RowTime(rows, 0.01 + 0.0005 * rows) for rows in (1, 2, 4, 8, 16))
MAX_TROUBLES = 10 if LONG else 4  # in one way: each loss has all prompts read again
TROUBLE_EVERY = 60 if LONG else 25  # turns
GREEDY = SamplingParameters()
MAX_ASKED = 128
EVERY = 2 if LONG else 35  # recorded prompt: they lie by kind
RECORDED_TOKENS = 128  # of those answers that have not ended by themselves
HELD_OUT = Path(__file__).parents[2] / "reproduction" / "held_out" / "answers.json"


@pytest.fixture(scope="module")
def answers(embedded):
    """Of the unsplit model to prompts of every kind; behind those asked in full, the others'."""
    held_out = json.loads(HELD_OUT.read_text(encoding="utf-8"))
    long_enough = [entry for entry in held_out if len(entry["answer"]) == RECORDED_TOKENS]
    chosen = long_enough[::EVERY][: NUM_PROMPTS + NUM_OTHERS]
    recorded = [Recording(entry["ids"], entry["answer"]) for entry in chosen]
    if not LONG:
        return recorded
    unsplit = Unsplit(embedded.xml)
    whole = [Recording(ids, unsplit.greedy(ids, NUM_TOKENS)) for ids, _ in recorded[:NUM_PROMPTS]]
    return whole + recorded[NUM_PROMPTS:]


@pytest.fixture(scope="module")
def stages_of(embedded, tmp_path_factory):
    """The ways come in order of their stages: those of one chain at a time are loaded."""
    analysis = analyse(ov.Core(), embedded.xml)
    folder = tmp_path_factory.mktemp("shards")
    made = {}

    def stages(way, mode="exact"):
        key = way.kind, way.num_stages, mode
        if key not in made:
            made.clear()
            made[key] = Stages(analysis, folder, way.kind, mode).chain(CUTS[way.num_stages]).stages
        return made[key]

    return stages


@pytest.fixture(scope="module")
def loop():
    """One for the draft model's process, which outlives a test.

    Yields:
        It.
    """
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def draft_model(loop, embedded):
    place = StagePlace(
        node_id=NodeId("here"), address="", stage_index=0, layers=LayerRange(0, 30), mode="exact"
    )
    placement = Placement(
        epoch=1, manifest_sha256="", context_tokens=1024, max_sequences=8, stages=(place,)
    )
    target = DraftTarget(load_tokenizer(embedded), VOCABULARY)
    draft = loop.run(load_draft_model(find_draft(target), target, placement))
    yield draft
    loop.run(draft.end())


@pytest.fixture
def drafter_of(request, answers):
    """Return who guesses in a way; an oracle, what it is told."""

    def drafter(way, answers=answers):
        if way.drafter == "suffix":
            return SuffixDrafter()
        if way.drafter.startswith("oracle"):
            return OracleDrafter(answers, float(way.drafter.split()[1]), VOCABULARY)
        model = request.getfixturevalue("draft_model")
        if way.drafter == "model":
            return model
        both = DraftersInTurn(SuffixDrafter())
        both.use(model)
        return both

    return drafter


@pytest.fixture(scope="module")
def compared():
    """What was compared; it is printed at the end, where output is shown (``-s``).

    Yields:
        Where to count.
    """
    counts = Counter()
    yield counts
    print(f"\nEqual: {dict(counts)}")  # noqa: T201 - the figures of the long form


class FailingStage:
    """A stage one of whose runs may fail; what it had of the sequences in it is lost."""

    def __init__(self, stage):
        self._stage = stage
        self.description = stage.description
        self.release, self.kv_usage = stage.release, stage.kv_usage
        self.fails_next = False

    def run(self, batch):
        if self.fails_next:
            self.fails_next = False
            for step in batch.steps:
                self.release(step.sequence_id)
            raise InferenceError("It was to fail.")
        return self._stage.run(batch)


def head_of(way, stages, answer, guess):
    limits = SchedulerLimits(
        max_tokens=2048,
        block_tokens=32,
        max_sequences=1 if way.company == "alone" else 8,
        num_stages=way.num_stages,
        max_batches_in_flight=way.num_stages + 2,  # room for frames on guesses, with others too
        vocab_size=VOCABULARY,
        max_chunks_in_flight=way.num_stages,
    )
    chooses = way.num_drafts == CHOSEN
    lengths = (
        DraftLength(COSTS, way.num_stages) if chooses else FixedDraftLength(way.num_drafts, 99)
    )

    def as_new():
        for stage in stages:
            for number in range(MAX_ASKED):
                stage.release(SequenceId(number))
        return [FailingStage(stage) for stage in stages]

    return Head(limits, as_new, answer, Speculation(lengths, way.num_stages + 1), guess)


class Trouble:
    """What happens to a head while guesses are under way."""

    def __init__(self, way, head, doomed, rng):
        """Begin with nothing.

        Args:
            way: Says what.
            head: Whose frames are under way.
            doomed: Sequences that are to leave in the middle.
            rng: Draws when.
        """
        makers = {"cancels": self._cancel, "failed frames": self._fail, "lost stages": self._lose}
        self._make = makers.get(way.trouble, lambda: 0)
        self._head, self._doomed, self._rng = head, set(doomed), rng
        self._due = TROUBLE_EVERY
        self.num_made = 0

    def may_come(self):
        """Let it come where it can, now and then."""
        self._due -= 1
        if self._due <= 0 and self.num_made < MAX_TROUBLES and any(self._guessed()):
            self.num_made += self._make()
            self._due = self._rng.randint(1, 2 * TROUBLE_EVERY)

    def _guessed(self):
        """Yield the running sequences that have guesses under way."""
        for sequence in self._head.sequences.values():
            has_guesses = sequence.line.num_guessed and sequence.state is SequenceState.DECODE
            if has_guesses and sequence.num_scheduled_tokens > sequence.num_tokens:
                yield sequence

    def _cancel(self):
        doomed = [s.sequence_id for s in self._guessed() if s.sequence_id in self._doomed]
        for sequence_id in doomed:
            self._head.scheduler.cancel(sequence_id)
        return len(doomed)

    def _fail(self):
        self._rng.choice(self._head.chain.stages).fails_next = True
        return 1

    def _lose(self):
        self._head.lose_stages()
        return 1


def others_of(way, head, number, answers):
    """Ask what others ask beside a prompt; return which of them leave before they have all."""
    other = answers[NUM_PROMPTS + number % NUM_OTHERS].prompt_ids
    if way.company == "not guessed":
        head.ask(other, OTHERS_TOKENS, GREEDY, speculates=False)
    if way.trouble != "cancels":
        return []
    return [head.ask(other, OTHERS_TOKENS, GREEDY)]


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_guesses_change_no_token(way, stages_of, drafter_of, answers, loop, compared):
    """Frames follow each other in any order; trouble comes while guesses are under way."""
    asked = share_of(way, WAYS, NUM_PROMPTS) if LONG else range(NUM_PROMPTS)
    compared.update(compare(way, stages_of(way), drafter_of(way), answers, asked, loop))


@pytest.mark.parametrize("way", FAST, ids=str)
def test_guesses_change_no_token_in_fast_mode(way, stages_of, drafter_of, answers, loop, compared):
    """Answers are those of the same stages, each asked alone and without guesses."""
    stages = stages_of(way, "fast")
    others = answers[NUM_PROMPTS : NUM_PROMPTS + NUM_OTHERS]
    asked = [*answers[:NUM_FAST_PROMPTS], *others]
    alone = [Recording(ids, Chain(stages).greedy([list(ids)], NUM_TOKENS)[0]) for ids, _ in asked]
    known = [*alone[:NUM_FAST_PROMPTS], *answers[NUM_FAST_PROMPTS:NUM_PROMPTS]]
    known += alone[NUM_FAST_PROMPTS:]
    asked = range(NUM_FAST_PROMPTS)
    compared.update(compare(way, stages, drafter_of(way, known), known, asked, loop))


def compare(way, stages, drafter, answers, asked, loop):
    known = {tuple(a.prompt_ids): a.answer_ids for a in answers}
    rng = random.Random(str(way))  # noqa: S311 - it draws what happens next
    head = head_of(
        way,
        stages,
        lambda prompt, num_tokens, _: tuple(known[tuple(prompt)][:num_tokens]),
        lambda _head, _sequence, request: loop.run(drafter.draft([request]))[0],
    )
    doomed = []
    for number in asked:
        head.ask(answers[number].prompt_ids, NUM_TOKENS, GREEDY)
        doomed += others_of(way, head, number, answers)
    trouble = Trouble(way, head, doomed, rng)
    while head.turn(rng):
        trouble.may_come()
    for sequence_id in head.sequences:
        loop.run(drafter.close(sequence_id))
    head.check_answers()
    for stage in stages:
        assert stage.kv_usage().used_blocks == 0
    assert trouble.num_made or way.trouble == "none" or way.drafter == "suffix"
    return what_was_done(head, trouble)


def what_was_done(head, trouble):
    sequences = head.sequences.values()
    accepted = sum(s.num_accepted_tokens for s in sequences)
    return {
        "ways": 1,
        "answers": len(sequences),
        "tokens": sum(len(s.output_ids) for s in sequences),
        "drafted": sum(s.num_drafted_tokens for s in sequences),
        "accepted": accepted,
        "troubles": trouble.num_made,
    }


def test_the_long_form_lets_every_pair_of_values_meet():
    """And each drafter writes every prompt on each kind of stage."""
    ways = covering_design()
    assert set().union(*map(pairs_of, ways)) == every_pair()
    for drafter in FACTORS.drafter:
        for kind in FACTORS.kind:
            alike = [way for way in ways if (way.drafter, way.kind) == (drafter, kind)]
            dealt = sorted(number for way in alike for number in share_of(way, ways, 50))
            assert dealt == list(range(50))

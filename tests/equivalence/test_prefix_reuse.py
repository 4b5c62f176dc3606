"""Same tokens with what is kept of others as without, whatever else runs beside."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import openvino as ov
import pytest

from engine.domain import RowTime
from engine.errors import StageError
from engine.messages.control import Generate, TextDelta
from engine.models.settings import read_settings
from engine.models.template_files import load_chat_template
from engine.models.tokenizer import load_tokenizer
from engine.pipeline.chat_text import ChatText
from engine.sampling.parameters import SamplingParameters
from engine.scheduler.row_costs import RowCosts
from engine.splitter.analysis import analyse
from tests.equivalence.chain import LONG, Unsplit
from tests.equivalence.ring import Ring, failure_of, orders_of, prompt_of
from tests.unit.pipeline.scripted import Asker

pytestmark = [pytest.mark.embedded, pytest.mark.processes]

NUM_TOKENS = 12
USERS_TOKENS = 32
COSTS = RowCosts(RowTime(rows, 0.005 + 0.002 * rows) for rows in (1, 4, 16, 64))
SYSTEM = (
    "You are a careful librarian in a small town by the sea. You answer in one short sentence, you "
    "never guess, and you always name a book that has to do with what you were asked about."
)
CHILD = "Say it as you would say it to a child of seven years, and do not be long."
CHAINS = {
    "paged, 1 stage": ("paged", []),
    "paged, 2 stages": ("paged", [12]),
    "paged, 3 stages": ("paged", [8, 20]),
    "stateful, 1 stage": ("stateful", []),
    "stateful, 3 stages": ("stateful", [8, 20]),
}


class Running(NamedTuple):
    """A ring, the loop it lives in, and what it is held against."""

    ring: Ring
    runner: asyncio.Runner
    unsplit: Unsplit

    def run(self, scenario):
        self.runner.run(asyncio.wait_for(scenario, 240))

    def expected(self, request, num_tokens=NUM_TOKENS):
        return tuple(self.unsplit.greedy(prompt_of(self.ring.text, request), num_tokens))


@pytest.fixture(scope="module")
def text(embedded):
    tokenizer = load_tokenizer(embedded)
    ends = frozenset(read_settings(embedded).eos_token_ids)
    return ChatText(tokenizer, load_chat_template(embedded), ends, tokenizer.vocab_size)


@pytest.fixture(scope="module")
def unsplit(embedded):
    return Unsplit(embedded.xml)


@pytest.fixture(scope="module")
def analysis(embedded):
    return analyse(ov.Core(), embedded.xml)


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return tmp_path_factory.mktemp("shards")


SHORT = ("paged, 1 stage", "paged, 2 stages", "stateful, 3 stages")
ALL = list(CHAINS if LONG else SHORT)
TWO = pytest.mark.parametrize("running", ["paged, 2 stages", "stateful, 3 stages"], indirect=True)


@pytest.fixture(scope="module", params=ALL)
def running(request, text, unsplit, analysis, shards):
    kind, cuts = CHAINS[request.param]
    ring = Ring(text, orders_of(analysis, shards, cuts, kind))
    with asyncio.Runner() as runner:
        runner.run(ring.load())
        yield Running(ring, runner, unsplit)
        runner.run(ring.close())


def question(what, *turns, **changes):
    """Ask something under the shared system prompt, behind earlier turns."""
    said = [{"role": "system", "content": SYSTEM}]
    for number, turn in enumerate(turns):
        said.append({"role": ("user", "assistant")[number % 2], "content": turn})
    said.append({"role": "user", "content": what})
    fields = {"max_tokens": NUM_TOKENS, "ignore_eos": True}
    return Generate(request_id=what, messages=tuple(said), **fields | changes)


def test_shared_prompts_and_later_turns_give_the_unsplit_models_tokens(running):
    """One after the other and beside each other, with what is kept, and without.

    Prompts are read in chunks of many sizes, as rows on a slow core cost.
    """
    ring = running.ring

    async def scenario():
        async with ring.placed(max_sequences=3, row_costs=COSTS):
            first = question("Why is the sea salty?")
            told = await ring.ask(first)
            assert told.ids == running.expected(first)
            assert told.finished.cached_tokens == 0
            second = question("And the lakes?", "Why is the sea salty?", told.text)
            others = [question("What is a tide?"), question("Who was Homer?")]
            answers = await asyncio.gather(*(ring.ask(r) for r in (second, *others)))
            for request, answer in zip((second, *others), answers, strict=True):
                assert answer.ids == running.expected(request), request.request_id
            cached = [answer.finished.cached_tokens for answer in answers]
            num_prompt = len(prompt_of(ring.text, first))
            if ring.orders[0].kind == "paged":
                assert cached[0] >= num_prompt - 32
                assert min(cached[1:]) >= 32
            else:
                assert max(cached) >= 32, "one of them took it over"
            third = question(
                "Thank you.", "Why is the sea salty?", told.text, "And the lakes?", answers[0].text
            )
            told = await ring.ask(third)
            assert told.ids == running.expected(third)
            assert told.finished.cached_tokens >= 32
            alone = await ring.ask(question("Who was Homer?", reuse_prefix=False))
            assert (alone.ids, alone.finished.cached_tokens) == (answers[2].ids, 0)
            await ring.balanced()

    running.run(scenario())


def test_draws_and_penalties_see_the_tokens_of_the_prefix(running):
    """A seed and a repetition penalty: as without what is kept."""
    ring = running.ring
    sampling = SamplingParameters(
        temperature=0.8, repetition_penalty=1.4, frequency_penalty=0.5, seed=11
    )
    changes = {"sampling": sampling, "seed_given": True}

    async def scenario():
        async with ring.placed(max_sequences=2):
            await ring.ask(question("Why is the sea salty?"))
            alone = await ring.ask(question("Name a book.", reuse_prefix=False, **changes))
            told = await ring.ask(question("Name a book.", **changes))
            assert told.finished.cached_tokens >= 32
            assert told.ids == alone.ids

    running.run(scenario())


@TWO
def test_what_had_to_go_is_computed_again(running):
    """Long prompts take the room; then the first is asked again."""
    ring = running.ring

    async def scenario():
        async with ring.placed(max_sequences=1, context_tokens=256):
            request = question("Why is the sea salty?")
            await ring.ask(request)
            long = Generate(
                request_id="long", prompt="One two three. " * 45, max_tokens=4, ignore_eos=True
            )
            told = await ring.ask(long)
            assert told.ids == running.expected(long, 4)
            again = await ring.ask(request)
            assert (again.ids, again.finished.cached_tokens) == (running.expected(request), 0)
            await ring.balanced()

    running.run(scenario())


@TWO
def test_after_a_stage_is_lost_nothing_is_kept_and_the_answer_goes_on(running):
    """Its process is killed; the others stay, and begin with none."""
    ring = running.ring
    request = question("What is a lighthouse?", max_tokens=20)

    async def scenario():
        asker = Asker()
        async with ring.placed(max_sequences=2) as head:
            await ring.ask(question("Why is the sea salty?"))
            async with asyncio.TaskGroup() as group:
                answering = group.create_task(failure_of(head.answer(request, asker.send)))
                await asker.wait_for(TextDelta, 6)
                ring.kill(len(ring.processes) - 1)
            assert isinstance(answering.result(), StageError)
        await ring.replace_stage(len(ring.processes) - 1)
        async with ring.placed(max_sequences=2):
            onward = Generate(
                request_id="onward",
                messages=request.messages,
                max_tokens=20,
                ignore_eos=True,
                committed_ids=asker.ids,
            )
            rest = await ring.ask(onward)
            assert asker.ids + rest.ids == running.expected(request, 20)
            assert rest.finished.cached_tokens == 0
            later = await ring.ask(question("What is a boat?"))
            assert later.ids == running.expected(question("What is a boat?"))
            assert later.finished.cached_tokens >= 32
            await ring.balanced()

    running.run(scenario())


@TWO
def test_eight_users_who_come_and_go_get_the_tokens_they_would_get_alone(running):
    """Joins, leaves, cancels, later turns, and room for half of them: some are sent back."""
    ring = running.ring
    questions = [
        question(f"What is the number {n} good for? {CHILD}", max_tokens=USERS_TOKENS)
        for n in range(8)
    ]
    askers = [Asker() for _ in questions]
    preempted = set()

    async def user(number, head):
        if number:
            await askers[number - 1].wait_for_ids(3)
        asker, request = askers[number], questions[number]
        async with asyncio.TaskGroup() as group:
            answering = group.create_task(head.answer(request, asker.send, str(number)))
            if number == 3:
                await asker.wait_for_ids(5)
                head.cancel("3")
            if number == 5:
                await asker.wait_for_ids(4)
                answering.cancel()
        if number in {0, 1, 6}:
            turn = question("And twice that?", request.request_id, asker.text)
            told = await ring.ask(turn, f"again {number}")
            assert told.ids == running.expected(turn)

    async def scenario():
        async with ring.placed(max_sequences=8, max_tokens=13 * 32) as head:
            requeue = head._scheduler._requeue

            def noting(sequence):
                preempted.add(sequence.sequence_id)
                requeue(sequence)

            head._scheduler._requeue = noting
            await asyncio.gather(*(user(number, head) for number in range(8)))
            await ring.balanced()

    running.run(scenario())
    assert preempted, "room was never short"
    for number, asker in enumerate(askers):
        expected = running.expected(questions[number], USERS_TOKENS)
        assert asker.ids == expected[: len(asker.ids)], number
        assert len(asker.ids) == USERS_TOKENS or number in {3, 5}

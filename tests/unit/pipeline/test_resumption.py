"""An answer that goes on at another head: nothing lost, nothing twice, nothing drawn anew."""

import asyncio
import dataclasses
import datetime

import pytest

from engine.errors import (
    ContextTooLongError,
    PlacementError,
    StageProcessDiedError,
    UsageError,
)
from engine.messages.chain import StageFailed
from engine.messages.control import Accepted, Finished, TextDelta
from engine.sampling.parameters import SamplingParameters
from tests.unit.pipeline.frames import EPOCH
from tests.unit.pipeline.scripted import (
    END,
    ENDINGS,
    LLAMA,
    LLAMA_TEXT,
    PARIS,
    PARIS_TEXT,
    Asker,
    ScriptedChain,
    placement,
    question,
    running_head,
)

pytestmark = pytest.mark.embedded

NOW = datetime.datetime(2026, 2, 3, tzinfo=datetime.UTC)


def answered(chat_text, request, script=(*LLAMA, END), placed=None):
    """Return what the asker was told, and the chain."""
    asker, chain = Asker(), ScriptedChain([script])

    async def scenario():
        async with running_head(chat_text, chain, placed) as head:
            await head.answer(request, asker.send)

    asyncio.run(scenario())
    return asker, chain


def refused(chat_text, request, placed=None):
    """Return why a request is refused; no stage hears of it."""
    errors, chain = [], ScriptedChain([(END,)])

    async def scenario():
        async with running_head(chat_text, chain, placed) as head:
            errors.append(await _error_of(head.answer(request, Asker().send)))

    asyncio.run(scenario())
    assert chain.events == []
    return errors[0]


def first_ids(asker, count):
    """Return the text, and the number of the next piece, as of when that many ids were told."""
    text, number, ids = "", 0, 0
    for delta in asker.of(TextDelta):
        if ids == count:
            break
        text, number, ids = text + delta.text, number + 1, ids + len(delta.token_ids)
    assert ids == count, "each token came in a piece of its own"
    return text, number


def test_the_answer_is_as_hard_to_interrupt_as_it_should_be(chat_text):
    """Else the tests below would show little."""
    assert chat_text.tokenizer.decode(LLAMA) == LLAMA_TEXT
    asker, _ = answered(chat_text, question())
    assert [delta.text for delta in asker.of(TextDelta)].count("") >= 4
    stopped, _ = answered(chat_text, question(stop=("##END###",)))
    assert stopped.text == "Grüße 東京 🦙! Stop here: #"
    assert stopped.finished.completion_tokens == 19


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("kind", ["chat", "completion"])
def test_after_any_token_the_rest_is_what_it_would_have_been(chat_text, ending, kind):
    asked = ENDINGS[ending]
    if kind == "completion":
        asked = {**asked, "messages": None, "prompt": "The llama says"}
    whole, _ = answered(chat_text, question(**asked))
    for count in range(len(whole.ids) + 1):
        text, number = first_ids(whole, count)
        request = question(**asked, committed_ids=whole.ids[:count], next_number=number)
        rest, chain = answered(chat_text, request)
        assert text + rest.text == whole.text, count
        assert whole.ids[:count] + rest.ids == whole.ids, count
        pieces = rest.of(TextDelta)
        assert [piece.number for piece in pieces] == list(range(number, number + len(pieces)))
        assert rest.finished.finish_reason == whole.finished.finish_reason
        assert rest.finished.completion_tokens == whole.finished.completion_tokens
        assert rest.accepted.prompt_tokens == whole.accepted.prompt_tokens
        if count < len(whole.ids):
            opening = chain.openings[1]
            assert opening.num_prompt_tokens == whole.accepted.prompt_tokens, "penalties need it"
            fed = chain.batches[0].token_ids.tolist()
            assert fed == chat_text.prompt_ids(request, NOW) + list(whole.ids[:count])


@pytest.mark.parametrize("ending", [e for e in ENDINGS if e != "in half a character"])
def test_an_answer_that_is_complete_ends_at_once_and_troubles_no_stage(chat_text, ending):
    """The PC was lost when only the end had not been told."""
    whole, _ = answered(chat_text, question(**ENDINGS[ending]))
    number = len(whole.of(TextDelta))
    request = question(**ENDINGS[ending], committed_ids=whole.ids, next_number=number)
    rest, chain = answered(chat_text, request)
    assert [type(message) for message in rest.told] == [Accepted, Finished]
    assert rest.finished.finish_reason == whole.finished.finish_reason
    assert rest.finished.completion_tokens == len(whole.ids)
    assert rest.finished.ttft_s is None
    assert chain.events == []


def test_a_complete_answer_can_be_cancelled_without_harm(chat_text):
    asker, chain = Asker(), ScriptedChain([(END,)])

    async def scenario():
        async with running_head(chat_text, chain) as head, asyncio.TaskGroup() as group:
            asker.may_go.clear()
            group.create_task(head.answer(question(committed_ids=(*PARIS, END)), asker.send))
            await asker.is_being_told.wait()
            head.cancel("r1")
            asker.may_go.set()

    asyncio.run(scenario())
    assert asker.finished.completion_tokens == 8
    assert chain.events == []


def test_ids_behind_an_end_are_not_of_the_answer(chat_text):
    rest, chain = answered(chat_text, question(committed_ids=(*PARIS, END, 7042, 30)))
    assert (rest.finished.finish_reason, rest.finished.completion_tokens) == ("stop", 8)
    assert chain.events == []


@pytest.mark.parametrize("stop", [(), ("base",), ("###?",)])
def test_an_answer_longer_than_this_context_ends_with_what_was_held_back(chat_text, stop):
    """The model was loaded again with a shorter context: there is no room for another token.

    The first head had more, so it kept the half of a character, or of a stop string, to itself.
    """
    for committed in (LLAMA[:17], LLAMA[:11]):
        placed = placement(context_tokens=37 + 10)
        request = question(committed_ids=committed, next_number=11, stop=stop)
        rest, chain = answered(chat_text, request, placed=placed)
        shown, _ = answered(chat_text, question(stop=stop, max_tokens=len(committed)))
        before, _ = answered(chat_text, question(stop=stop), (*committed, *LLAMA[:1], END))
        told, _ = first_ids(before, len(committed))
        assert told + rest.text == shown.text
        assert rest.ids == ()
        assert rest.finished.finish_reason == "length"
        assert rest.finished.completion_tokens == len(committed)
        assert chain.events == []


def test_a_prompt_longer_than_this_context_is_refused_as_ever(chat_text):
    placed = placement(context_tokens=37)
    error = refused(chat_text, question(committed_ids=PARIS), placed)
    assert isinstance(error, ContextTooLongError)


def test_committed_ids_fill_the_context_like_any_others(chat_text):
    """Prompt and answer end at the same length, wherever the seam lies."""
    placed = placement(context_tokens=64)
    whole, _ = answered(chat_text, question(), (30,), placed)
    rest, chain = answered(chat_text, question(committed_ids=whole.ids[:20]), (30,), placed)
    assert rest.finished.completion_tokens == whole.finished.completion_tokens == 64 - 37
    assert sum(batch.num_tokens for batch in chain.batches) == 63


def test_a_long_committed_answer_is_computed_in_chunks(chat_text):
    committed = tuple(PARIS[:6] * 100)
    request = question(committed_ids=committed, max_tokens=602, next_number=600)
    rest, chain = answered(chat_text, request, (30,), placement(context_tokens=1024))
    assert [batch.num_logits for batch in chain.batches][:-2] == [0] * (len(chain.batches) - 2)
    fed = [int(i) for batch in chain.batches[:-1] for i in batch.token_ids]
    assert tuple(fed[37:]) == committed
    assert rest.ids == (30, 30)
    assert chain.events.count(("open", 1)) == 1


@pytest.mark.parametrize("wrong", [49152, 2**31 - 1, 2**40, -1])
def test_an_id_that_no_token_has_is_refused(chat_text, wrong):
    asker, chain = Asker(), ScriptedChain([(*PARIS, END)])

    async def scenario():
        async with running_head(chat_text, chain) as head:
            with pytest.raises(UsageError, match=f"token {wrong}, and the model knows 0 to 49151"):
                await head.answer(question(committed_ids=(504, wrong)), asker.send)
            await head.answer(question("r2"), asker.send)

    asyncio.run(scenario())
    assert asker.text == PARIS_TEXT
    assert chain.events[0] == ("open", 1), "the first sequence is that of the good one"


def test_the_draws_are_the_same_ones(chat_text):
    """Seed and settings reach the last stage as they were; positions count from the prompt."""
    sampling = SamplingParameters(temperature=0.7, seed=99, presence_penalty=1.0)
    asked = {"sampling": sampling, "seed_given": True}
    whole, first = answered(chat_text, question(**asked))
    rest, second = answered(chat_text, question(**asked, committed_ids=whole.ids[:9]))
    assert rest.accepted.seed == 99
    assert second.openings[1] == first.openings[1]
    positions = [step.past_len + step.num_tokens for b in first.batches for step in b.steps]
    again = [step.past_len + step.num_tokens for b in second.batches for step in b.steps]
    assert again == positions[9:]


def test_the_prompt_says_the_time_it_was_asked_at(chat_text):
    """Whatever the clock of the head that goes on with it."""
    template = type(chat_text.template)  # as the model's own, but it writes the date
    dated = _with_template(chat_text, template)
    request = question(asked_at="2026-02-03T23:59:59+01:00")
    asker, chain = answered(dated, request)
    prompt = [int(i) for i in chain.batches[0].token_ids]
    assert "on 03 Feb 2026 23:59" in chat_text.tokenizer.decode(prompt)
    assert asker.accepted.prompt_tokens == len(prompt)


def _with_template(chat_text, kind):
    source = "{{ messages[0].content }} on {{ strftime_now('%d %b %Y %H:%M') }}"
    return dataclasses.replace(chat_text, template=kind({"default": source}, {}))


@pytest.mark.parametrize("when", ["yesterday", "2026-13-01", "9" * 500])
def test_a_time_that_is_none_is_refused(chat_text, when):
    error = refused(chat_text, question(asked_at=when))
    assert isinstance(error, UsageError)
    assert error.what.startswith("asked_at is '")
    assert len(error.what) < 300


# ---- which placement ---------------------------------------------------------------------------


def test_a_request_for_another_placement_is_not_answered_by_this_one(chat_text):
    """Its ids may be another model's."""
    asker, chain = Asker(), ScriptedChain([(*PARIS, END)])

    async def scenario():
        async with running_head(chat_text, chain) as head:
            assert head.epoch == EPOCH
            with pytest.raises(
                PlacementError, match=f"placement {EPOCH + 1}, .* placement {EPOCH}"
            ):
                await head.answer(question(epoch=EPOCH + 1), asker.send)
            await head.answer(question(epoch=EPOCH), asker.send)

    asyncio.run(scenario())
    assert asker.text == PARIS_TEXT


# ---- the probe ---------------------------------------------------------------------------------


def test_a_probe_is_one_token_round_the_chain(chat_text):
    chain = ScriptedChain([(END,)])

    async def scenario():
        async with running_head(chat_text, chain) as head:
            await head.probe()
            assert head.num_active == 0

    asyncio.run(scenario())
    assert chain.events == [("open", 1), ("step", 1), ("close", 1)]
    (batch,) = chain.batches
    assert (batch.num_tokens, batch.num_logits) == (1, 1)


def test_a_probe_raises_what_broke_it(chat_text):
    chain = ScriptedChain([(END,)])
    chain.paused = True

    async def scenario():
        async with running_head(chat_text, chain) as head, asyncio.TaskGroup() as group:
            probe = group.create_task(_error_of(head.probe()))
            await chain.wait_for(1)
            head.on_failure(stage_failed(2))
            assert isinstance(await probe, StageProcessDiedError)
            assert isinstance(await _error_of(head.probe()), StageProcessDiedError)

    asyncio.run(scenario())
    assert len(chain.batches) == 1


def test_requests_that_run_and_that_wait_are_counted(chat_text):
    chain = ScriptedChain([(*PARIS, END)])

    async def scenario():
        chain.paused = True
        askers = [Asker() for _ in range(3)]
        placed = placement(max_sequences=1)
        async with running_head(chat_text, chain, placed) as head:
            async with asyncio.TaskGroup() as group:
                for number, asker in enumerate(askers):
                    group.create_task(head.answer(question(f"r{number}"), asker.send))
                for asker in askers:
                    await asker.wait_for(Accepted)
                assert head.num_active == 3
                chain.go_on()
            assert head.num_active == 0

    asyncio.run(scenario())


# ---- who broke it ------------------------------------------------------------------------------


def stage_failed(index, epoch=EPOCH):
    return StageFailed(
        epoch=epoch,
        stage_index=index,
        code="stage_process_died",
        what=f"Stage {index}: The stage process was ended by SIGSEGV.",
        advice="Run it again.",
    )


async def _error_of(work):
    with pytest.raises(Exception) as caught:  # noqa: PT011 - the caller looks at it
        await work
    return caught.value


def test_the_first_stage_that_breaks_the_chain_is_told_once(chat_text):
    told, chain = [], ScriptedChain([(END,)])

    async def scenario():
        async with running_head(chat_text, chain, on_broken=told.append) as head:
            head.on_failure(stage_failed(1, epoch=EPOCH + 1))
            assert told == []
            head.on_failure(stage_failed(1))
            head.on_failure(stage_failed(2))
            head.stop()
            assert told == [stage_failed(1)]

    asyncio.run(scenario())


def test_an_own_stage_that_takes_no_frames_is_told_as_the_first(chat_text):
    told, chain = [], ScriptedChain([(END,)])
    chain.error = StageProcessDiedError("Stage 0: The stage process was ended by SIGKILL.", -9)

    async def scenario():
        async with running_head(chat_text, chain, on_broken=told.append) as head:
            await _error_of(head.answer(question(), Asker().send))

    asyncio.run(scenario())
    assert [(failure.stage_index, failure.code) for failure in told] == [(0, "stage_process_died")]
    assert told[0].what == chain.error.what


def test_an_end_on_purpose_is_nobodys_failure(chat_text):
    told, chain = [], ScriptedChain([(END,)])

    async def scenario():
        async with running_head(chat_text, chain, on_broken=told.append) as head:
            head.stop()

    asyncio.run(scenario())
    assert told == []


def test_an_answer_whose_last_token_came_is_complete_though_the_chain_breaks(chat_text):
    asker, chain = Asker(), ScriptedChain([(*PARIS, END)])

    async def scenario():
        async with running_head(chat_text, chain) as head, asyncio.TaskGroup() as group:
            group.create_task(head.answer(question(), asker.send))
            await asker.wait_for(Accepted)
            asker.may_go.clear()  # it is slow: all that is left comes in one piece
            await chain.wait_for(8)
            for _ in range(5):
                await asyncio.sleep(0)
            head.on_failure(stage_failed(1))
            asker.may_go.set()

    asyncio.run(scenario())
    assert (asker.text, asker.finished.finish_reason) == (PARIS_TEXT, "stop")

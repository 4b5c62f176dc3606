"""The head: text streams, requests end on their own, and none holds up another."""

import asyncio
import json
import time
from pathlib import Path

import pytest

from engine.errors import (
    ContextTooLongError,
    InferenceError,
    PeerTimeoutError,
    PeerUnreachableError,
    PipelineBrokenError,
    StageProcessDiedError,
    UsageError,
)
from engine.messages.chain import BatchFailed, StageFailed
from engine.messages.control import Accepted, AnswerProgress, Finished, TextDelta
from engine.messages.request_body import parse_request
from engine.sampling.parameters import SamplingParameters
from tests.unit.pipeline.frames import EPOCH
from tests.unit.pipeline.scripted import (
    COMPUTE_US,
    END,
    PARIS,
    PARIS_TEXT,
    QUESTION,
    Asker,
    ScriptedChain,
    placement,
    question,
    running_head,
)

pytestmark = pytest.mark.embedded

CASES = Path(__file__).parents[2] / "vectors" / "cases"
ENDLESS = (30,)  # "." without end
K22 = json.loads((CASES / "K22.json").read_text("utf-8"))["rows"]


def run(scenario):
    asyncio.run(scenario)


def ask(chat_text, request, script=(*PARIS, END), **changes):
    """Return what the asker of one request was told, and the chain."""
    asker, chain = Asker(), ScriptedChain([script])

    async def scenario():
        async with running_head(chat_text, chain, placement(**changes)) as head:
            await head.answer(request, asker.send)

    run(scenario())
    return asker, chain


# ---- one reply ---------------------------------------------------------------------------------


def test_a_reply_is_accepted_streamed_and_finished(chat_text):
    asker, chain = ask(chat_text, question())
    kinds = [type(message) for message in asker.told]
    assert kinds[0] is Accepted
    assert kinds[-1] is Finished
    assert set(kinds[1:-1]) == {TextDelta}
    assert asker.accepted.prompt_tokens == 37
    assert asker.text == PARIS_TEXT
    assert asker.ids == (*PARIS, END)
    assert [m.number for m in asker.of(TextDelta)] == list(range(len(asker.of(TextDelta))))
    finished = asker.finished
    assert (finished.finish_reason, finished.prompt_tokens) == ("stop", 37)
    assert finished.completion_tokens == 8
    assert finished.ttft_s > 0
    assert finished.decode_s >= 0
    assert finished.chain_compute_ms == pytest.approx(COMPUTE_US / 1000)
    assert chain.events == [("open", 1), *[("step", 1)] * 8], "its first block is kept"


def test_every_token_is_streamed_as_it_comes(chat_text):
    """Not at the end: one micro-batch, one piece."""
    asker, _ = ask(chat_text, question())
    assert len(asker.of(TextDelta)) == 8
    assert [m.text for m in asker.of(TextDelta)][:2] == ["The", " capital"]


@pytest.mark.parametrize(
    "row",
    [row for row in K22 if "400" not in row["right"]],
    ids=lambda row: json.dumps(row)[:40],
)
def test_k22_limits_of_an_answer(chat_text, row):
    fields = {key: value for key, value in row.items() if key != "right"}
    body = {"messages": [{"role": "user", "content": QUESTION}], **fields}
    asker, _ = ask(chat_text, parse_request(json.dumps(body).encode(), "r1"))
    text = "The" if row["right"].startswith('"The", ') else PARIS_TEXT
    reason = row["right"].split(" (")[0].rsplit(maxsplit=1)[-1]
    assert reason in {"length", "stop"}
    assert (asker.text, asker.finished.finish_reason) == (text, reason)
    limit = fields.get("max_completion_tokens") or fields.get("max_tokens") or 8
    assert asker.finished.completion_tokens == min(8, limit)


def test_a_raw_completion_goes_on_where_the_prompt_ends(chat_text):
    request = question(messages=None, prompt="The capital of France is")
    asker, _ = ask(chat_text, request, (7042, 30, END))
    assert asker.text == " Paris."
    assert asker.accepted.prompt_tokens == 5


def test_an_end_that_is_not_wanted_is_ignored(chat_text):
    request = question(ignore_eos=True, max_tokens=12)
    asker, _ = ask(chat_text, request)
    assert asker.finished.completion_tokens == 12
    assert asker.finished.finish_reason == "length"


def test_a_stop_string_ends_the_reply_at_once(chat_text):
    asker, chain = ask(chat_text, question(stop=(" France",)), ENDLESS[:0] + PARIS + ENDLESS)
    assert asker.text == "The capital of"
    assert asker.finished.finish_reason == "stop"
    assert asker.finished.completion_tokens == 4
    assert len(chain.batches) == 4, "nothing is computed behind the end"


def test_the_context_ends_an_answer_without_limit(chat_text):
    asker, chain = ask(chat_text, question(), ENDLESS, context_tokens=64)
    assert asker.finished.finish_reason == "length"
    assert asker.finished.completion_tokens == 64 - 37
    assert sum(batch.num_tokens for batch in chain.batches) == 63


def test_a_long_prompt_is_computed_in_chunks_and_opened_once(chat_text):
    words = question(messages=({"role": "user", "content": "word " * 600},), max_tokens=2)
    asker, chain = ask(chat_text, words, context_tokens=2048)
    assert chain.events.count(("open", 1)) == 1
    assert [b.num_logits for b in chain.batches][:-2] == [0] * (len(chain.batches) - 2)
    read = [message.num_read for message in asker.of(AnswerProgress)]
    assert read[0] == chain.batches[0].num_tokens
    assert read == sorted(read)
    assert {message.queue_place for message in asker.of(AnswerProgress)} == {0}
    prompt = [int(i) for b in chain.batches[:-1] for i in b.token_ids]
    assert len(prompt) == asker.accepted.prompt_tokens > 600
    assert asker.finished.completion_tokens == 2


# ---- seeds -------------------------------------------------------------------------------------


def test_a_seed_that_was_given_is_used_and_told(chat_text):
    sampling = SamplingParameters(temperature=0.8, seed=42)
    asker, chain = ask(chat_text, question(sampling=sampling, seed_given=True))
    assert asker.accepted.seed == 42
    assert chain.openings[1].sampling == sampling
    assert chain.openings[1].num_prompt_tokens == 37


def test_without_a_seed_each_request_draws_its_own(chat_text):
    seeds = {ask(chat_text, question())[0].accepted.seed for _ in range(4)}
    assert len(seeds) == 4


# ---- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "error", "match"),
    [
        ({"max_tokens": 0}, UsageError, "max_tokens is 0"),
        ({"messages": ()}, UsageError, "messages"),
        ({"messages": None, "prompt": ""}, UsageError, "empty"),
        ({"prompt": "both"}, UsageError, "either"),
        ({"messages": None}, UsageError, "either"),
        ({"messages": ({"role": "user", "content": 5},)}, UsageError, "message 1"),
        ({"sampling": SamplingParameters(top_p=3.0)}, UsageError, "top_p"),
        ({"messages": None, "prompt": "word " * 64}, ContextTooLongError, "64 with room|holds 64"),
    ],
)
def test_a_wrong_request_reaches_no_stage(chat_text, changes, error, match):
    asker, chain = Asker(), ScriptedChain([(END,)])

    async def scenario():
        async with running_head(chat_text, chain, placement(context_tokens=64)) as head:
            with pytest.raises(error, match=match):
                await head.answer(question(**changes), asker.send)
            await head.answer(question("r2"), asker.send)

    run(scenario())
    assert chain.events == [("open", 1), ("step", 1)], "only the next, good one"
    assert asker.finished.request_id == "r2"


# ---- cancelling --------------------------------------------------------------------------------


def test_a_cancelled_reply_says_how_far_it_came_and_frees_its_place(chat_text):
    asker, chain = Asker(), ScriptedChain([ENDLESS])

    async def scenario():
        async with running_head(chat_text, chain) as head, asyncio.TaskGroup() as group:
            group.create_task(head.answer(question(max_tokens=400), asker.send))
            await asker.wait_for(TextDelta, 5)
            head.cancel("someone else's")
            head.cancel("r1")

    run(scenario())
    assert asker.finished.finish_reason == "cancelled"
    assert 5 <= asker.finished.completion_tokens == len(asker.ids) < 20
    assert chain.events[-1] == ("close", 1)


@pytest.mark.parametrize("when", ["before the first token", "in the middle"])
def test_an_asker_that_vanishes_frees_its_place(chat_text, when):
    """Its task is cancelled, or its connection is gone when it is told something."""
    chain = ScriptedChain([ENDLESS])

    async def scenario():
        async with running_head(chat_text, chain) as head:
            asker = Asker()
            chain.paused = when == "before the first token"
            async with asyncio.TaskGroup() as group:
                task = group.create_task(head.answer(question(), asker.send))
                await asker.wait_for(Accepted if chain.paused else TextDelta)
                await chain.wait_for(1)
                task.cancel()
            chain.go_on()
            lost = Asker()
            lost.error = PeerUnreachableError("The connection was closed.")
            with pytest.raises(PeerUnreachableError):
                await head.answer(question("r2"), lost.send)

    run(scenario())
    assert ("close", 1) in chain.events
    assert ("step", 2) not in chain.events or ("close", 2) in chain.events


def test_a_cancel_that_comes_before_the_prompt_is_ready_counts(chat_text):
    asker, chain = Asker(), ScriptedChain([ENDLESS])

    async def scenario():
        async with running_head(chat_text, chain) as head, asyncio.TaskGroup() as group:
            group.create_task(head.answer(question(), asker.send))
            await asyncio.sleep(0)
            head.cancel("r1")

    run(scenario())
    assert asker.finished.finish_reason == "cancelled"
    assert asker.finished.completion_tokens == 0
    assert asker.finished.ttft_s is None
    assert chain.batches == []


# ---- several at once ---------------------------------------------------------------------------


def test_replies_run_side_by_side_in_one_batch(chat_text):
    askers = [Asker() for _ in range(3)]
    chain = ScriptedChain([(*PARIS, END), (7042, 30, END), ENDLESS])

    async def scenario():
        chain.paused = True
        async with running_head(chat_text, chain) as head, asyncio.TaskGroup() as group:
            for number, asker in enumerate(askers):
                group.create_task(head.answer(question(f"r{number}", max_tokens=9), asker.send))
            for asker in askers:
                await asker.wait_for(Accepted)
            chain.go_on()

    run(scenario())
    assert sorted(a.text for a in askers) == sorted([PARIS_TEXT, " Paris.", "." * 9])
    assert max(len(batch.steps) for batch in chain.batches) == 3


def test_more_requests_than_places_wait_their_turn(chat_text):
    askers = [Asker() for _ in range(5)]
    chain = ScriptedChain([(*PARIS, END)])

    async def scenario():
        placed = placement(max_sequences=2)
        chain.paused = True
        async with running_head(chat_text, chain, placed) as head, asyncio.TaskGroup() as group:
            for number, asker in enumerate(askers):
                group.create_task(head.answer(question(f"r{number}"), asker.send))
            for asker in askers:
                await asker.wait_for(Accepted)
            for asker in askers[2:]:
                await asker.wait_for(AnswerProgress)
            chain.go_on()

    run(scenario())
    assert [a.text for a in askers] == [PARIS_TEXT] * 5
    assert [a.of(AnswerProgress)[0].queue_place for a in askers[2:]] == [1, 2, 3]
    assert not any(a.of(AnswerProgress) for a in askers[:2])
    assert max(len(batch.steps) for batch in chain.batches) == 2


def test_a_slow_asker_holds_up_nobody_and_gets_the_rest_in_one_piece(chat_text):
    slow, quick = Asker(), Asker()
    chain = ScriptedChain([(*PARIS, END)])

    async def scenario():
        async with running_head(chat_text, chain) as head, asyncio.TaskGroup() as group:
            group.create_task(head.answer(question("slow"), slow.send))
            await slow.wait_for(TextDelta)
            slow.may_go.clear()
            await head.answer(question("quick"), quick.send)
            assert quick.text == PARIS_TEXT
            assert len(slow.of(TextDelta)) <= 2
            slow.may_go.set()

    run(scenario())
    assert slow.text == PARIS_TEXT
    assert len(slow.of(TextDelta)) <= 4
    assert slow.finished.completion_tokens == 8


def test_two_requests_of_the_same_name_are_told_apart_by_their_keys(chat_text):
    """Two programs may both call their request "1"."""
    askers = [Asker(), Asker()]
    chain = ScriptedChain([ENDLESS])

    async def scenario():
        async with running_head(chat_text, chain) as head, asyncio.TaskGroup() as group:
            chain.paused = True
            for key, asker in zip("ab", askers, strict=True):
                group.create_task(head.answer(question("1", max_tokens=20), asker.send, key))
            for asker in askers:
                await asker.wait_for(Accepted)
            head.cancel("b")
            chain.go_on()

    run(scenario())
    assert [a.finished.finish_reason for a in askers] == ["length", "cancelled"]


# ---- failures ----------------------------------------------------------------------------------


def batch_failed(batch, **changes):
    fields = {
        "epoch": EPOCH,
        "batch_id": batch.batch_id,
        "stage_index": 1,
        "sequence_ids": tuple(step.sequence_id for step in batch.steps),
        "code": "inference",
        "what": "Stage 1: A NaN came out.",
        "advice": "Run it again.",
    }
    return BatchFailed(**(fields | changes))


def stage_failed(**changes):
    fields = {
        "epoch": EPOCH,
        "stage_index": 1,
        "code": "stage_process_died",
        "what": "Stage 1: The stage process was ended by SIGSEGV.",
        "advice": "Run it again.",
    }
    return StageFailed(**(fields | changes))


def test_a_batch_that_fails_fails_its_own_requests_only(chat_text):
    """With two stages there are two micro-batches under way, a request in each."""
    unlucky, lucky = Asker(), Asker()
    chain = ScriptedChain([ENDLESS, (*PARIS, END)])

    async def scenario():
        placed = placement(num_stages=2)
        async with running_head(chat_text, chain, placed) as head, asyncio.TaskGroup() as group:

            def on_batch(batch):
                numbers = [step.sequence_id for step in batch.steps]
                assert len(numbers) == 1
                if numbers == [1] and lucky.of(TextDelta):
                    head.on_failure(batch_failed(batch))
                else:
                    chain.answer(batch)

            chain.on_batch = on_batch
            chain.paused = True  # else the first might end before the second begins
            task = group.create_task(_failure(head.answer(question("a"), unlucky.send)))
            await unlucky.wait_for(Accepted)
            group.create_task(head.answer(question("b"), lucky.send))
            await lucky.wait_for(Accepted)
            chain.go_on()
            error = await task
            assert isinstance(error, InferenceError)
            assert error.what == "Stage 1: A NaN came out."

    run(scenario())
    assert unlucky.of(Finished) == []
    assert lucky.text == PARIS_TEXT
    assert ("close", 1) in chain.events


async def _failure(work):
    with pytest.raises(Exception) as caught:  # noqa: PT011 - the caller looks at it
        await work
    return caught.value


def test_a_stage_that_is_gone_fails_all_and_later_requests_get_the_reason(chat_text):
    askers = [Asker(), Asker()]
    chain = ScriptedChain([ENDLESS])
    chain.paused = True

    async def scenario():
        async with running_head(chat_text, chain) as head, asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(_failure(head.answer(question(f"r{i}"), asker.send)))
                for i, asker in enumerate(askers)
            ]
            for asker in askers:
                await asker.wait_for(Accepted)
            chain.go_on()
            for asker in askers:
                await asker.wait_for(TextDelta, 2)
            head.on_failure(stage_failed())
            head.on_failure(stage_failed(what="Stage 0: something later"))
            errors = [await task for task in tasks]
            errors.append(await _failure(head.answer(question("late"), Asker().send)))
            assert [type(e) for e in errors] == [StageProcessDiedError] * 3
            assert {e.what for e in errors} == {"Stage 1: The stage process was ended by SIGSEGV."}

    run(scenario())
    assert ("open", 3) not in chain.events


def test_a_failure_of_another_placement_is_none_of_this_one(chat_text):
    asker, chain = Asker(), ScriptedChain([(*PARIS, END)])

    async def scenario():
        async with running_head(chat_text, chain) as head, asyncio.TaskGroup() as group:
            group.create_task(head.answer(question(), asker.send))
            await asker.wait_for(TextDelta)
            head.on_failure(stage_failed(epoch=EPOCH - 1))
            head.on_failure(batch_failed(chain.batches[-1], epoch=EPOCH + 1))
            head.on_failure(batch_failed(chain.batches[-1], batch_id=999))

    run(scenario())
    assert asker.text == PARIS_TEXT


def test_a_first_stage_that_takes_no_frames_fails_its_requests(chat_text):
    chain = ScriptedChain([ENDLESS])
    chain.error = StageProcessDiedError("The stage process was ended by SIGKILL.", -9)

    async def scenario():
        async with running_head(chat_text, chain) as head:
            for name in ("first", "later"):
                with pytest.raises(StageProcessDiedError, match="SIGKILL"):
                    await head.answer(question(name), Asker().send)

    run(scenario())


def test_an_unloaded_model_ends_its_requests_with_a_reason(chat_text):
    asker, chain = Asker(), ScriptedChain([ENDLESS])

    async def scenario():
        async with running_head(chat_text, chain) as head, asyncio.TaskGroup() as group:
            task = group.create_task(_failure(head.answer(question(), asker.send)))
            await asker.wait_for(TextDelta)
            head.stop()
            assert isinstance(await task, PipelineBrokenError)

    run(scenario())


def test_an_answer_to_no_batch_under_way_changes_nothing(chat_text):
    """As after a failure that crossed it."""
    asker, chain = Asker(), ScriptedChain([(*PARIS, END)])

    async def scenario():
        async with running_head(chat_text, chain) as head:
            await head.answer(question(), asker.send)
            chain.answer(chain.batches[0])
            chain.answer(chain.batches[-1])

    run(scenario())
    assert asker.text == PARIS_TEXT


def test_a_chain_that_says_nothing_is_given_up(chat_text, monkeypatch):
    monkeypatch.setattr("engine.pipeline.live_request.TOKEN_DEADLINE_S", 0.1)
    chain = ScriptedChain([ENDLESS])
    chain.paused = True

    async def scenario():
        async with running_head(chat_text, chain) as head:
            with pytest.raises(PeerTimeoutError, match=r"No token came for 0\.1 s"):
                await head.answer(question(), Asker().send)

    run(scenario())


def test_a_chain_that_computes_for_others_is_not_given_up(chat_text, monkeypatch):
    """One that waits for its place hears nothing for long, and that is no fault."""
    monkeypatch.setattr("engine.pipeline.live_request.TOKEN_DEADLINE_S", 1.0)
    first, second = Asker(), Asker()
    chain = ScriptedChain([ENDLESS])

    async def scenario():
        def slowly(batch):
            asyncio.get_running_loop().call_later(0.1, chain.answer, batch)

        chain.on_batch = slowly
        placed = placement(max_sequences=1)
        async with running_head(chat_text, chain, placed) as head, asyncio.TaskGroup() as group:
            group.create_task(head.answer(question("a", max_tokens=12), first.send))
            await first.wait_for(Accepted)
            group.create_task(head.answer(question("b", max_tokens=2), second.send))

    run(scenario())
    assert second.finished.ttft_s > 1.05
    assert second.finished.completion_tokens == 2


def test_what_came_while_this_pc_was_held_up_is_read_before_a_chain_is_given_up(
    chat_text, monkeypatch
):
    """The loop stands still beyond the deadline; the answer, which came in time, is taken next."""
    monkeypatch.setattr("engine.pipeline.live_request.TOKEN_DEADLINE_S", 0.5)
    asker, chain = Asker(), ScriptedChain([ENDLESS])

    def late(batch):
        loop = asyncio.get_running_loop()
        # It is answered in the pass behind the one in which the deadline is found to be over.
        loop.call_later(0.4, time.sleep, 0.3)
        loop.call_later(0.41, lambda: loop.call_soon(chain.answer, batch))

    chain.on_batch = late

    async def scenario():
        async with running_head(chat_text, chain) as head:
            await head.answer(question(max_tokens=1), asker.send)

    run(scenario())
    assert asker.finished.completion_tokens == 1

"""What a request waits for, for how long, and what is said when it was in vain."""

import asyncio

import msgspec
import pytest

from engine.errors import (
    PeerUnreachableError,
    PipelineBrokenError,
    PlacementError,
    RemoteProtocolError,
)
from engine.messages.control import (
    AnswerInterrupted,
)
from engine.messages.deployment import Trouble
from tests.unit.pipeline.scripted import (
    PARIS_TEXT,
    question,
)
from tests.unit.pipeline.scripted_pool import (
    ANSWER,
    LOST,
    LOST_TOLD,
    NEAR_AND_FAR,
    SCRIPT,
    check_whole,
    failure_of,
    in_pool,
    kinds,
    stage_failed,
    undisturbed,
    wish,
)

pytestmark = pytest.mark.embedded


# ---- giving up -----------------------------------------------------------------------------------


def test_without_another_placement_the_reason_is_told_in_the_end(chat_text):
    async def scenario(pool, asker):
        pool.wait_only(mend_s=0.2)
        pool.place(1, SCRIPT)
        pool.break_at(1, 5, asker, lambda: pool.tell("planning", epoch=0))
        pool.tell()
        error = await failure_of(pool.relay.answer(question(), asker.send, "k"))
        assert (type(error), error.what, error.advice) == (
            PeerUnreachableError,
            LOST,
            "Look at it.",
        )

    in_pool(chat_text, scenario)


def test_the_reason_told_is_that_of_the_last_interruption(chat_text):
    """Not of one that was mended."""

    async def scenario(pool, asker):
        def place_anew():
            pool.place(2, SCRIPT)
            pool.tell(epoch=2)

        pool.wait_only(mend_s=0.3)
        pool.place(1, SCRIPT)
        pool.break_at(1, 5, asker, place_anew)
        pool.tell()
        task = pool._group.create_task(failure_of(pool.relay.answer(question(), asker.send, "k")))
        await asker.wait_for_ids(6)
        pool.heads[2].on_failure(stage_failed(2, "Stage 1: It burns."))
        pool.tell("planning", epoch=0)
        error = await task
        assert error.what == "Stage 1: It burns."

    asker = in_pool(chat_text, scenario)
    assert [told.what for told in asker.of(AnswerInterrupted)] == [LOST_TOLD] * 2


def test_each_change_of_the_record_gives_new_hope(chat_text):
    async def scenario(pool, asker):
        pool.wait_only(mend_s=1.0)
        pool.place(1, SCRIPT)
        pool.break_at(1, 5, asker, lambda: pool.tell("planning", epoch=0))
        pool.tell()
        task = pool._group.create_task(pool.relay.answer(question(), asker.send, "k"))
        await asker.wait_for(AnswerInterrupted)
        for _ in range(4):  # a second without would be the end of it
            await asyncio.sleep(0.3)
            pool.tell("loading", epoch=2)
        pool.place(2, SCRIPT)
        pool.tell(epoch=2)
        await task

    check_whole(in_pool(chat_text, scenario), undisturbed(chat_text, question()))


def test_a_pool_that_can_not_go_on_says_why(chat_text):
    async def scenario(pool, asker):
        trouble = Trouble("insufficient_memory", "It needs 2 GB more.", "Add a PC.")

        def fail():
            pool.tell("failed", epoch=0, trouble=trouble)

        pool.wait_only(failed_s=0.1)
        pool.place(1, SCRIPT)
        pool.break_at(1, 5, asker, fail)
        pool.tell()
        error = await failure_of(pool.relay.answer(question(), asker.send, "k"))
        assert (error.code, error.what) == ("insufficient_memory", "It needs 2 GB more.")

    in_pool(chat_text, scenario)


def test_a_pool_that_failed_for_a_moment_may_go_on(chat_text):
    async def scenario(pool, asker):
        pool.place(1, SCRIPT)
        pool.break_at(1, 5, asker, lambda: pool.tell("failed", epoch=0))
        pool.tell()
        task = pool._group.create_task(pool.relay.answer(question(), asker.send, "k"))
        await asker.wait_for(AnswerInterrupted)
        pool.place(2, SCRIPT)
        pool.tell(epoch=2)
        await task

    check_whole(in_pool(chat_text, scenario), undisturbed(chat_text, question()))


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"phase": "unloaded", "wish": None}, "The model was unloaded"),
        ({"phase": "loading", "epoch": 2, "wish": wish("gemma", "b" * 64)}, "another model: gemma"),
        ({"phase": "ready", "epoch": 2, "wish": wish("gemma", "b" * 64)}, "another model: gemma"),
    ],
)
def test_no_other_model_goes_on_with_an_answer(chat_text, fields, match):
    async def scenario(pool, asker):
        def change():
            pool.place(2, SCRIPT)
            pool.tell(**({"epoch": 0} | fields))

        pool.place(1, SCRIPT)
        pool.break_at(1, 5, asker, change)
        pool.tell()
        error = await failure_of(pool.relay.answer(question(), asker.send, "k"))
        assert isinstance(error, PipelineBrokenError)
        assert match in error.what
        assert pool.chains[2].events == []

    in_pool(chat_text, scenario)


def test_the_same_model_asked_for_again_goes_on(chat_text):
    async def scenario(pool, asker):
        other = msgspec.structs.replace(wish(), wish_id="another", context_tokens=256)

        def change():
            pool.place(2, SCRIPT, context_tokens=256)
            pool.tell(epoch=2, wish=other)

        pool.place(1, SCRIPT)
        pool.break_at(1, 5, asker, change)
        pool.tell()
        await pool.relay.answer(question(), asker.send, "k")

    check_whole(in_pool(chat_text, scenario), undisturbed(chat_text, question()))


def test_a_head_that_reads_the_prompt_otherwise_does_not_go_on(chat_text):
    async def scenario(pool, asker):
        def change():
            pool.place(2, SCRIPT)
            lie = pool.heads[2].answer

            async def answer(request, send, key):
                await lie(msgspec.structs.replace(request, messages=None, prompt="x"), send, key)

            pool.heads[2].answer = answer
            pool.tell(epoch=2)

        pool.place(1, SCRIPT)
        pool.break_at(1, 5, asker, change)
        pool.tell()
        error = await failure_of(pool.relay.answer(question(), asker.send, "k"))
        assert isinstance(error, RemoteProtocolError)
        assert "37 tokens long" in error.what

    in_pool(chat_text, scenario)


# ---- nothing to ask yet ----------------------------------------------------------------------


@pytest.mark.parametrize("record", ["none", "nothing wished", "unloaded"])
def test_without_a_model_there_is_no_answer(chat_text, record):
    async def scenario(pool, asker):
        if record != "none":
            pool.tell("unloaded" if record == "unloaded" else "ready", epoch=0, wish=None)
        error = await failure_of(pool.relay.answer(question(), asker.send, "k"))
        assert (type(error), error.what) == (PlacementError, "No model is loaded.")
        assert "daisy load" in error.advice

    assert in_pool(chat_text, scenario).told == []


@NEAR_AND_FAR
def test_a_model_that_is_being_loaded_is_waited_for(chat_text, is_near):
    async def scenario(pool, asker):
        pool.wait_only(load_s=1.0)
        pool.tell("planning", epoch=0)
        task = pool._group.create_task(pool.relay.answer(question(), asker.send, "k"))
        for phase in ("splitting", "loading", "loading", "warming"):
            await asyncio.sleep(0.3)  # all of them take longer than one may
            pool.tell(phase)
        assert asker.told == []
        pool.place(1, ANSWER)
        pool.tell()
        await task

    asker = in_pool(chat_text, scenario, is_near=is_near)
    assert kinds(asker) == ["Accepted", "TextDelta", "Finished"]
    assert asker.text == PARIS_TEXT
    assert asker.finished.ttft_s > 1.0, "as whoever asked saw it"


def test_a_model_that_takes_too_long_to_load_is_given_up(chat_text):
    async def scenario(pool, asker):
        pool.wait_only(load_s=0.3)
        pool.tell("splitting", epoch=0)
        error = await failure_of(pool.relay.answer(question(), asker.send, "k"))
        assert isinstance(error, PlacementError)
        assert "for 0.3 s the pool has been splitting it" in error.what

    assert in_pool(chat_text, scenario).told == []


def test_a_pool_that_failed_before_answers_at_once(chat_text):
    async def scenario(pool, asker):
        trouble = Trouble("storage", "The disk of PC B is full.", "Free some space.")
        pool.tell("failed", epoch=0, trouble=trouble)
        error = await failure_of(pool.relay.answer(question(), asker.send, "k"))
        assert (error.code, error.what) == ("storage", "The disk of PC B is full.")

    in_pool(chat_text, scenario)


def test_before_it_is_accepted_an_asker_is_told_of_no_interruption(chat_text):
    async def scenario(pool, asker):
        pool.unreachable.add(1)
        pool.place(1, ANSWER)
        pool.tell()
        task = pool._group.create_task(pool.relay.answer(question(), asker.send, "k"))
        await asyncio.sleep(0.05)
        pool.place(2, ANSWER)
        pool.tell(epoch=2)
        await task

    asker = in_pool(chat_text, scenario, is_near=False)
    assert kinds(asker) == ["Accepted", "TextDelta", "Finished"]

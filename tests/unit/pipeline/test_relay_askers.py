"""Wrong requests, askers that come back, that vanish, and that want no more."""

import asyncio

import pytest

from engine.errors import (
    ContextTooLongError,
    DaisyError,
    PeerUnreachableError,
    RemoteProtocolError,
    UsageError,
    VersionMismatchError,
)
from engine.messages.control import (
    Accepted,
    AnswerInterrupted,
    Cancel,
    Generate,
    TextDelta,
)
from engine.sampling.parameters import SamplingParameters
from tests.unit.pipeline.scripted import (
    Asker,
    question,
)
from tests.unit.pipeline.scripted_pool import (
    ANSWER,
    NEAR_AND_FAR,
    SCRIPT,
    check_whole,
    failure_of,
    in_pool,
    settled,
    undisturbed,
)

pytestmark = pytest.mark.embedded


# ---- errors of the request itself ----------------------------------------------------------------


@NEAR_AND_FAR
@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"max_tokens": 0}, UsageError),
        ({"messages": None, "prompt": "word " * 600}, ContextTooLongError),
        ({"committed_ids": (60000,)}, UsageError),
        ({"asked_at": "now"}, UsageError),
    ],
)
def test_a_wrong_request_is_refused_at_once(chat_text, changes, error, is_near):
    async def scenario(pool, asker):
        pool.place(1, ANSWER)
        pool.tell()
        refused = await failure_of(pool.relay.answer(question(**changes), asker.send, "k"))
        assert isinstance(refused, DaisyError)
        assert refused.code == error.code
        assert len(pool.links) <= 1

    assert in_pool(chat_text, scenario, is_near=is_near).told == []


def test_what_no_other_placement_can_mend_is_passed_on_at_once(chat_text):
    async def scenario(pool, asker):
        async def connect_head(_):
            raise VersionMismatchError("node-1: It speaks version 9.")

        pool.connect_head = connect_head
        pool.tell()
        error = await failure_of(pool.relay.answer(question(), asker.send, "k"))
        assert isinstance(error, VersionMismatchError)

    in_pool(chat_text, scenario, is_near=False)


@pytest.mark.parametrize("numbers", [[1], [0, 2]])
def test_a_piece_that_is_missing_is_not_passed_over(chat_text, numbers):
    async def scenario(pool, asker):
        async def answer(request, send, key):
            await send(Accepted(request_id="r1", prompt_tokens=3, seed=1))
            for number in numbers:
                await send(TextDelta(request_id="r1", number=number, text="x", token_ids=(1,)))

        pool.place(1, ANSWER)
        pool.heads[1].answer = answer
        pool.tell()
        error = await failure_of(pool.relay.answer(question(), asker.send, "k"))
        assert isinstance(error, RemoteProtocolError)

    in_pool(chat_text, scenario)


def test_a_piece_that_comes_twice_is_told_once(chat_text):
    async def scenario(pool, asker):
        pool.place(1, ANSWER)
        answer = pool.heads[1].answer

        async def stutter(request, send, key):
            async def twice(message):
                await send(message)
                if isinstance(message, TextDelta):
                    await send(message)

            await answer(request, twice, key)

        pool.heads[1].answer = stutter
        pool.tell()
        await pool.relay.answer(question(), asker.send, "k")

    check_whole(in_pool(chat_text, scenario), undisturbed(chat_text, question(), ANSWER))


# ---- the asker -----------------------------------------------------------------------------------


@NEAR_AND_FAR
def test_an_asker_that_lost_its_own_node_goes_on_with_what_it_has(chat_text, is_near):
    """It asks another node, or the same one again, and says what it has."""
    whole = undisturbed(chat_text, question())

    async def scenario(pool, asker):
        pool.place(1, SCRIPT)
        pool.tell()
        lost = Asker()
        task = pool._group.create_task(pool.relay.answer(question(), lost.send, "k"))
        await lost.wait_for_ids(8)
        task.cancel()
        await asyncio.wait([task])
        sampling = SamplingParameters(seed=lost.accepted.seed)
        request = question(
            committed_ids=lost.ids,
            next_number=len(lost.of(TextDelta)),
            sampling=sampling,
            seed_given=True,
        )
        await pool.relay.answer(request, asker.send, "k")
        assert lost.text + asker.text == whole.text
        assert lost.ids + asker.ids == whole.ids
        pieces = [*lost.of(TextDelta), *asker.of(TextDelta)]
        assert [piece.number for piece in pieces] == list(range(len(pieces)))
        assert asker.accepted == lost.accepted

    asker = in_pool(chat_text, scenario, is_near=is_near)
    assert settled(asker.finished) == settled(whole.finished)


def test_a_node_that_was_just_started_is_given_time_to_hear_of_the_pool(chat_text):
    """An asker goes on there; who asks for the first time is told at once that it knows nothing."""

    async def scenario(pool, asker):
        request = question(committed_ids=ANSWER[:3], next_number=3)
        task = pool._group.create_task(pool.relay.answer(request, asker.send, "k"))
        await asyncio.sleep(0.03)
        pool.place(1, ANSWER)
        pool.tell()
        await task

    assert in_pool(chat_text, scenario).ids == ANSWER[3:]


@NEAR_AND_FAR
@pytest.mark.parametrize("when", ["before the first token", "in the middle"])
def test_an_asker_that_vanishes_frees_its_place(chat_text, when, is_near):
    async def scenario(pool, asker):
        chain = pool.place(1, SCRIPT)
        chain.paused = when == "before the first token"
        pool.tell()
        task = pool._group.create_task(pool.relay.answer(question(), asker.send, "k"))
        if chain.paused:
            await chain.wait_for(1)
        else:
            await asker.wait_for_ids(3)
        task.cancel()
        await asyncio.wait([task])
        for _ in range(10):
            await asyncio.sleep(0)
        assert chain.events[-1] == ("close", 1)

    in_pool(chat_text, scenario, is_near=is_near)


@NEAR_AND_FAR
def test_an_asker_that_cannot_be_told_is_no_broken_chain(chat_text, is_near):
    """Whatever the class of the error: a piece is lost, and nothing is tried again."""

    async def scenario(pool, asker):
        pool.place(1, SCRIPT)
        pool.tell()
        lost = PeerUnreachableError("The asker's connection was closed.")
        errors = [None, None, lost]

        async def send(message):
            await asker.send(message)
            if errors and (error := errors.pop(0)) is not None:
                raise error

        assert await failure_of(pool.relay.answer(question(), send, "k")) is lost
        assert len(asker.told) == 3
        assert len(pool.chains[1].openings) == 1
        assert len(pool.links) <= 1

    in_pool(chat_text, scenario, is_near=is_near)


# ---- cancelling ----------------------------------------------------------------------------------


@NEAR_AND_FAR
def test_a_cancel_reaches_the_head(chat_text, is_near):
    async def scenario(pool, asker):
        chain = pool.place(1, (30,))
        pool.tell()
        task = pool._group.create_task(pool.relay.answer(question(), asker.send, "k"))
        await asker.wait_for_ids(5)
        pool.relay.cancel("another's")
        pool.relay.cancel("k")
        pool.relay.cancel("k")
        await task
        for _ in range(10):
            await asyncio.sleep(0)
        assert chain.events[-1] == ("close", 1)
        if not is_near:
            assert [type(m) for m in pool.links[0].sent] == [Generate, Cancel]

    asker = in_pool(chat_text, scenario, is_near=is_near)
    assert asker.finished.finish_reason == "cancelled"
    assert 5 <= asker.finished.completion_tokens == len(asker.ids) < 100


@pytest.mark.parametrize("when", ["loading", "interrupted", "trying again", "connecting"])
def test_a_cancel_ends_a_wait_at_once(chat_text, when, monkeypatch):
    async def scenario(pool, asker):
        pool.wait_only(load_s=60.0, mend_s=60.0, again_s=(60.0,))
        pool.place(1, SCRIPT)
        pool.break_at(1, 5, asker, lambda: when == "interrupted" and pool.tell("planning", epoch=0))
        pool.tell("loading" if when == "loading" else "ready")
        connecting = asyncio.Event()

        async def connect_head(_):
            connecting.set()
            await asyncio.sleep(60)

        if when == "connecting":
            pool.is_near, pool.connect_head = False, connect_head
        task = pool._group.create_task(pool.relay.answer(question(), asker.send, "k"))
        match when:
            case "loading":
                await asyncio.sleep(0.01)
            case "connecting":
                await connecting.wait()
            case _:
                await asker.wait_for(AnswerInterrupted)
                await asyncio.sleep(0.01)
        for _ in range(4):  # whoever presses Ctrl-C once may press it again
            pool.relay.cancel("k")
            await asyncio.sleep(0)
        async with asyncio.timeout(5):
            await task

    asker = in_pool(chat_text, scenario)
    assert asker.finished.finish_reason == "cancelled"
    has_begun = when in {"interrupted", "trying again"}
    assert asker.finished.completion_tokens == len(asker.ids) == (5 if has_begun else 0)
    assert asker.finished.prompt_tokens == (37 if has_begun else 0)


def test_a_head_that_does_not_answer_a_cancel_is_not_waited_for(chat_text, monkeypatch):
    monkeypatch.setattr("engine.pipeline.relay.CANCEL_WITHIN_S", 0.05)

    async def scenario(pool, asker):
        chain = pool.place(1, SCRIPT)
        pool.tell()
        task = pool._group.create_task(pool.relay.answer(question(), asker.send, "k"))
        await asker.wait_for_ids(5)
        chain.paused = True
        pool.links[0].is_deaf = True
        pool.relay.cancel("k")
        async with asyncio.timeout(5):
            await task

    asker = in_pool(chat_text, scenario, is_near=False)
    assert asker.finished.finish_reason == "cancelled"
    assert asker.finished.completion_tokens == len(asker.ids) >= 5


def test_a_chain_that_breaks_after_a_cancel_is_not_mended_for_it(chat_text):
    async def scenario(pool, asker):
        chain = pool.place(1, SCRIPT)
        pool.tell()
        task = pool._group.create_task(pool.relay.answer(question(), asker.send, "k"))
        await asker.wait_for_ids(5)
        chain.paused = True
        pool.links[0].reset()
        pool.relay.cancel("k")
        await task
        assert len(pool.links) == 1

    asker = in_pool(chat_text, scenario, is_near=False)
    assert asker.finished.finish_reason == "cancelled"
    assert asker.of(AnswerInterrupted) == []

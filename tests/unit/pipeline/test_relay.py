"""An answer outlives the PCs it came from: same text, same tokens, told where it stood still."""

import asyncio

import msgspec
import pytest

from engine.domain import LayerRange, NodeId
from engine.errors import (
    InferenceError,
    PeerUnreachableError,
    StageProcessDiedError,
)
from engine.messages.chain import BatchFailed
from engine.messages.control import Accepted, AnswerInterrupted, AnswerResumed, Finished, TextDelta
from engine.messages.deployment import PlanLine, StageShare, Trouble
from engine.sampling.parameters import SamplingParameters
from tests.unit.pipeline.scripted import (
    ENDINGS,
    question,
)
from tests.unit.pipeline.scripted_pool import (
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
)

pytestmark = pytest.mark.embedded

NAMED = {
    "stages": (
        StageShare(NodeId("node-1"), LayerRange(0, 1)),
        StageShare(NodeId("g"), LayerRange(1, 2)),
    ),
    "plan": (
        PlanLine(
            node_id=NodeId("g"),
            name="Gamma",
            role="stage",
            layers=LayerRange(1, 2),
            usable_bytes=2,
            needed_bytes=1,
            reason="It fits.",
            remedy="",
        ),
    ),
}
ENDED = Trouble("peer_unreachable", "Gamma was ended.", "Start Daisy there again.")


# ---- the loss of a PC ----------------------------------------------------------------------------


@NEAR_AND_FAR
def test_an_undisturbed_answer_is_passed_on_as_it_is(chat_text, is_near):
    async def scenario(pool, asker):
        pool.place(1, SCRIPT)
        pool.tell()
        await pool.relay.answer(question(), asker.send, "k")

    asker = in_pool(chat_text, scenario, is_near=is_near)
    check_whole(asker, undisturbed(chat_text, question()))
    assert kinds(asker) == ["Accepted", "TextDelta", "Finished"]
    assert asker.finished.chain_compute_ms > 0


@NEAR_AND_FAR
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_pc_lost_after_any_token_changes_nothing_of_the_answer(chat_text, ending, is_near):
    sampling = SamplingParameters(temperature=0.9, presence_penalty=0.5)
    request = question(**ENDINGS[ending], sampling=sampling)
    whole = undisturbed(chat_text, request)
    for count in range(len(whole.ids)):

        async def scenario(pool, asker, count=count):
            def place_anew():
                pool.tell("planning", epoch=0)
                pool.tell("loading", epoch=2)
                pool.place(2, SCRIPT)
                pool.tell(epoch=2)

            pool.place(1, SCRIPT)
            pool.break_at(1, count, asker, place_anew)
            pool.tell()
            await pool.relay.answer(request, asker.send, "k")
            first, second = pool.chains[1].openings[1], pool.chains[2].openings[1]
            assert second.num_prompt_tokens == first.num_prompt_tokens
            assert second.sampling == first.sampling, "the seed that was drawn stays"
            fed = pool.chains[2].batches[0].token_ids.tolist()
            assert fed[first.num_prompt_tokens :] == list(whole.ids[:count])

        asker = in_pool(chat_text, scenario, is_near=is_near)
        check_whole(asker, whole)
        (interrupted,) = asker.of(AnswerInterrupted)
        assert interrupted.what == LOST_TOLD
        (resumed,) = asker.of(AnswerResumed)
        assert resumed.pause_s >= 0
        told = [type(message) for message in asker.told]
        at = told.index(AnswerInterrupted)
        assert told[at : at + 3] == [AnswerInterrupted, AnswerResumed, TextDelta]
        assert told[:at].count(TextDelta) == count


@NEAR_AND_FAR
def test_an_asker_is_told_by_name_which_pc_was_lost_in_the_words_of_the_record(chat_text, is_near):
    async def scenario(pool, asker):
        def place_anew():
            pool.place(2, SCRIPT)
            pool.tell("loading", epoch=2, trouble=ENDED)

        pool.place(1, SCRIPT)
        pool.wait_only(reason_s=5.0)
        pool.break_at(1, 3, asker, place_anew)
        pool.tell(**NAMED)
        async with asyncio.TaskGroup() as group:
            group.create_task(pool.relay.answer(question(), asker.send, "k"))
            await asker.wait_for(AnswerInterrupted)
            pool.tell(epoch=2)

    asker = in_pool(chat_text, scenario, is_near=is_near)
    check_whole(asker, undisturbed(chat_text, question()))
    assert [told.what for told in asker.of(AnswerInterrupted)] == ["Gamma was ended."]


def test_an_asker_is_told_the_name_though_the_record_says_nothing_yet(chat_text):
    async def scenario(pool, asker):
        def place_anew():
            pool.place(2, SCRIPT)

        pool.place(1, SCRIPT)
        pool.break_at(1, 3, asker, place_anew)
        pool.tell(**NAMED)
        async with asyncio.TaskGroup() as group:
            group.create_task(pool.relay.answer(question(), asker.send, "k"))
            await asker.wait_for(AnswerInterrupted)
            pool.tell(epoch=2)

    asker = in_pool(chat_text, scenario)
    assert [told.what for told in asker.of(AnswerInterrupted)] == ["Gamma can't be reached."]


def test_one_pc_after_the_other_may_be_lost(chat_text):
    whole = undisturbed(chat_text, question())

    async def scenario(pool, asker):
        def place(epoch):
            pool.place(epoch, SCRIPT)
            if epoch < 8:
                pool.break_at(epoch, epoch * 2, asker, lambda: place(epoch + 1))
            pool.tell(epoch=epoch)

        place(1)
        await pool.relay.answer(question(), asker.send, "k")

    asker = in_pool(chat_text, scenario)
    check_whole(asker, whole)
    assert len(asker.of(AnswerInterrupted)) == len(asker.of(AnswerResumed)) == 7


def test_an_answer_that_is_lost_too_often_is_given_up(chat_text):
    async def scenario(pool, asker):
        def place(epoch):
            pool.place(epoch, SCRIPT)
            pool.break_at(epoch, epoch, asker, lambda: place(epoch + 1))
            pool.tell(epoch=epoch)

        place(1)
        error = await failure_of(pool.relay.answer(question(), asker.send, "k"))
        assert (type(error), error.what) == (PeerUnreachableError, LOST)

    asker = in_pool(chat_text, scenario)
    assert len(asker.of(AnswerInterrupted)) == 8
    assert asker.of(Finished) == []


def test_when_only_the_end_was_lost_another_head_tells_it_and_computes_nothing(chat_text):
    async def scenario(pool, asker):
        pool.place(1, SCRIPT)
        pool.on_link = lambda link: setattr(link, "lose", () if pool.links else (Finished,))
        pool.tell()
        task = pool._group.create_task(pool.relay.answer(question(), asker.send, "k"))
        await asker.wait_for(AnswerInterrupted)
        pool.place(2, SCRIPT)
        pool.tell(epoch=2)
        await task
        assert pool.chains[2].events == []

    asker = in_pool(chat_text, scenario, is_near=False)
    check_whole(asker, undisturbed(chat_text, question()))
    assert kinds(asker)[-3:] == ["AnswerInterrupted", "AnswerResumed", "Finished"]


def test_the_head_may_move_from_this_pc_to_another_and_back(chat_text):
    async def scenario(pool, asker):
        def moved_away():
            pool.is_near = False
            pool.place(2, SCRIPT)
            pool.break_at(2, 12, asker, moved_back)
            pool.tell(epoch=2)

        def moved_back():
            pool.is_near = True
            pool.place(3, SCRIPT)
            pool.tell(epoch=3)

        pool.place(1, SCRIPT)
        pool.break_at(1, 5, asker, moved_away)
        pool.tell()
        await pool.relay.answer(question(), asker.send, "k")
        assert len(pool.links) == 1

    check_whole(in_pool(chat_text, scenario), undisturbed(chat_text, question()))


@pytest.mark.parametrize("how", ["reset", "silent"])
def test_a_head_that_vanishes_is_given_up(chat_text, how, monkeypatch):
    """With a reset at once; without a word when the pool has given it up, not after 15 s."""
    monkeypatch.setattr("engine.pipeline.relay.SILENCE_S", 0.05)

    async def scenario(pool, asker):
        chain = pool.place(1, SCRIPT)
        pool.tell()
        task = pool._group.create_task(pool.relay.answer(question(), asker.send, "k"))
        await asker.wait_for_ids(4)
        chain.paused = True
        (link,) = pool.links
        if how == "reset":
            link.reset()
        else:
            link.is_deaf = True
            pool.tell("planning", epoch=0)
        await asker.wait_for(AnswerInterrupted)
        pool.place(2, SCRIPT)
        pool.tell(epoch=2)
        await task

    check_whole(in_pool(chat_text, scenario, is_near=False), undisturbed(chat_text, question()))


def test_a_head_that_still_answers_is_heard_out_though_the_pool_has_moved_on(chat_text):
    async def scenario(pool, asker):
        chain = pool.place(1, SCRIPT)
        chain.paused = True
        pool.tell()
        task = pool._group.create_task(pool.relay.answer(question(), asker.send, "k"))
        await asker.wait_for(Accepted)
        pool.place(2, SCRIPT)
        pool.tell(epoch=2)
        chain.go_on()
        await task
        assert pool.chains[2].events == []

    asker = in_pool(chat_text, scenario, is_near=False)
    assert kinds(asker) == ["Accepted", "TextDelta", "Finished"]


def test_a_slow_asker_is_not_taken_for_a_silent_head(chat_text, monkeypatch):
    monkeypatch.setattr("engine.pipeline.relay.SILENCE_S", 0.4)

    async def scenario(pool, asker):
        pool.place(1, SCRIPT)
        pool.tell()
        task = pool._group.create_task(pool.relay.answer(question(), asker.send, "k"))
        await asker.wait_for_ids(3)
        asker.may_go.clear()
        pool.tell(epoch=2)
        await asyncio.sleep(1.0)
        asker.may_go.set()
        await task

    asker = in_pool(chat_text, scenario, is_near=False)
    check_whole(asker, undisturbed(chat_text, question()))
    assert asker.of(AnswerInterrupted) == []


def test_a_placement_that_ends_on_purpose_is_an_interruption_too(chat_text):
    async def scenario(pool, asker):
        pool.place(1, SCRIPT)
        pool.tell()
        task = pool._group.create_task(pool.relay.answer(question(), asker.send, "k"))
        await asker.wait_for_ids(6)
        pool.tell("loading", epoch=2)
        pool.heads[1].stop()
        await asker.wait_for(AnswerInterrupted)
        pool.place(2, SCRIPT)
        pool.tell(epoch=2)
        await task

    check_whole(in_pool(chat_text, scenario), undisturbed(chat_text, question()))


def test_a_head_of_another_placement_on_this_pc_is_not_asked(chat_text):
    """One that is about to end, while the pool's is already on another PC."""

    async def scenario(pool, asker):
        stale = pool.place(9, SCRIPT)
        pool.place(1, SCRIPT)
        pool.tell()
        await pool.relay.answer(question(), asker.send, "k")
        assert stale.events == []
        assert len(pool.links) == 1

    assert kinds(in_pool(chat_text, scenario)) == ["Accepted", "TextDelta", "Finished"]


@pytest.mark.parametrize("how", ["breaks", "hangs"])
def test_what_comes_after_the_end_changes_nothing(chat_text, how, monkeypatch):
    """The asker has all of it; only the goodbye to the head goes wrong."""
    monkeypatch.setattr("engine.pipeline.relay.SILENCE_S", 0.05)

    async def scenario(pool, asker):
        async def close(_):
            if how == "breaks":
                raise PeerUnreachableError("The connection was reset.")
            pool.tell(epoch=2)
            await asyncio.sleep(60)

        pool.on_link = lambda link: setattr(link, "close", close)
        pool.place(1, SCRIPT)
        pool.tell()
        async with asyncio.timeout(10):
            await pool.relay.answer(question(), asker.send, "k")
        assert len(pool.links) == 1
        pool.links[0].abort()

    asker = in_pool(chat_text, scenario, is_near=False)
    check_whole(asker, undisturbed(chat_text, question()))
    assert kinds(asker) == ["Accepted", "TextDelta", "Finished"]


# ---- the same placement again --------------------------------------------------------------------


def test_a_micro_batch_that_failed_is_computed_again_by_the_same_placement(chat_text):
    """A stage that failed once is whole: nobody is placed anew."""

    async def scenario(pool, asker):
        chain = pool.place(1, SCRIPT)
        failures = iter(range(2))

        def on_batch(batch):
            if len(asker.ids) >= 5 and next(failures, None) is not None:
                pool.heads[1].on_failure(
                    BatchFailed(
                        epoch=1,
                        batch_id=batch.batch_id,
                        stage_index=0,
                        sequence_ids=tuple(step.sequence_id for step in batch.steps),
                        code="inference",
                        what="Stage 0: A NaN came out.",
                        advice="Run it again.",
                    )
                )
            else:
                chain.answer(batch)

        chain.on_batch = on_batch
        pool.tell()
        await pool.relay.answer(question(), asker.send, "k")

    asker = in_pool(chat_text, scenario)
    check_whole(asker, undisturbed(chat_text, question()))
    assert {told.what for told in asker.of(AnswerInterrupted)} == {"Stage 0: A NaN came out."}


def test_a_stage_that_always_fails_is_given_up_with_its_reason(chat_text):
    async def scenario(pool, asker):
        chain = pool.place(1, SCRIPT)
        chain.on_batch = lambda batch: pool.heads[1].on_failure(
            BatchFailed(
                epoch=1,
                batch_id=batch.batch_id,
                stage_index=0,
                sequence_ids=(),
                code="inference",
                what="Stage 0: A NaN came out.",
                advice="Run it again.",
            )
        )
        pool.tell()
        error = await failure_of(pool.relay.answer(question(), asker.send, "k"))
        assert (type(error), error.what) == (InferenceError, "Stage 0: A NaN came out.")
        assert len(chain.openings) == 9

    asker = in_pool(chat_text, scenario)
    assert len(asker.of(AnswerInterrupted)) == 1, "one pause, however often it was tried"


def test_a_connection_that_was_lost_alone_is_made_again(chat_text):
    """Both PCs are well, so no other placement ever comes."""

    async def scenario(pool, asker):
        chain = pool.place(1, SCRIPT)
        pool.tell()
        task = pool._group.create_task(pool.relay.answer(question(), asker.send, "k"))
        await asker.wait_for_ids(7)
        chain.paused = True
        pool.links[0].reset()
        await asker.wait_for(AnswerInterrupted)
        chain.go_on()
        await task
        assert len(pool.links) == 2

    check_whole(in_pool(chat_text, scenario, is_near=False), undisturbed(chat_text, question()))


def test_a_head_that_is_broken_is_asked_again_until_the_pool_has_another(chat_text):
    """That costs nobody anything, so it counts for no interruption."""

    async def scenario(pool, asker):
        pool.place(1, SCRIPT)
        pool.break_at(1, 5, asker)
        pool.tell()
        task = pool._group.create_task(pool.relay.answer(question(), asker.send, "k"))
        await asker.wait_for(AnswerInterrupted)
        await asyncio.sleep(0.2)
        assert not task.done()
        pool.place(2, SCRIPT)
        pool.tell(epoch=2)
        await task

    check_whole(in_pool(chat_text, scenario), undisturbed(chat_text, question()))


# ---- times ---------------------------------------------------------------------------------------


def test_times_are_those_of_the_whole_answer(chat_text):
    async def scenario(pool, asker):
        def place_anew():
            asyncio.get_running_loop().call_later(0.2, pool.tell, "ready", 2)

        pool.place(1, SCRIPT)
        pool.place(2, SCRIPT)
        pool.is_near = False
        pool.break_at(1, 5, asker, place_anew)
        pool.tell()
        await pool.relay.answer(question(), asker.send, "k")

    asker = in_pool(chat_text, scenario)
    (resumed,) = asker.of(AnswerResumed)
    assert 0.2 <= resumed.pause_s < 5
    assert asker.finished.decode_s >= resumed.pause_s
    assert 0 < asker.finished.ttft_s < asker.finished.decode_s
    assert asker.finished.completion_tokens == 21


def test_every_head_is_told_when_the_request_was_made(chat_text):
    """So that a template that writes the date makes the same prompt after midnight."""
    requests = []

    async def scenario(pool, asker):
        def watch(epoch):
            answer = pool.heads[epoch].answer

            async def watched(request, send, key):
                requests.append(request)
                await answer(request, send, key)

            pool.heads[epoch].answer = watched

        def place_anew():
            pool.place(2, SCRIPT)
            watch(2)
            pool.tell(epoch=2)

        pool.place(1, SCRIPT)
        watch(1)
        pool.break_at(1, 5, asker, place_anew)
        pool.tell()
        await pool.relay.answer(question(), asker.send, "k")

    in_pool(chat_text, scenario)
    first, second = requests
    assert first.asked_at == second.asked_at is not None
    assert (first.epoch, second.epoch) == (1, 2)
    assert (second.next_number, second.committed_ids) == (5, SCRIPT[:5])


def test_a_chain_of_stage_failures_is_not_the_askers(chat_text):
    """The reason is the stage's, with its class, wherever the head was."""

    async def scenario(pool, asker):
        pool.wait_only(mend_s=0.2)
        pool.place(1, SCRIPT)
        pool.tell()
        task = pool._group.create_task(failure_of(pool.relay.answer(question(), asker.send, "k")))
        await asker.wait_for_ids(2)
        died = msgspec.structs.replace(stage_failed(1), code="stage_process_died", what="It died.")
        pool.heads[1].on_failure(died)
        pool.tell("planning", epoch=0)
        error = await task
        assert (type(error), error.what) == (StageProcessDiedError, "It died.")

    in_pool(chat_text, scenario, is_near=False)

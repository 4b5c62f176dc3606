"""Frames leave a stage in the order they came, whatever the stage process takes its time over."""

import asyncio
from collections import deque
from contextlib import asynccontextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import (
    DaisyError,
    PeerUnreachableError,
    RemoteProtocolError,
    StageProcessDiedError,
)
from engine.messages.chain import BatchFailed, StageFailed
from engine.messages.codec import decode, encode_control, peek_type
from engine.messages.control import MessageType, Ping
from engine.pipeline.stage_server import StageServer
from tests.unit.pipeline.fake_process import FakeProcess
from tests.unit.pipeline.frames import (
    EPOCH,
    batch,
    closing,
    failed,
    opening,
    sampled,
    shown,
)


class Link:
    """A neighbour: what reached it, and the error it gives from then on."""

    def __init__(self):
        self.frames = []
        self.error = None

    async def send(self, frame):
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        self.frames.append(frame)

    @property
    def seen(self):
        return [shown(frame) for frame in self.frames]


class Stage:
    """A server between a fake process and two links."""

    def __init__(self, *, is_last=False, work=1.0):
        self.process, self.next, self.head = FakeProcess(), Link(), Link()
        send_next = None if is_last else self.next.send
        self.server = StageServer(self.process, 1, EPOCH, send_next, self.head.send, work)
        self.error = None

    async def accept(self, *frames):
        for frame in frames:
            await self.server.accept(frame)

    async def settle(self):
        for _ in range(20):
            await asyncio.sleep(0)

    @asynccontextmanager
    async def running(self):
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self._run())
            try:
                yield
                await self.settle()
            finally:
                task.cancel()

    async def _run(self):
        try:
            await self.server.run_loop()
        except DaisyError as error:
            self.error = error


def run(scenario):
    async def limited():
        async with asyncio.timeout(10):
            await scenario

    asyncio.run(limited())


def test_an_opening_waits_for_the_micro_batch_before_it():
    async def scenario():
        stage = Stage()
        async with stage.running():
            await stage.accept(opening(1), batch(1), opening(2), closing(1), batch(2))
            await stage.settle()
            assert stage.next.seen == ["open 1"], "the rest waits for batch 1"
            stage.process.answer(batch(1))
            await stage.settle()
            assert stage.next.seen == ["open 1", "batch 1", "open 2", "close 1"]
            stage.process.answer(batch(2))
        assert stage.next.seen == ["open 1", "batch 1", "open 2", "close 1", "batch 2"]
        assert [shown(f) for f in stage.process.sent] == stage.next.seen

    run(scenario())


def test_with_nothing_before_it_an_opening_goes_on_at_once():
    async def scenario():
        stage = Stage()
        await stage.accept(opening(1), closing(1))
        assert stage.next.seen == ["open 1", "close 1"]

    run(scenario())


def test_the_last_stage_keeps_openings_and_sends_tokens_to_the_head():
    async def scenario():
        stage = Stage(is_last=True)
        async with stage.running():
            await stage.accept(opening(1), batch(1), closing(1))
            stage.process.answer(sampled(1))
        assert stage.head.seen == ["tokens 1"]
        assert stage.next.seen == []
        assert [shown(f) for f in stage.process.sent] == ["open 1", "batch 1", "close 1"]

    run(scenario())


def test_a_batch_that_failed_goes_to_the_head_and_names_the_stage():
    async def scenario():
        stage = Stage()
        async with stage.running():
            await stage.accept(batch(1), closing(1), batch(2))
            stage.process.answer(failed(1))
            stage.process.answer(batch(2))
        assert stage.next.seen == ["close 1", "batch 2"]
        (told,) = [decode(frame) for frame in stage.head.frames]
        assert isinstance(told, BatchFailed)
        assert (told.stage_index, told.batch_id) == (1, 1)
        assert told.what == "Stage 1: A NaN came out."
        assert stage.error is None

    run(scenario())


@pytest.mark.parametrize("frame", [batch, opening, closing])
def test_a_frame_of_another_placement_is_counted_and_goes_nowhere(frame):
    """Sequence 1 of the last placement is not sequence 1 of this one: it must not be closed."""

    async def scenario():
        stage = Stage()
        async with stage.running():
            await stage.accept(frame(1, epoch=EPOCH - 1), frame(1, epoch=EPOCH + 1))
            await stage.accept(opening(2))
        assert stage.server.num_stale_frames == 2
        assert stage.next.seen == ["open 2"]
        assert len(stage.process.sent) == 1

    run(scenario())


@pytest.mark.parametrize("frame", [encode_control(Ping(number=1)), sampled(1), failed(1)])
def test_what_is_not_for_a_stage_is_refused(frame):
    with pytest.raises(RemoteProtocolError, match="not for a stage"):
        run(Stage().accept(frame))


def test_an_odd_number_nobody_knows_is_refused_by_a_stage():
    unknown = bytearray(encode_control(Ping(number=1)))
    unknown[4:6] = (0xFFF1).to_bytes(2, "little")
    with pytest.raises(RemoteProtocolError, match="not for a stage"):
        run(Stage().accept(bytes(unknown)))


def told_of(stage):
    return [decode(f) for f in stage.head.frames if peek_type(f) is MessageType.STAGE_FAILED]


def test_a_dying_process_tells_the_head_once():
    async def scenario():
        stage = Stage()
        async with stage.running():
            await stage.accept(opening(1), batch(1), batch(2))
            stage.process.answer(batch(1))
            stage.process.die()
            await stage.settle()
            for frame in (batch(3), closing(1), opening(2)):
                with pytest.raises(StageProcessDiedError, match=r"Stage 1: .*SIGSEGV"):
                    await stage.server.accept(frame)
        assert stage.next.seen == ["open 1", "batch 1"], "what it had answered still arrives"
        (told,) = told_of(stage)
        assert isinstance(told, StageFailed)
        assert (told.epoch, told.stage_index, told.code) == (EPOCH, 1, "stage_process_died")
        assert told.what == "Stage 1: The stage process was ended by SIGSEGV."
        assert told.advice
        assert isinstance(stage.error, StageProcessDiedError)

    run(scenario())


def test_a_next_stage_that_cannot_be_reached_is_named_as_the_one_that_failed():
    async def scenario():
        stage = Stage()
        stage.next.error = PeerUnreachableError("The connection was closed.")
        async with stage.running():
            await stage.accept(batch(1))
            stage.process.answer(batch(1))
        (told,) = told_of(stage)
        assert told.what == "Stage 2: The connection was closed."
        assert (told.stage_index, told.code) == (2, "peer_unreachable")

    run(scenario())


def test_the_end_of_the_idle_link_to_the_next_stage_is_told():
    async def scenario():
        stage = Stage()
        received = iter([closing(1)])

        async def receive():
            await asyncio.sleep(0)
            for frame in received:
                return frame
            raise PeerUnreachableError("The connection was closed.")

        with pytest.raises(PeerUnreachableError, match="Stage 2"):
            await stage.server.watch_loop(receive)
        (told,) = told_of(stage)
        assert told.what == "Stage 2: The connection was closed."
        assert told.stage_index == 2

    run(scenario())


def lost(what="The connection was closed."):
    async def receive():
        await asyncio.sleep(0)
        raise PeerUnreachableError(what)

    return receive


@pytest.mark.parametrize("frame", [opening(1), closing(1)])
def test_a_frame_that_cannot_be_passed_on_names_the_next_stage_before_it_is_refused(frame):
    """The head that sent it must not think that its own stage is to blame."""

    async def scenario():
        stage = Stage()
        stage.next.error = PeerUnreachableError("The connection was closed.")
        with pytest.raises(PeerUnreachableError, match="Stage 2"):
            await stage.server.accept(frame)
        (told,) = told_of(stage)
        assert told.stage_index == 2
        with pytest.raises(PeerUnreachableError, match="Stage 2"):
            await stage.server.accept(batch(1))
        assert len(stage.process.sent) == 1, "a broken chain computes nothing more"
        assert len(told_of(stage)) == 1

    run(scenario())


@pytest.mark.parametrize("is_last", [False, True])
def test_a_stage_that_lost_the_head_tells_the_stage_before_it(is_last):
    """Only its own connection may be gone: the head waits, and would for a long time."""

    async def scenario():
        stage, before = Stage(is_last=is_last), Link()
        stage.head.error = PeerUnreachableError("No route.")
        await stage.server.accept(opening(1), before.send)
        with pytest.raises(PeerUnreachableError, match="Stage 1: The head is lost to it"):
            await stage.server.watch_head_loop(lost())
        (told,) = [decode(frame) for frame in before.frames]
        assert (told.stage_index, told.code) == (1, "peer_unreachable")
        assert told.what == "Stage 1: The head is lost to it: The connection was closed."

    run(scenario())


def test_tokens_that_cannot_be_sent_to_the_head_break_the_chain():
    async def scenario():
        stage, before = Stage(is_last=True), Link()
        stage.head.error = PeerUnreachableError("No route.")
        async with stage.running():
            await stage.server.accept(batch(1), before.send)
            stage.process.answer(sampled(1))
        (told,) = [decode(frame) for frame in before.frames]
        assert (told.stage_index, told.what) == (1, "Stage 1: The head is lost to it: No route.")

    run(scenario())


def test_what_may_have_been_lost_with_the_connection_to_the_head_is_told_again():
    """A report that went into a connection nobody hears at the other end."""

    async def scenario():
        stage, before = Stage(), Link()
        async with stage.running():
            await stage.server.accept(opening(1), before.send)
            stage.process.die()
            await stage.settle()
            assert len(told_of(stage)) == 1
            assert before.frames == []
            stage.head.error = PeerUnreachableError("No answer within 15 s.")
            with pytest.raises(PeerUnreachableError):
                await stage.server.watch_head_loop(lost("No answer within 15 s."))
        assert [decode(frame) for frame in before.frames] == told_of(stage)

    run(scenario())


def test_what_a_later_stage_cannot_tell_the_head_is_passed_on():
    async def scenario():
        for has_head in (True, False):
            stage, before = Stage(), Link()
            stage.head.error = None if has_head else PeerUnreachableError("No route.")
            await stage.server.accept(opening(1), before.send)
            report = encode_control(
                StageFailed(epoch=EPOCH, stage_index=3, code="stage", what="w", advice="a")
            )
            received = asyncio.Queue()
            received.put_nowait(closing(1))  # nothing that a stage reports
            received.put_nowait(report)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await stage.server.watch_loop(received.get)
            assert (stage.head if has_head else before).frames == [report]

    run(scenario())


def test_the_time_of_a_layer_is_the_stages_own_on_single_tokens():
    async def scenario():
        stage = Stage(work=5.0)
        async with stage.running():
            for number in range(9):
                await stage.accept(batch(number, compute_us=70_000))
                own_us = 900_000 if number == 0 else 10_000  # the first pass is a slow one
                stage.process.answer(batch(number, compute_us=70_000 + own_us))
                await stage.settle()
                assert (stage.server.layer_ms is None) == (number < 3)
            assert stage.server.layer_ms == pytest.approx(2.0)
            for number in range(9, 30):
                await stage.accept(batch(number, num_tokens=4))
                stage.process.answer(batch(number, num_tokens=4, compute_us=90_000))
                await stage.settle()
        assert stage.server.layer_ms == pytest.approx(2.0)

    run(scenario())


def test_a_batch_that_failed_says_nothing_of_time():
    async def scenario():
        stage = Stage()
        async with stage.running():
            for number in range(6):
                await stage.accept(batch(number))
                stage.process.answer(failed(number))
        assert stage.server.layer_ms is None
        assert stage.error is None

    run(scenario())


def test_the_reason_stays_where_the_head_cannot_be_told():
    """Not the second error: who reads the log wants to know why the stage ended."""

    async def scenario():
        stage = Stage()
        stage.head.error = PeerUnreachableError("The head is gone.")
        async with stage.running():
            stage.process.die()
        assert isinstance(stage.error, StageProcessDiedError)
        assert stage.head.frames == []

    run(scenario())


KINDS = st.lists(
    st.tuples(st.sampled_from([batch, opening, closing]), st.integers(1, 3)), max_size=25
)


@settings(max_examples=100, deadline=None)
@given(frames=KINDS, answers=st.lists(st.integers(0, 3), max_size=30))
def test_frames_leave_in_the_order_they_came(frames, answers):
    """Whenever the process answers, between any two frames that come in."""

    async def scenario():
        stage = Stage()
        made = [kind(number) for kind, number in frames]
        asked = deque()

        def answer(how_many):
            for _ in range(min(how_many, len(asked))):
                stage.process.answer(asked.popleft())

        async with stage.running():
            for frame, num_answers in zip(made, [*answers, *[0] * len(made)], strict=False):
                await stage.accept(frame)
                asked.extend([frame] if peek_type(frame) is MessageType.MICRO_BATCH else [])
                answer(num_answers)
                await asyncio.sleep(0)
            answer(len(asked))
            await asyncio.sleep(0.005)
        assert stage.next.frames == made
        assert stage.process.sent == made

    run(scenario())

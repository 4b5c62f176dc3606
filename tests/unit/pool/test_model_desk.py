"""Models that are listed and dropped, with a shelf that says what it was asked."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from engine.messages.control import ErrorReport
from engine.messages.own_pc_control import AskLending, DropModel, ListModels, ModelLine
from engine.pool.model_desk import MAX_WAITING, ModelDesk
from tests.unit.pool.coordinator import ready_record, wish

FIRST, SECOND = "ab" * 32, "cd" * 32


def line(name):
    return ModelLine(model_sha256=name, name="Small", num_layers=4, num_bytes=9, is_in_use=False)


class Room:
    """A desk with a shelf of two models; ``wanted`` is what the pool is to run."""

    def __init__(self, tmp_path, wanted=None, phase="ready"):
        self.models = [FIRST, SECOND]
        self.told = []
        self.dropped = asyncio.Event()
        record = None
        if wanted is not None:
            record = ready_record(phase=phase, wish=wish(model_sha256=wanted))
        self.desk = ModelDesk(tmp_path, self, SimpleNamespace(deployment=record), self)

    async def listed(self):
        return tuple(map(line, self.models))

    async def drop(self, name, data_dir):
        self.dropped.set()
        if name not in self.models:
            return 0
        self.models.remove(name)
        return 9

    def tell_all(self, message):
        self.told.append(message)

    async def tell_facts(self):
        self.told.append("facts")

    async def ask(self, message):
        answers = []

        async def send(answer):
            answers.append(answer)

        is_its = await self.desk.serve(message, send)
        return answers[0] if is_its else None


def test_models_are_listed_with_the_one_that_runs(tmp_path):
    listed = asyncio.run(Room(tmp_path, FIRST).ask(ListModels()))
    assert [m.model_sha256 for m in listed.models] == [FIRST, SECOND]
    assert [m.is_in_use for m in listed.models] == [True, False]
    assert asyncio.run(Room(tmp_path).ask(AskLending())) is None


def test_a_model_is_dropped_and_the_others_hear_that_it_is_not_kept_here(tmp_path):
    room = Room(tmp_path, FIRST)
    left = asyncio.run(room.ask(DropModel(model_sha256=SECOND)))
    assert left.freed_bytes == 9
    assert [m.model_sha256 for m in left.models] == [FIRST]
    assert room.told == ["facts"]


def test_everywhere_is_told_to_everybody(tmp_path):
    room = Room(tmp_path)
    asyncio.run(room.ask(DropModel(model_sha256=SECOND, is_everywhere=True)))
    assert room.told == ["facts", DropModel(model_sha256=SECOND)]


def test_what_the_pool_runs_stays_and_what_it_gave_up_may_go(tmp_path):
    for phase in ("planning", "loading", "ready"):
        room = Room(tmp_path, FIRST, phase)
        answer = asyncio.run(room.ask(DropModel(model_sha256=FIRST, is_everywhere=True)))
        assert isinstance(answer, ErrorReport)
        assert answer.code == "model_in_use"
        assert room.told == []
    for phase in ("failed", "unloaded"):
        assert asyncio.run(Room(tmp_path, FIRST, phase).ask(DropModel(model_sha256=FIRST)))


def test_what_another_pc_dropped_goes_here_too_unless_it_is_in_use(tmp_path):
    async def run():
        room = Room(tmp_path, FIRST)
        async with asyncio.timeout(10), asyncio.TaskGroup() as group:
            running = group.create_task(room.desk.run())
            room.desk.told(DropModel(model_sha256=FIRST))
            room.desk.told(DropModel(model_sha256=SECOND))
            await room.dropped.wait()
            running.cancel()
        assert room.models == [FIRST]

    asyncio.run(run())


def test_no_more_is_remembered_than_there_is_room_for(tmp_path):
    async def run():
        room = Room(tmp_path)
        for _ in range(MAX_WAITING + 5):
            room.desk.told(DropModel(model_sha256=SECOND))
        assert room.desk._told.qsize() == MAX_WAITING

    asyncio.run(run())

"""When a PC lends itself: what its owner chose, what outlives a restart, and what is given back."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager

import pytest

from engine.errors import LendingPausedError
from engine.messages.control import ErrorReport
from engine.messages.own_pc_control import AskLending, ListModels, SetLending, TellIdle
from engine.pool import lending_desk
from engine.pool.lending import MAX_PAUSE_S, LendingChoice, chosen, lends, paused_for_s
from engine.pool.lending_desk import LendingDesk, LentHost

NOW_S = 1_000_000.0
WITHIN_S = 20.0


@pytest.mark.parametrize(
    ("choice", "is_idle", "is_lent"),
    [
        (LendingChoice(), False, True),
        (LendingChoice(rule="never"), True, False),
        (LendingChoice(rule="idle"), True, True),
        (LendingChoice(rule="idle"), False, False),
        (LendingChoice(paused_until_s=NOW_S + 1), True, False),
        (LendingChoice(paused_until_s=NOW_S), False, True),
    ],
)
def test_a_pc_is_lent_as_its_owner_chose(choice, is_idle, is_lent):
    assert lends(choice, NOW_S, is_idle=is_idle, is_alone=False) is is_lent


def test_a_pc_that_is_alone_in_its_pool_holds_nothing_back_from_its_owner():
    assert lends(LendingChoice(rule="never"), NOW_S, is_idle=False, is_alone=True)


def test_on_its_battery_a_pc_is_lent_only_where_its_owner_did_not_forbid_it():
    careful = chosen(LendingChoice(), None, None, NOW_S, mains_only=True)
    assert careful == LendingChoice(mains_only=True)
    assert chosen(careful, "now", None, NOW_S).mains_only

    def is_lent(choice, *, on_battery):
        return lends(choice, NOW_S, is_idle=False, is_alone=False, on_battery=on_battery)

    assert is_lent(careful, on_battery=False)
    assert not is_lent(careful, on_battery=True)
    assert is_lent(LendingChoice(), on_battery=True)


def test_a_rule_ends_a_pause_and_a_pause_leaves_the_rule():
    paused = chosen(LendingChoice(rule="idle"), None, 3600.0, NOW_S)
    assert paused == LendingChoice(rule="idle", paused_until_s=NOW_S + 3600.0)
    assert chosen(paused, None, None, NOW_S) == paused
    assert chosen(paused, None, 0.0, NOW_S) == LendingChoice(rule="idle")
    assert chosen(paused, "now", None, NOW_S) == LendingChoice(rule="now")


def test_a_pause_ends_by_itself_whatever_becomes_of_the_clock():
    paused = chosen(LendingChoice(), None, 60.0, NOW_S)
    assert paused_for_s(paused, NOW_S + 20) == 40.0
    assert paused_for_s(paused, NOW_S + 60) is None
    assert paused_for_s(paused, NOW_S - 2 * MAX_PAUSE_S) is None
    assert paused_for_s(LendingChoice(), NOW_S) is None
    longest = chosen(LendingChoice(), None, 1e9, NOW_S)
    assert paused_for_s(longest, NOW_S) == MAX_PAUSE_S


# ---- the desk ----------------------------------------------------------------------------------


class Host:
    """What runs a stage, as far as lending knows."""

    def __init__(self, happened):
        self.is_loaded = False
        self.epoch = 7
        self.done = []
        self.happened = happened

    async def place(self, placement, folder):
        self.done.append(("place", placement, folder))
        return "described"

    async def end(self, *, for_good=True):
        self.is_loaded = False
        self.done.append(("end", for_good))
        self.happened.set()

    async def probe(self, epoch):
        self.done.append(("probe", epoch))


class Room:
    """A desk, with what it told."""

    def __init__(self, tmp_path, *, is_alone):
        self.is_alone = is_alone
        self.happened = asyncio.Event()
        self.host = Host(self.happened)
        self.told = []
        self.on_battery = False
        self.desk = LendingDesk(
            tmp_path / "lending.json", lambda: self.is_alone, self.host, lambda: self.on_battery
        )
        self.desk.on_change = self._on_change
        self.answers = []

    async def _on_change(self, is_lending):
        self.told.append(is_lending)
        self.happened.set()

    async def ask(self, message):
        async def send(answer):
            self.answers.append(answer)

        is_its = await self.desk.serve(message, send)
        return self.answers[-1] if is_its else None

    async def until(self, condition):
        while not condition():
            self.happened.clear()
            await self.happened.wait()


@asynccontextmanager
async def room(tmp_path, *, is_alone=False):
    """A desk that runs.

    Yields:
        It.
    """
    made = Room(tmp_path, is_alone=is_alone)
    async with asyncio.timeout(WITHIN_S), asyncio.TaskGroup() as group:
        running = group.create_task(made.desk.run())
        yield made
        running.cancel()


def test_a_change_is_told_at_once_and_kept_over_a_restart(tmp_path):
    async def run():
        async with room(tmp_path) as first:
            assert (await first.ask(AskLending())).is_lending
            report = await first.ask(SetLending(pause_s=600.0))
            assert not report.is_lending
            assert 590 < report.paused_for_s <= 600
            await first.until(lambda: first.told == [False])
        async with room(tmp_path) as second:
            await second.until(lambda: second.told == [False])
            assert (await second.ask(SetLending(pause_s=0.0))).is_lending
            await second.until(lambda: second.told == [False, True])
            assert await second.ask(ListModels()) is None

    asyncio.run(run())


def test_a_pause_that_is_over_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(lending_desk, "LOOK_EVERY_S", 0.02)

    async def run():
        async with room(tmp_path) as here:
            await here.ask(SetLending(pause_s=0.3))
            await here.until(lambda: here.told == [False, True])

    asyncio.run(run())


def test_a_pc_that_is_unplugged_is_not_lent_until_it_is_plugged_in(tmp_path, monkeypatch):
    monkeypatch.setattr(lending_desk, "LOOK_EVERY_S", 0.02)

    async def run():
        async with room(tmp_path) as here:
            report = await here.ask(SetLending(mains_only=True))
            assert (report.is_lending, report.mains_only, report.on_battery) == (True, True, False)
            here.on_battery = True
            await here.until(lambda: here.told == [False])
            assert (await here.ask(AskLending())).on_battery
            here.on_battery = False
            await here.until(lambda: here.told == [False, True])

    asyncio.run(run())


def test_when_idle_somebody_has_to_say_so_again_and_again(tmp_path, monkeypatch):
    monkeypatch.setattr(lending_desk, "LOOK_EVERY_S", 0.02)
    monkeypatch.setattr(lending_desk, "IDLE_HOLDS_S", 0.3)

    async def run():
        async with room(tmp_path) as here:
            assert not (await here.ask(SetLending(rule="idle"))).is_lending
            await here.until(lambda: here.told == [False])
            assert (await here.ask(TellIdle(is_idle=True))).is_lending
            await here.until(lambda: here.told == [False, True])
            assert not (await here.ask(TellIdle(is_idle=False))).is_lending
            await here.until(lambda: here.told == [False, True, False])
            await here.ask(TellIdle(is_idle=True))
            await here.until(lambda: here.told[3:] == [True, False])  # the window is gone

    asyncio.run(run())


def test_who_is_no_longer_alone_holds_back_what_was_chosen(tmp_path):
    async def run():
        async with room(tmp_path, is_alone=True) as here:
            report = await here.ask(SetLending(rule="never"))
            assert (report.is_alone, report.is_lending) == (True, True)
            here.is_alone = False
            here.desk.look()
            await here.until(lambda: here.told == [False])

    asyncio.run(run())


def test_s24_no_stage_is_taken_while_paused_and_one_that_stays_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(lending_desk, "LOOK_EVERY_S", 0.02)
    monkeypatch.setattr(lending_desk, "GIVEN_BACK_WITHIN_S", 0.1)

    async def run():
        async with room(tmp_path) as here:
            lent = LentHost(here.host, here.desk)
            assert await lent.place("placement", tmp_path) == "described"
            here.host.is_loaded = True
            assert (lent.epoch, lent.is_loaded) == (7, True)
            await here.ask(SetLending(rule="never"))
            with pytest.raises(LendingPausedError):
                await lent.place("another", tmp_path)
            await here.until(lambda: ("end", True) in here.host.done)
            assert not lent.is_loaded
            await lent.probe(7)
            await lent.end(for_good=False)
            assert here.host.done[1:] == [("end", True), ("probe", 7), ("end", False)]

    asyncio.run(run())


def test_a_choice_that_cant_be_read_lends_nothing_and_one_that_cant_be_written_is_said(tmp_path):
    file = tmp_path / "lending.json"
    file.write_text("{")

    async def run():
        async with room(tmp_path) as here:
            assert not here.desk.is_lending
            file.unlink()
            file.mkdir()
            answer = await here.ask(SetLending(rule="now"))
            assert isinstance(answer, ErrorReport)
            assert answer.code == "storage"
            assert not here.desk.is_lending

    asyncio.run(run())


def test_the_clock_of_a_pause_is_the_worlds(tmp_path):
    async def run():
        async with room(tmp_path) as here:
            await here.ask(SetLending(pause_s=100.0))
            assert here.desk._choice.paused_until_s - time.time() <= 100.0

    asyncio.run(run())

"""PCs that let others in over real connections: who gets in, when, how often, and what is kept."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import asynccontextmanager

import pytest

import engine
from engine.errors import (
    GuessedCodeError,
    NotJoinableError,
    NotTrustedError,
    PairingError,
    PeerUnreachableError,
    UsageError,
    WrongCodeError,
)
from engine.messages.control import PROTOCOL_VERSION, SHARD_FORMAT, Hello
from engine.pool import reception as reception_module
from engine.pool.joining import join_by
from engine.pool.node_folder import NodeFolder
from engine.pool.reception import Reception
from engine.pool.roster_keeper import RosterKeeper
from engine.transport.endpoint import Endpoint
from engine.transport.invite_link import parse_invite_link
from engine.transport.invited import invited_by_code, invited_by_link
from engine.transport.pairing import REPLY_AFTER_S
from engine.transport.pairing_door import CODE_WITHIN_S, MAX_GUESSES
from tests.paired import pair

WITHIN_S = 30.0


class Pc:
    """A PC with a folder, a port and a reception, in one loop with the others."""

    def __init__(self, path):
        self.folder = NodeFolder(path, path.name)
        self.windows = []
        self.met = []

    async def open(self, group):
        self.keeper = RosterKeeper(self.folder)
        self.reception = Reception(self.keeper)
        self.reception.on_window = self.windows.append
        self.endpoint = Endpoint(self.hello(), group, self.keeper.trust)
        self.listener = await self.endpoint.listen(
            "127.0.0.1", 0, self._attend, self.reception.attend
        )
        self.running = group.create_task(self.reception.run())
        return self

    def hello(self):
        return Hello(
            protocol_version=PROTOCOL_VERSION,
            product_version=engine.__version__,
            shard_format=SHARD_FORMAT,
            node_id=self.folder.node_id,
        )

    @property
    def at(self):
        return f"127.0.0.1:{self.listener.port}"

    @property
    def names(self):
        return {member.entry.name for member in self.folder.roster.members}

    async def join(self, other, invited):
        await join_by(self.folder, invited, [other.at])

    async def meet(self, other):
        connection = await self.endpoint.connect(f"wss://{other.at}", other.folder.node_id)
        await connection.close("Done.")

    async def close(self):
        self.running.cancel()
        await self.listener.close()
        self.folder.close()

    async def _attend(self, connection):
        self.met.append(connection.peer.node_id)
        await connection.receive()


@asynccontextmanager
async def pcs(tmp_path, *names, paired=()):
    """PCs that run; those that are named twice know each other.

    Yields:
        Them.
    """
    async with asyncio.timeout(WITHIN_S), asyncio.TaskGroup() as group:
        made = [Pc(tmp_path / name) for name in names]
        if paired:
            pair([pc.folder for pc in made if pc.folder.path.name in paired])
        opened = [await pc.open(group) for pc in made]
        try:
            yield opened
        finally:
            for pc in opened:
                await pc.close()


def test_s03_a_code_lets_in_one_pc_which_is_met_at_once(tmp_path):
    async def run():
        async with pcs(tmp_path, "anna", "ben", "carl") as (anna, ben, carl):
            code = await anna.reception.show_code("owner")
            await ben.join(anna, invited_by_code(code))
            assert anna.names == ben.names == {"anna", "ben"}
            assert anna.windows == [True, False]
            with pytest.raises(PairingError):
                await carl.join(anna, invited_by_code(code))
            ben.keeper.trust.replace([m.certificate for m in ben.folder.roster.members])
            await ben.meet(anna)
            await anna.meet(ben)
            with pytest.raises(NotTrustedError):
                await carl.endpoint.connect(f"wss://{anna.at}", None)
            assert anna.met == [ben.folder.node_id]

    asyncio.run(run())


def test_s02_s05_without_a_code_nobody_is_paired_with_and_nobody_is_asked(tmp_path):
    async def run():
        async with pcs(tmp_path, "anna", "ben") as (anna, ben):
            for _ in range(3):
                with pytest.raises(NotJoinableError):
                    await ben.join(anna, invited_by_code("123456"))
            assert anna.names == {"anna"}
            assert anna.windows == []

    asyncio.run(run())


def test_s03_a_pc_is_what_its_own_code_said_though_another_is_shown_before_it_is_written_down(
    tmp_path,
):
    """Two windows at once: who was invited as a member must not come in by an owner's code."""

    async def run():
        async with pcs(tmp_path, "anna", "ben") as (anna, ben):
            admit = anna.reception._admit

            async def admit_late(newcomer, grants):
                await anna.reception.show_code("owner")
                return await admit(newcomer, grants)

            anna.reception._admit = admit_late
            code = await anna.reception.show_code("member")
            await ben.join(anna, invited_by_code(code))
            return anna.folder.roster.member(ben.folder.node_id).entry.role

    assert asyncio.run(run()) == "member"


@pytest.mark.parametrize("clock_s", [0.0, 4e9], ids=["1970", "2096"])
def test_s03_a_clock_that_is_set_wrong_neither_ends_a_link_nor_prolongs_it(
    tmp_path, monkeypatch, clock_s
):
    """The maker's steady clock decides; what the calendar says is shown to people and no more."""
    monkeypatch.setattr(reception_module.time, "time", lambda: clock_s)

    async def run():
        async with pcs(tmp_path, "anna", "ben", "carl") as (anna, ben, carl):
            link = await anna.reception.make_link([anna.at], "member")
            await ben.join(anna, invited_by_link(parse_invite_link(str(link))))
            monkeypatch.setattr(reception_module, "LINK_WITHIN_S", 0.05)
            late = await anna.reception.make_link([anna.at], "member")
            await asyncio.sleep(0.1)
            with pytest.raises(PairingError):
                await carl.join(anna, invited_by_link(late))
            return anna.names

    assert asyncio.run(run()) == {"anna", "ben"}


def test_s06_the_fourth_guess_is_refused_though_it_is_right_and_the_next_code_has_to_wait(tmp_path):
    async def run():
        async with pcs(tmp_path, "anna", "ben") as (anna, ben):
            code = await anna.reception.show_code("owner")
            loop = asyncio.get_running_loop()
            for i in range(MAX_GUESSES):
                began_s = loop.time()
                with pytest.raises(WrongCodeError):
                    await ben.join(anna, invited_by_code(f"{(int(code) + 1 + i) % 10**6:06}"))
                assert loop.time() - began_s >= 2 * REPLY_AFTER_S
            with pytest.raises(NotJoinableError):
                await ben.join(anna, invited_by_code(code))
            assert anna.windows == [True, False]
            with pytest.raises(GuessedCodeError):
                await anna.reception.show_code("owner")
            link = await anna.reception.make_link([anna.at], "owner")
            await ben.join(anna, invited_by_link(parse_invite_link(str(link))))
            assert anna.names == {"anna", "ben"}

    asyncio.run(run())


def test_s06_guesses_side_by_side_are_counted_one_after_the_other(tmp_path):
    async def run():
        names = [f"pc-{i}" for i in range(8)]
        async with pcs(tmp_path, "anna", *names) as (anna, *others):
            code = int(await anna.reception.show_code("owner"))
            guesses = (
                pc.join(anna, invited_by_code(f"{(code + 1 + i) % 10**6:06}"))
                for i, pc in enumerate(others)
            )
            refused = [
                error.what for error in await asyncio.gather(*guesses, return_exceptions=True)
            ]
            assert sum("is wrong" in what for what in refused) == MAX_GUESSES
            assert sum("not waiting" in what for what in refused) == len(others) - MAX_GUESSES
            assert anna.names == {"anna"}

    asyncio.run(run())


def test_a_link_is_for_one_pc_and_says_what_it_may_do(tmp_path):
    async def run():
        async with pcs(tmp_path, "anna", "ben", "carl") as (anna, ben, carl):
            link = await anna.reception.make_link(["127.0.0.1:1", anna.at], "member")
            await join_by(ben.folder, invited_by_link(link), link.addresses)
            with pytest.raises(PairingError):
                await join_by(carl.folder, invited_by_link(link), [anna.at])
            assert anna.windows == []  # a link is not announced
            ben.keeper.trust.replace([m.certificate for m in ben.folder.roster.members])
            with pytest.raises(NotTrustedError, match="no owner"):
                await ben.reception.show_code("owner")
            with pytest.raises(PeerUnreachableError):
                await join_by(carl.folder, invited_by_link(link), ["127.0.0.1:1"])

    asyncio.run(run())


def test_s04_a_link_is_of_no_use_to_whoever_answers_in_its_maker_s_place(tmp_path):
    async def run():
        async with pcs(tmp_path, "anna", "ben", "mallory") as (anna, ben, mallory):
            link = await anna.reception.make_link([mallory.at], "owner")
            await mallory.reception.show_code("owner")  # its port lets strangers in
            with pytest.raises(NotTrustedError, match="not the PC that made the invite link"):
                await join_by(ben.folder, invited_by_link(link), link.addresses)

    asyncio.run(run())


def test_a_pc_that_was_removed_is_turned_away_by_its_key_and_comes_back_with_a_new_one(tmp_path):
    async def run():
        async with pcs(tmp_path, "anna", "ben", paired=("anna", "ben")) as (anna, ben):
            await anna.keeper.remove(ben.folder.node_id)
            code = await anna.reception.show_code("owner")
            with pytest.raises(PairingError, match="could not write this one"):
                await ben.join(anna, invited_by_code(code))
            ben.folder.leave_pool()
            code = await anna.reception.show_code("owner")
            await ben.join(anna, invited_by_code(code))
            assert anna.names == {"anna", "ben"}

    asyncio.run(run())


def test_s25_a_removal_cuts_the_connection_is_told_and_draws_another_secret(tmp_path):
    names = ("anna", "ben", "carl")

    async def run():
        async with pcs(tmp_path, *names, paired=names) as (anna, ben, carl):
            told = []

            async def tell(message):
                told.append(message)
                await ben.keeper.offer(message.roster)

            anna.keeper.tell = tell
            before = anna.folder.roster.roster.secret_for(anna.folder.identity)
            open_to = [
                await carl.endpoint.connect(f"wss://{pc.at}", pc.folder.node_id)
                for pc in (anna, ben)
            ]
            loop = asyncio.get_running_loop()
            began_s = loop.time()
            await anna.keeper.remove(carl.folder.node_id)
            for connection in open_to:
                with pytest.raises(PeerUnreachableError):
                    await connection.receive()
            assert loop.time() - began_s < 1.0
            assert len(told) == 1
            for pc in (anna, ben):
                with pytest.raises(NotTrustedError):
                    await carl.endpoint.connect(f"wss://{pc.at}", pc.folder.node_id)
                now = pc.folder.roster.roster.secret_for(pc.folder.identity)
                assert now != before
                assert pc.folder.earlier_secrets == (before,)
            # What the removed owner signs counts for nothing.
            with contextlib.suppress(NotTrustedError):
                await carl.keeper.remove(ben.folder.node_id)
            with pytest.raises(NotTrustedError, match="who is no owner here"):
                await ben.keeper.offer(carl.keeper.told()[-1].roster)

    asyncio.run(run())


def test_two_owners_who_change_the_pool_at_once_lose_nothing(tmp_path):
    names = ("anna", "ben", "carl")

    async def run():
        async with pcs(tmp_path, *names, paired=names) as (anna, ben, carl):
            await anna.keeper.rename(anna.folder.node_id, "Anna")
            await ben.keeper.rename(ben.folder.node_id, "Ben")
            for _ in range(2):
                for one, other in ((anna, ben), (ben, anna), (anna, carl), (ben, carl)):
                    await other.keeper.offer(one.keeper.told()[-1].roster)
            assert anna.names == ben.names == carl.names == {"Anna", "Ben", "carl"}
            assert carl.folder.roster.roster.signed == anna.folder.roster.roster.signed

    asyncio.run(run())


def test_what_was_learned_is_there_after_a_restart(tmp_path):
    async def run():
        async with pcs(tmp_path, "anna", "ben", paired=("anna", "ben")) as (anna, ben):
            await anna.keeper.rename(ben.folder.node_id, "Study")
            await ben.keeper.offer(anna.keeper.told()[-1].roster)
            assert ben.names == {"anna", "Study"}
            node_id = ben.folder.node_id
        again = NodeFolder(tmp_path / "ben")
        assert again.roster.member(node_id).entry.name == "Study"
        again.close()

    asyncio.run(run())


def test_a_pc_cannot_remove_itself_or_one_that_is_not_there(tmp_path):
    async def run():
        async with pcs(tmp_path, "anna", "ben") as (anna, ben):
            with pytest.raises(UsageError, match="itself"):
                await anna.keeper.remove(anna.folder.node_id)
            with pytest.raises(UsageError, match="no PC"):
                await anna.keeper.remove(ben.folder.node_id)

    asyncio.run(run())


def test_what_became_of_an_invitation_can_be_asked_and_it_can_be_withdrawn(tmp_path):
    async def run():
        async with pcs(tmp_path, "anna", "ben") as (anna, ben):
            assert anna.reception.invitations().code_ended is None
            code = await anna.reception.show_code("owner")
            assert 0 < anna.reception.invitations().code_left_s <= CODE_WITHIN_S
            await anna.reception.withdraw(is_link=False)
            assert anna.reception.invitations().code_ended == "withdrawn"
            assert anna.windows == [True, False]
            with pytest.raises(NotJoinableError):
                await ben.join(anna, invited_by_code(code))
            link = await anna.reception.make_link([anna.at], "owner")
            assert anna.reception.invitations().num_links == 1
            await anna.reception.withdraw(is_link=True)
            assert anna.reception.invitations().num_links == 0
            with pytest.raises(NotJoinableError):
                await ben.join(anna, invited_by_link(parse_invite_link(str(link))))
            code = await anna.reception.show_code("owner")
            assert anna.reception.invitations().let_in is None
            await ben.join(anna, invited_by_code(code))
            told = anna.reception.invitations()
            assert (told.code_ended, told.let_in) == ("used", "ben")

    asyncio.run(run())

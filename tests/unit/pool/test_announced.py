"""Announcements sorted: members are dialled, strangers only shown while they show a code."""

from __future__ import annotations

import asyncio
import os

import pytest

from engine.messages.pool import Preference, Versions
from engine.pool.announced import Announced
from engine.pool.announcement import JOINABLE, Announcement
from engine.pool.dialling import Targets
from engine.pool.node_folder import NodeFolder
from engine.pool.participant import Identity, Participant
from engine.pool.peer_address import PeerAddress
from engine.pool.recognition import recognition_token
from engine.pool.roster_keeper import RosterKeeper
from engine.pool.sightings import Appeared, Vanished
from tests.paired import pair

HERE, THERE = "10.0.0.2", "10.0.0.3"


class World:
    """Anna's view of the network, and what Ben and a stranger announce."""

    def __init__(self, tmp_path):
        self.folders = {name: NodeFolder(tmp_path / name, name) for name in ("anna", "ben", "eve")}
        anna, ben = self.folders["anna"], self.folders["ben"]
        pair([anna, ben])
        self.keeper = RosterKeeper(anna)
        self.ben = RosterKeeper(ben)
        self.targets = Targets(anna.node_id)
        versions = Versions("1", 1, 1)
        identity = Identity(self.keeper.pool_id, anna.node_id, 1, versions)
        preference = Preference(0, True, True, 0)
        participant = Participant(identity, preference, None, 0.0)
        self.announced = Announced(self.keeper, self.targets, participant)

    def ids(self, name):
        return self.folders[name].node_id

    def hear(self, keeper, run="run1", address=HERE, **more):
        said = Announcement(run, keeper.token(run, 7420), 7420, 1, 1, **more)
        self.announced.take(Appeared(said, (address,)), 0.0)

    def addresses(self, name):
        return self.targets.addresses_of(self.ids(name))


@pytest.fixture
def world(tmp_path):
    async def made():
        return World(tmp_path)

    one = asyncio.run(made())
    yield one
    for folder in one.folders.values():
        folder.close()


def test_a_member_is_dialled_where_it_says_and_no_longer_once_it_says_goodbye(world):
    world.hear(world.ben)
    assert world.addresses("ben") == (PeerAddress(HERE, 7420),)
    assert world.announced.pools_nearby() == ()
    world.announced.take(Vanished("run1"), 1.0)
    assert world.addresses("ben") == ()


def test_a_member_that_starts_again_elsewhere_outlives_its_earlier_announcement(world):
    world.hear(world.ben, "run1", HERE)
    world.hear(world.ben, "run2", THERE)
    world.announced.take(Vanished("run1"), 1.0)
    assert world.addresses("ben") == (PeerAddress(THERE, 7420),)


def test_s28_a_stranger_is_never_dialled_and_shown_only_while_it_shows_a_code(world):
    eve = RosterKeeper(world.folders["eve"])
    world.hear(eve, "run9")
    assert world.announced.pools_nearby() == ()
    world.hear(eve, "run9", flags=frozenset({JOINABLE}), name="E\u202eve")
    (nearby,) = world.announced.pools_nearby()
    assert (nearby.name, nearby.address) == ("Eve", f"{HERE}:7420")
    assert world.targets.due({}, 100.0) == []
    world.announced.take(Vanished("run9"), 1.0)
    assert world.announced.pools_nearby() == ()


def test_a_token_of_another_port_or_start_is_a_stranger_s(world):
    token = world.ben.token("run1", 7420)
    for run, port in (("run2", 7420), ("run1", 7421)):
        said = Announcement(run, token, port, 1, 1)
        world.announced.take(Appeared(said, (HERE,)), 0.0)
    assert world.addresses("ben") == ()


def test_a_copy_of_this_pc_is_met(world):
    world.hear(world.keeper, "other-run")
    assert world.announced.clones == {"other-run"}
    (target,) = world.targets.due({}, 100.0)
    assert target.address == PeerAddress(HERE, 7420)


def test_who_becomes_a_member_is_dialled_and_who_was_removed_no_longer(world):
    eve = RosterKeeper(world.folders["eve"])

    async def run():
        world.hear(eve, "run9")
        world.hear(world.ben, "run1", THERE)
        pair([world.folders["anna"], world.folders["eve"]])
        world.keeper.trust.replace([m.certificate for m in world.keeper.known.members])
        world.hear(eve, "run9")
        assert world.addresses("eve") == (PeerAddress(HERE, 7420),)
        await world.keeper.remove(world.ids("eve"))
        world.announced.follow_roster(1.0)
        assert world.addresses("eve") == ()
        assert world.addresses("ben") == (PeerAddress(THERE, 7420),)
        # It says by the secret that was, which is known here, and is a member no more.
        world.hear(eve, "run10")
        assert world.addresses("eve") == ()

    asyncio.run(run())


def test_a_member_that_slept_through_a_removal_is_recognised_by_the_secret_that_was(world):
    async def run():
        pair([world.folders["anna"], world.folders["eve"]])
        world.keeper.trust.replace([m.certificate for m in world.keeper.known.members])
        old = world.folders["ben"].roster.roster.secret_for(world.folders["ben"].identity)
        await world.keeper.remove(world.ids("eve"))
        token = recognition_token(old, world.ids("ben"), "run1", 7420)
        world.announced.take(Appeared(Announcement("run1", token, 7420, 1, 1), (HERE,)), 0.0)
        assert world.addresses("ben") == (PeerAddress(HERE, 7420),)

    asyncio.run(run())


def test_s01_whoever_forges_a_token_is_a_stranger(world):
    token = recognition_token(os.urandom(32), world.ids("ben"), "run1", 7420)
    world.announced.take(Appeared(Announcement("run1", token, 7420, 1, 1), (HERE,)), 0.0)
    assert world.addresses("ben") == ()

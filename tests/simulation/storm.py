"""One seed: a pool in a storm, then in calm, then without its coordinator.

``python -m tests.simulation.storm SEED`` tells what happens in it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING

from engine.messages.pool import Preference
from engine.pool.heartbeat import HEARTBEAT_EVERY_S, LEASE_S
from engine.pool.membership import Lease
from engine.pool.pool_view import view
from tests.simulation.world import TICK_EVERY_S, BreachError, Process, World

if TYPE_CHECKING:
    from collections.abc import Callable

STORM_S = 25.0
NUM_FAULTS = 12
AGREE_AFTER_HEALING_S = 8.0  # beside the first heartbeat
AGREE_AFTER_A_LOSS_S = 6.0  # 4 to notice it; the claim, two writes and their way
LONGEST_DELAY_S = 2.5  # in bad air: what was sent before the calm may arrive as late
CALM_S = LONGEST_DELAY_S + LEASE_S + 1.0


@dataclass(frozen=True)
class Outcome:
    """How long agreement took, in seconds of the pool's time."""

    after_healing_s: float
    after_loss_s: float
    num_terms: int
    applied: int
    refused: int


def weather(seed: int, tell: Callable[[str], None] | None = None) -> Outcome:
    """Run one seed; raise ``BreachError`` where a rule is broken."""
    world = pool(seed, tell)
    rng = world.rng
    for _ in range(NUM_FAULTS):
        world.after(rng.uniform(0, STORM_S), rng.choice(FAULTS), world)
    world.run(STORM_S)
    heal(world)
    world.run(HEARTBEAT_EVERY_S + TICK_EVERY_S)  # one heartbeat each, or what is known is old
    after_healing_s = world.run_until_settled(AGREE_AFTER_HEALING_S)
    check_calm(world)
    leader = next(one for one in world.up() if one.participant.election.is_in_office)
    rng.choice((world.kill, world.leave))(leader)
    after_loss_s = world.run_until_settled(AGREE_AFTER_A_LOSS_S)
    return Outcome(after_healing_s, after_loss_s, len(world.office), **world.commands)


def links_that_stay_cut(seed: int) -> int:
    """Cut links at random, each in one direction, for good; return what changes late after it."""
    world = pool(seed)
    rng = world.rng
    share = rng.choice((0.1, 0.3, 0.5))
    world.run(rng.choice((0, 8)))
    links = permutations(world.processes, 2)
    world.network.cut |= {link for link in links if rng.random() < share}
    world.run(30)
    changes = world.changes
    world.run(20)
    return world.changes - changes


def sides(seed: int) -> None:
    """Cut a pool in two; each side agrees on one of its own, and both on one when it heals."""
    world = pool(seed)
    names = list(world.processes)
    world.run(8)
    some = set(world.rng.sample(names, world.rng.randrange(1, len(names))))
    links = permutations(names, 2)
    world.network.cut |= {(one, to) for one, to in links if (one in some) != (to in some)}
    world.run(2 * LEASE_S + len(names))
    for side in (some, set(names) - some):
        if not world.is_settled([world.processes[name] for name in side]):
            raise BreachError(f"seed {seed}: {side} does not agree")
    world.network.cut.clear()
    world.run(HEARTBEAT_EVERY_S + TICK_EVERY_S)
    world.run_until_settled(AGREE_AFTER_HEALING_S)


def pool(seed: int, tell: Callable[[str], None] | None = None) -> World:
    """Let two to eight PCs start within three seconds."""
    world = World(seed, tell)
    rng = world.rng
    for index in range(rng.choice((2, 2, 3, 3, 4, 5, 6, 8))):
        preference = Preference(
            rng.randrange(3), rng.random() < 0.5, rng.random() < 0.5, rng.randrange(3)
        )
        world.after(rng.uniform(0, 3), world.start, world.add("abcdefgh"[index], preference))
    return world


def heal(world: World) -> None:
    """Mend the network, wake who sleeps, and start some of those that are down."""
    world.network.cut.clear()
    world.network.loss = world.network.duplication = 0.0
    world.network.delay_s = (0.001, 0.05)
    for process in world.processes.values():
        process.write_s = (0.001, 0.2)
        process.disk_fails = False
        if process.is_paused:
            world.resume(process)
        elif process.participant is None and (len(world.up()) < 2 or world.rng.random() < 0.5):
            world.start(process)


def check_calm(world: World) -> None:
    """Nothing changes while nothing happens, and everyone sees who is there and nobody else."""
    changes = world.changes
    world.run(CALM_S)
    if world.changes != changes or not world.is_settled():
        raise BreachError("the coordinator changed without a reason")
    there = {process.node_id for process in world.up()}
    for process in world.up():
        membership = process.participant.membership
        seen = view(membership, membership.last_s)
        present = {Lease.ONLINE, Lease.SILENT}
        online = {one.heartbeat.node_id for one in seen.nodes if one.lease in present}
        if online | {process.node_id} != there:
            raise BreachError(f"{process.name} sees {online} and there are {there}")
        is_doubted = any(
            one.clones or not one.hears_us for one in seen.nodes if one.lease in present
        )
        if is_doubted or seen.one_way or seen.no_link or seen.double:
            raise BreachError(f"{process.name} doubts the pool: {seen}")


# ---- what can go wrong -----------------------------------------------------------------------


def _later(world: World, delay_s: float, call: Callable[..., None], *arguments: object) -> None:
    """Let something happen later, unless the storm is over by then."""
    if world.now_s + delay_s < STORM_S:
        world.after(delay_s, call, *arguments)


def _any_up(world: World) -> Process | None:
    up = world.up()
    return world.rng.choice(up) if up else None


def _crash(world: World) -> None:
    process = _any_up(world)
    if process is not None:
        world.kill(process)
        if world.rng.random() < 0.7:
            _later(world, world.rng.uniform(0.05, 6), _restart, world, process)


def _restart(world: World, process: Process) -> None:
    if process.participant is None:
        world.start(process)


def _quit(world: World) -> None:
    process = _any_up(world)
    if process is not None:
        world.leave(process)
        _later(world, world.rng.uniform(0.05, 6), _restart, world, process)


def _sleep(world: World) -> None:
    process = _any_up(world)
    if process is not None:
        world.pause(process, unseen=world.rng.random() < 0.5)
        _later(world, world.rng.uniform(0.2, 9), _wake, world, process, process.life)


def _wake(world: World, process: Process, life: int) -> None:
    if process.is_paused and process.life == life:
        world.resume(process)


def _cut(world: World) -> None:
    """Cut the PCs in two, both ways or one."""
    names = list(world.processes)
    side = set(world.rng.sample(names, world.rng.randrange(1, len(names) + 1)))
    is_one_way = world.rng.random() < 0.4
    for one, other in permutations(names, 2):
        if one in side and other not in side:
            world.network.cut |= {(one, other)} if is_one_way else {(one, other), (other, one)}
    _later(world, world.rng.uniform(0.5, 12), world.network.cut.clear)


def _cut_link(world: World) -> None:
    """Cut single links, each in one direction."""
    names = list(world.processes)
    for _ in range(world.rng.randrange(1, 4)):
        one, other = world.rng.sample(names, 2)
        world.network.cut.add((one, other))
        _later(world, world.rng.uniform(0.5, 12), world.network.cut.discard, (one, other))


def _flap(world: World) -> None:
    one, other = world.rng.sample(list(world.processes), 2)
    for turn in range(8):
        change = world.network.cut.add if turn % 2 == 0 else world.network.cut.discard
        _later(world, turn * world.rng.uniform(0.2, 1.5), change, (one, other))


def _bad_air(world: World) -> None:
    network = world.network
    network.loss = world.rng.choice((0.0, 0.1, 0.4))
    network.duplication = world.rng.choice((0.0, 0.2))
    network.delay_s = world.rng.choice(((0.001, 0.01), (0.01, 0.6), (0.1, LONGEST_DELAY_S)))


def _bad_disk(world: World) -> None:
    process = _any_up(world)
    if process is not None:
        process.write_s = (0.2, 3.0)
        process.disk_fails = world.rng.random() < 0.5


def _resign(world: World) -> None:
    leaders = [one for one in world.up() if one.participant.election.is_in_office]
    if leaders:
        world.resign(world.rng.choice(leaders))


FAULTS = (_crash, _quit, _sleep, _cut, _cut_link, _flap, _bad_air, _bad_disk, _resign)


if __name__ == "__main__":
    try:
        print(weather(int(sys.argv[1]), print))  # noqa: T201
    except BreachError as breach:
        sys.exit(f"seed {sys.argv[1]}: {breach}")

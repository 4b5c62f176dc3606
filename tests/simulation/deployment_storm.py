"""One seed: a pool that loads a model in a storm, then in calm, then without one of its PCs.

``python -m tests.simulation.deployment_storm SEED`` tells what happens in it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.errors import DaisyError
from engine.messages.deployment import Wish
from engine.pool.deployment_plan import plan_for
from engine.pool.deployment_troubles import Ledger
from tests.simulation.deployment_nodes import Pc, crash_stage, notice_cut
from tests.simulation.deployment_world import Weather, World, is_ready, leaders, run_until_ready
from tests.simulation.world import BreachError
from tests.unit.pool.models import MIB, model

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.pool.deployment_state import State

STORMS = ((40.0, 5), (40.0, 14), (150.0, 14), (150.0, 40))  # seconds, and what happens in them
LAYER = 100 * MIB
QUIET_S = 45.0
SETTLED_WITHIN_S = 800.0  # a load that hangs, 600; the long wait after too many attempts, 120
RECOVERED_WITHIN_S = 60.0


@dataclass(frozen=True)
class Outcome:
    """How long it took to be ready, in seconds of the pool's time."""

    after_healing_s: float
    after_loss_s: float | None  # None where what was left could not hold the model
    orders: dict[str, int]
    moves: frozenset[tuple[State, State]]


def storm(seed: int, tell: Callable[[str], None] | None = None) -> Outcome:
    """Run one seed; raise ``BreachError`` where a rule is broken."""
    world = World(seed, tell)
    rng = world.rng
    for name in "abcde"[: rng.choice((1, 2, 2, 3, 3, 4, 5))]:
        world.add(name, rng.choice((900, 1200, 1600, 2400)) * MIB)
    world.after(rng.uniform(0, 3), ask, world)
    world.storm_s, num_faults = rng.choice(STORMS)
    for _ in range(num_faults):
        world.after(rng.uniform(0, world.storm_s), rng.choice(FAULTS), world)
    world.run(world.storm_s)
    heal(world)
    after_healing_s = run_until_ready(world, SETTLED_WITHIN_S)
    check_quiet(world)
    after_loss_s = lose_one(world)
    return Outcome(after_healing_s, after_loss_s, world.rules.counts, frozenset(world.moves))


def ask(world: World) -> None:
    """Let somebody ask for a model that the whole pool can hold."""
    up = [pc for pc in world.pcs.values() if pc.is_up]
    if not up:
        return
    asker = world.rng.choice(up)
    wish_id = f"w{len(world.wishes)}"
    for num_layers in range(world.rng.choice((2, 4, 8, 12)), 0, -1):
        a_model = model(num_layers, LAYER)
        wish = Wish(
            wish_id=wish_id,
            asked_on=asker.name,
            model_sha256=f"model{num_layers}",
            model=a_model,
            context_tokens=world.rng.choice((32, 1024)),
            max_sequences=world.rng.choice((1, 4)),
            mode=world.rng.choice(("fast", "exact")),
        )
        if is_possible(world, wish, list(world.pcs.values())):
            world.wish(asker, wish, wish_id)
            return


def is_possible(world: World, wish: Wish, pcs: list[Pc]) -> bool:
    """Return whether PCs hold the model when nothing is wrong with them."""
    names = {pc.name for pc in pcs}
    nodes = {name: seen for name, seen in world.reports.items() if name in names}
    if names - nodes.keys():
        return False
    try:
        plan_for(wish, nodes, Ledger())
    except DaisyError:
        return False
    return True


def heal(world: World) -> None:
    """Mend what is broken, start what is down, and do what the record advises."""
    world.say(next(iter(world.pcs.values())), "---- calm ----")
    world.weather = Weather()
    world.cut.clear()
    world.hangs = False
    for pc in world.pcs.values():
        pc.faults.clear()
        pc.doing.pop("keep", None)  # nobody waits for it for longer than it takes to ask another
        pc.memory_bytes = pc.full_bytes
        pc.island = 0
        if not pc.is_up:
            world.start(pc)
        elif pc.lasting:
            restart(world, pc)
        world.report(pc)
    world._elect_later()
    world.run(3)
    leader = leaders(world)[0]
    for node_id in leader.machine.ledger.left_out:
        restart(world, world.pcs[node_id])
    world.run(3)
    wish = leaders(world)[0].machine.wish
    if wish is None or not is_possible(world, wish, list(world.pcs.values())):
        ask(world)
        world.run(2)


def restart(world: World, pc: Pc) -> None:
    """End it and start it, too fast for its lease to run out."""
    world.kill(pc)
    world.start(pc)


def check_quiet(world: World) -> None:
    """Nothing is loaded anew while nothing happens; nobody runs what nobody needs."""
    record = leaders(world)[0].record
    world.run(QUIET_S)
    now = leaders(world)[0].record
    if now.epoch != record.epoch or not is_ready(world):
        raise BreachError("the placement changed without a reason")
    chain = {share.node_id for share in now.stages}
    for pc in world.pcs.values():
        if pc.epoch != (now.epoch if pc.name in chain else 0):
            raise BreachError(f"{pc.name} runs {pc.epoch}, and {now.epoch} is ready")
        if pc.record != now:
            raise BreachError(f"{pc.name} has another record")
    keepers = [pc for pc in world.pcs.values() if now.wish.model_sha256 in pc.kept]
    if len(keepers) < min(2, len(world.pcs)):
        raise BreachError(f"only {len(keepers)} keep the model")


def lose_one(world: World) -> float | None:
    """Kill a PC, if the others can go on without it; they do."""
    lost = world.rng.choice(list(world.pcs.values()))
    others = [pc for pc in world.pcs.values() if pc is not lost]
    wish = leaders(world)[0].record.wish
    has_keeper = any(wish.model_sha256 in pc.kept for pc in others)
    if not others or not has_keeper or not is_possible(world, wish, others):
        return None
    world.kill(lost)
    world.run(5)
    return 5 + run_until_ready(world, RECOVERED_WITHIN_S)


# ---- what can go wrong -----------------------------------------------------------------------


def _any_up(world: World) -> Pc | None:
    up = [pc for pc in world.pcs.values() if pc.is_up]
    return world.rng.choice(up) if up else None


def _later(world: World, delay_s: float, call: Callable[..., None], *arguments: object) -> None:
    """Let something happen later, unless the storm is over by then."""
    if world.now_s + delay_s < world.storm_s:
        world.after(delay_s, call, *arguments)


def _start(world: World, pc: Pc) -> None:
    if not pc.is_up:
        world.start(pc)


def _crash(world: World) -> None:
    pc = _any_up(world)
    if pc is not None:
        world.kill(pc)
        if world.rng.random() < 0.8:
            _later(world, world.rng.uniform(0.05, 8), _start, world, pc)


def _restart(world: World) -> None:
    pc = _any_up(world)
    if pc is not None:
        restart(world, pc)


def _leave(world: World) -> None:
    """Give the office to somebody else."""
    for pc in leaders(world):
        world.leave_office(pc)
    world._elect_later()


def _apart(world: World) -> None:
    """Put some PCs on an island of their own for a while."""
    pc = _any_up(world)
    if pc is not None:
        world.move(pc, world.rng.randrange(3))
        _later(world, world.rng.uniform(0.5, 10), world.move, pc, 0)


def _crash_stage(world: World) -> None:
    pc = _any_up(world)
    if pc is not None:
        crash_stage(world, pc)


def _fault(world: World) -> None:
    """Let something fail next time, or until the PC restarts."""
    pc = _any_up(world)
    if pc is None:
        return
    kind = world.rng.choice(("split", "load", "load", "warm-up"))
    code = world.rng.choice(CODES)
    if world.rng.random() < 0.3:
        pc.lasting[kind] = code
    else:
        pc.faults.setdefault(kind, []).extend([code] * world.rng.randrange(1, 4))
    world.say(pc, f"will fail in {kind}: {code}")


def _hang(world: World) -> None:
    world.hangs = world.rng.random() < 0.3


def _lose(world: World) -> None:
    """Lose messages for a while."""
    world.weather.loss = world.rng.choice((0.0, 0.1, 0.4))
    world.weather.delay_s = world.rng.choice(((0.005, 0.05), (0.1, 2.0)))
    world.weather.report_s = world.rng.choice(((0.01, 0.3), (0.5, 4.0)))


def _cut_link(world: World) -> None:
    names = list(world.pcs)
    if len(names) > 1:
        link = frozenset(world.rng.sample(names, 2))
        world.cut.add(link)
        notice_cut(world, link)
        _later(world, world.rng.uniform(1, 20), world.cut.discard, link)


def _memory(world: World) -> None:
    """Let a PC's owner take memory, or give it back."""
    pc = _any_up(world)
    if pc is not None:
        pc.memory_bytes = int(pc.full_bytes * world.rng.choice((0.2, 0.6, 0.95, 1.0)))
        world.report(pc)


def _ask(world: World) -> None:
    ask(world)


def _unload(world: World) -> None:
    pc = _any_up(world)
    if pc is not None:
        world.wish(pc, None, f"w{len(world.wishes)}")


CODES = (
    "golden_step",
    "compile",
    "storage",
    "stage_process_died",
    "inference",
    "peer_timeout",
    "transport",
    "unheard_of",
)
FAULTS = (
    _crash,
    _crash,
    _restart,
    _leave,
    _apart,
    _crash_stage,
    _fault,
    _fault,
    _hang,
    _lose,
    _cut_link,
    _memory,
    _ask,
    _ask,
    _unload,
)


if __name__ == "__main__":
    try:
        print(storm(int(sys.argv[1]), print))  # noqa: T201
    except BreachError as breach:
        sys.exit(f"seed {sys.argv[1]}: {breach}")

"""PCs that do what a coordinator orders: slowly, wrongly, or not at all."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from engine.messages.deployment import Trouble
from engine.pool.deployment_inputs import (
    Progressed,
    SplitEnded,
    StageLoaded,
    StageTrouble,
    WarmEnded,
)
from engine.pool.deployment_orders import (
    OrderEnd,
    OrderKeep,
    OrderPlacement,
    OrderSplit,
    OrderWarmUp,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.domain import NodeId
    from engine.messages.deployment import Deployment
    from engine.messages.pool import Term
    from engine.pool.deployment_orders import Order
    from engine.pool.deployment_state import Coordination
    from tests.simulation.deployment_world import World

PROGRESS_EVERY_S = 1.0


@dataclass(eq=False)
class Task:
    """Something a PC is at."""

    kind: str
    epoch: int
    life: int
    finish: Callable[[], None]
    until_s: float


@dataclass(eq=False)
class Pc:
    """One PC: what survives a crash, and what does not."""

    name: NodeId
    memory_bytes: int
    full_bytes: int = 0  # of it, when nobody else takes any
    kept: set[str] = field(default_factory=set)
    shards: set[str] = field(default_factory=set)  # manifests whose shards it has
    record: Deployment | None = None
    is_up: bool = True
    incarnation: int = 0
    life: int = 0  # what was begun in an earlier one is void
    island: int = 0
    accepted: Term | None = None
    term: Term | None = None  # while it is in office
    machine: Coordination | None = None
    epoch: int = 0  # of the stage that is loaded
    lent_bytes: int = 0
    doing: dict[str, Task] = field(default_factory=dict)
    faults: dict[str, list[str]] = field(default_factory=dict)  # kind: codes, the next one last
    lasting: dict[str, str] = field(default_factory=dict)  # kind: code, until it restarts
    wish_id: str | None = None  # that it tells the coordinator


def obey(world: World, pc: Pc, order: Order) -> None:
    """Let a PC begin with what it is ordered."""
    match order:
        case OrderSplit():
            _split(world, pc, order)
        case OrderPlacement():
            _load(world, pc, order)
        case OrderWarmUp():
            _warm_up(world, pc, order)
        case OrderKeep():
            _keep(world, pc, order)
        case OrderEnd():
            _end(world, pc, order)


def _begin(
    world: World, pc: Pc, kind: str, epoch: int, longest_s: float, finish: Callable[[], None]
) -> None:
    """Do something for a while; the same again changes nothing, another one replaces it."""
    if kind in pc.doing and pc.doing[kind].epoch == epoch:
        return
    task = Task(kind, epoch, pc.life, finish, world.now_s + world.rng.uniform(0.2, longest_s))
    pc.doing[kind] = task
    if world.hangs and world.rng.random() < 0.2:
        world.say(pc, f"hangs in {kind} {epoch}")
        return
    _work(world, pc, task)


def _work(world: World, pc: Pc, task: Task) -> None:
    if pc.life != task.life or pc.doing.get(task.kind) is not task:
        return
    if world.now_s >= task.until_s:
        del pc.doing[task.kind]
        task.finish()
        return
    world.answer(pc, Progressed(pc.name, task.epoch))
    delay_s = min(PROGRESS_EVERY_S, task.until_s - world.now_s)
    world.after(delay_s, _work, world, pc, task)


def _fault(world: World, pc: Pc, kind: str) -> Trouble | None:
    code = pc.lasting.get(kind)
    if code is None and pc.faults.get(kind):
        code = pc.faults[kind].pop()
    if code is None:
        return None
    world.say(pc, f"{kind} fails: {code}")
    return Trouble(code, f"{code} on {pc.name}.", "Look at it.")


def crash_stage(world: World, pc: Pc) -> None:
    """End its stage process; its engine tells so, unless that gets lost."""
    epoch = pc.epoch
    if epoch:
        end(world, pc, "its stage process dies")
        trouble = Trouble("stage_process_died", f"{pc.name}'s stage ended.", "Run it again.")
        world.answer(pc, StageTrouble(pc.name, epoch, trouble))


def end(world: World, pc: Pc, why: str) -> None:
    """End its stage, or the loading of one."""
    world.say(pc, why)
    pc.epoch = pc.lent_bytes = 0
    pc.doing.pop("load", None)
    world.report(pc)


def notice_cut(world: World, link: frozenset[NodeId]) -> None:
    """Let the head of a chain that needs a link say that it is gone."""
    for head in world.pcs.values():
        record = head.record
        if record is None or not head.epoch or record.epoch != head.epoch:
            continue
        chain = [share.node_id for share in record.stages]
        if chain[0] == head.name and link <= set(chain):
            trouble = Trouble("transport", "The chain broke.", "Look.")
            world.answer(head, StageTrouble(chain[-1], head.epoch, trouble))


def _split(world: World, pc: Pc, order: OrderSplit) -> None:
    _begin(world, pc, "split", order.epoch, 3.0, partial(_finish_split, world, pc, order))


def _finish_split(world: World, pc: Pc, order: OrderSplit) -> None:
    trouble = _fault(world, pc, "split")
    if order.wish.model_sha256 not in pc.kept:
        trouble = Trouble("model_not_found", f"{pc.name} has no such model.", "Copy it.")
    manifest = f"{order.wish.model_sha256}/{'/'.join(map(str, order.layers))}"
    if trouble is None:
        pc.shards.add(manifest)
    manifest_sha256 = manifest if trouble is None else None
    world.answer(pc, SplitEnded(pc.name, order.epoch, manifest_sha256, trouble))


def _load(world: World, pc: Pc, order: OrderPlacement) -> None:
    epoch = order.record.epoch
    if pc.epoch == epoch:
        world.answer(pc, StageLoaded(pc.name, epoch))
        return
    if pc.epoch:
        end(world, pc, f"ends {pc.epoch} for {epoch}")
    _begin(world, pc, "load", epoch, 5.0, partial(_finish_load, world, pc, order.record))


def _finish_load(world: World, pc: Pc, record: Deployment) -> None:
    trouble = _fault(world, pc, "load") or _why_not(world, pc, record)
    if trouble is not None:
        world.answer(pc, StageTrouble(pc.name, record.epoch, trouble))
        return
    pc.shards.add(record.manifest_sha256)
    pc.epoch = record.epoch
    pc.lent_bytes = pc.memory_bytes // 3
    world.say(pc, f"runs {pc.epoch}")
    world.answer(pc, StageLoaded(pc.name, record.epoch))
    world.report(pc)


def _why_not(world: World, pc: Pc, record: Deployment) -> Trouble | None:
    has = [o for o in world.pcs.values() if world.reaches(pc, o) or o is pc]
    if not any(record.manifest_sha256 in other.shards for other in has):
        return Trouble("shard_corrupt", f"{pc.name} finds no shards.", "Split it again.")
    chain = [share.node_id for share in record.stages]
    after = world.pcs[chain[(chain.index(pc.name) + 1) % len(chain)]]
    if after is not pc and not _is_link(world, pc, after):
        return Trouble("peer_unreachable", f"{pc.name} can't reach {after.name}.", "Look.")
    return None


def _is_link(world: World, one: Pc, other: Pc) -> bool:
    return world.reaches(one, other) and frozenset({one.name, other.name}) not in world.cut


def _warm_up(world: World, pc: Pc, order: OrderWarmUp) -> None:
    _begin(world, pc, "warm-up", order.epoch, 1.0, partial(_finish_warm_up, world, pc, order.epoch))


def _finish_warm_up(world: World, pc: Pc, epoch: int) -> None:
    trouble = _fault(world, pc, "warm-up")
    if pc.epoch != epoch:
        trouble = Trouble("placement", f"{pc.name} is no head of {epoch}.", "Try again.")
    elif _broken_at(world, epoch) is not None:
        trouble = Trouble("pipeline_broken", "No token came back.", "Try again.")
    world.answer(pc, WarmEnded(pc.name, epoch, trouble))


def _broken_at(world: World, epoch: int) -> Pc | None:
    """Return a PC that should run its stage of a placement and doesn't."""
    record = next(
        (pc.record for pc in world.pcs.values() if pc.record and pc.record.epoch == epoch), None
    )
    if record is None:
        return None
    chain = [world.pcs[share.node_id] for share in record.stages]
    for pc in chain:
        if not pc.is_up or pc.epoch != epoch or pc.island != chain[0].island:
            return pc
    return None


def _keep(world: World, pc: Pc, order: OrderKeep) -> None:
    _begin(world, pc, "keep", 0, 6.0, partial(_finish_keep, world, pc, order.model_sha256))


def _finish_keep(world: World, pc: Pc, model_sha256: str) -> None:
    there = [o for o in world.pcs.values() if world.reaches(pc, o)]
    if any(model_sha256 in other.kept for other in there):
        pc.kept.add(model_sha256)
        world.say(pc, "keeps the model too")
        world.report(pc)


def _end(world: World, pc: Pc, order: OrderEnd) -> None:
    is_loading = "load" in pc.doing and pc.doing["load"].epoch == order.epoch
    if is_loading or pc.epoch == order.epoch:
        end(world, pc, f"ends {order.epoch} as ordered")

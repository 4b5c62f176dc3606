"""PCs that do what a coordinator orders, in virtual time: slowly, wrongly, or not at all.

Around the real machine of ``engine.pool.deployment``: each PC has one, and it counts while the PC
is in office. The office itself is given out by the world, one for each island of PCs that reach
each other. What the machines order is checked as it comes; ``BreachError`` is a broken rule.
"""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from engine.domain import NodeId
from engine.messages.pool import Term
from engine.pool.deployment import begin, step
from engine.pool.deployment_inputs import (
    Happened,
    Known,
    LeftOffice,
    NodeSeen,
    PoolSeen,
    Ticked,
    TookOffice,
    Wished,
)
from engine.pool.deployment_orders import Order, OrderEnd, OrderPlacement, Publish
from engine.pool.plan import NodeFacts
from tests.simulation.deployment_nodes import Pc, obey
from tests.simulation.deployment_rules import Rules
from tests.simulation.world import BreachError

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.messages.deployment import Deployment, Wish
    from engine.pool.deployment_state import State

TICK_S = 0.25
TELL_WISH_EVERY_S = 1.0
WISH_FOR_S = 30.0
ELECTED_AFTER_S = 0.7


@dataclass
class Weather:
    """What happens to messages."""

    loss: float = 0.0
    delay_s: tuple[float, float] = (0.005, 0.05)
    report_s: tuple[float, float] = (0.01, 0.3)


class World:
    """The PCs, what lies between them, and the time."""

    def __init__(self, seed: int, tell: Callable[[str], None] | None = None) -> None:
        self.rng = random.Random(seed)  # noqa: S311
        self.now_s = 0.0
        self.pcs: dict[NodeId, Pc] = {}
        self.weather = Weather()
        self.cut: set[frozenset[NodeId]] = set()  # between stages only
        self.rules = Rules()
        self.reports: dict[NodeId, NodeSeen] = {}
        self.wishes: dict[str, Wish | None] = {}
        self.terms = 0
        self.hangs = False
        self.storm_s = 0.0  # when the storm is over
        self.moves: set[tuple[State, State]] = set()
        self._tell = tell
        self._queue: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0

    # ---- time ----

    def after(self, delay_s: float, call: Callable[..., None], *arguments: Any) -> None:
        """Let something happen later."""
        self._count += 1
        heapq.heappush(self._queue, (self.now_s + delay_s, self._count, call, arguments))

    def run(self, seconds: float) -> None:
        """Let time pass."""
        until_s = self.now_s + seconds
        queue = self._queue
        while queue and queue[0][0] <= until_s:
            self.now_s, _, call, arguments = heapq.heappop(queue)
            call(*arguments)
        self.now_s = until_s

    def say(self, pc: Pc, what: str) -> None:
        """Tell a line of the transcript."""
        if self._tell is not None:
            self._tell(f"{self.now_s:8.2f}  {pc.name:<3} {what}")

    # ---- what happens to a PC ----

    def add(self, name: str, memory_bytes: int) -> Pc:
        """Put a PC there, running."""
        pc = Pc(NodeId(name), memory_bytes, memory_bytes)
        self.pcs[pc.name] = pc
        self.start(pc)
        return pc

    def start(self, pc: Pc) -> None:
        """Start its engine."""
        pc.is_up = True
        pc.life += 1
        pc.incarnation = self.rng.getrandbits(62)
        pc.machine = begin(pc.name)
        self.say(pc, "starts")
        self.report(pc)
        self._elect_later()
        self._tick(pc, pc.life)

    def kill(self, pc: Pc) -> None:
        """End it at once."""
        pc.is_up = False
        pc.life += 1
        pc.term = None
        pc.epoch = pc.lent_bytes = 0
        pc.doing.clear()
        pc.lasting.clear()
        pc.wish_id = None
        if self.rng.random() < 0.5:
            pc.record = None  # it was not on disk
        self.say(pc, "is killed")
        self._noticed_later()
        self._elect_later()

    def move(self, pc: Pc, island: int) -> None:
        """Put it on an island: it reaches those that are there."""
        pc.island = island
        self.say(pc, f"is on island {island}")
        self._noticed_later()
        self._elect_later()

    def wish(self, pc: Pc, wish: Wish | None, wish_id: str) -> None:
        """Let somebody there ask for something."""
        if wish is not None:
            pc.kept.add(wish.model_sha256)
        self.wishes[wish_id] = wish
        pc.wish_id = wish_id
        self.say(pc, f"wishes {wish_id}: {'nothing' if wish is None else wish.model.name}")
        self.report(pc)
        self._tell_wish(pc, pc.life, wish_id, self.now_s + WISH_FOR_S)

    def _tell_wish(self, pc: Pc, life: int, wish_id: str, until_s: float) -> None:
        if pc.life != life or pc.wish_id != wish_id or self.now_s > until_s:
            return
        wish, record = self.wishes[wish_id], pc.record
        shown = None if record is None or record.wish is None else record.wish.wish_id
        if shown == wish_id or (wish is None and record is not None and record.wish is None):
            return
        self.answer(pc, Wished(wish, wish_id))
        self.after(TELL_WISH_EVERY_S, self._tell_wish, pc, life, wish_id, until_s)

    # ---- who sees whom ----

    def reaches(self, one: Pc, other: Pc) -> bool:
        """Return whether messages get from one to the other."""
        return one.is_up and other.is_up and one.island == other.island

    def report(self, pc: Pc) -> None:
        """Tell everybody soon what it is by then."""
        self.after(self.rng.uniform(*self.weather.report_s), self._reported, pc, pc.life)

    def _reported(self, pc: Pc, life: int) -> None:
        if pc.life == life:
            self.reports[pc.name] = NodeSeen(
                node_id=pc.name,
                is_reachable=True,
                facts=NodeFacts(
                    node_id=pc.name,
                    name=pc.name.upper(),
                    total_bytes=2 * pc.memory_bytes,
                    free_bytes=pc.memory_bytes - pc.lent_bytes,
                    lent_bytes=pc.lent_bytes,
                ),
                kept_models=tuple(sorted(pc.kept)),
                epoch=pc.epoch,
                incarnation=pc.incarnation,
            )
            self.look()

    def _noticed_later(self) -> None:
        self.after(self.rng.choice((0.01, 0.01, 3.5)), self.look)

    def look(self) -> None:
        """Let everyone in office see who is there."""
        for pc in list(self.pcs.values()):
            if pc.term is not None and pc.is_up:
                self._take(pc, PoolSeen(self._seen_by(pc)))

    def _seen_by(self, pc: Pc) -> tuple[NodeSeen, ...]:
        return tuple(
            NodeSeen(
                node_id=seen.node_id,
                is_reachable=self.reaches(pc, self.pcs[node_id])
                and self.pcs[node_id].accepted == pc.term,
                facts=seen.facts,
                kept_models=seen.kept_models,
                epoch=seen.epoch,
                incarnation=seen.incarnation,
            )
            for node_id, seen in sorted(self.reports.items())
        )

    # ---- the office ----

    def _elect_later(self) -> None:
        self.after(ELECTED_AFTER_S, self._elect)

    def _elect(self) -> None:
        """Give each island one coordinator: one that is in office there, if there is one."""
        for island in sorted({pc.island for pc in self.pcs.values() if pc.is_up}):
            there = [pc for pc in self.pcs.values() if pc.is_up and pc.island == island]
            leaders = [pc for pc in there if pc.term is not None]
            leader = self.rng.choice(leaders or there)
            highest = max((pc.accepted for pc in there if pc.accepted), default=None)
            for other in leaders:
                if other is not leader or other.term != highest:
                    self.leave_office(other)
            if leader.term is None:
                self.take_office(leader)
            for pc in there:
                self._accept(pc, leader)
        self.look()

    def leave_office(self, pc: Pc) -> None:
        """Let it no longer coordinate."""
        self.say(pc, f"leaves office {pc.term}")
        self._take(pc, LeftOffice())
        pc.term = None

    def take_office(self, pc: Pc) -> None:
        """Let it coordinate from now on, by a new term."""
        self.terms += 1
        pc.term = pc.accepted = Term(self.terms, pc.name, pc.incarnation)
        self.say(pc, f"takes office {pc.term}")
        self._take(pc, TookOffice(pc.term, pc.record))

    def _accept(self, pc: Pc, leader: Pc) -> None:
        if pc.accepted != leader.term:
            if pc.accepted is not None and leader.term < pc.accepted:
                raise BreachError(f"{pc.name} goes back to {leader.term}: the world is wrong")
            pc.accepted = leader.term
            if pc.record is not None:
                self.answer(pc, Known(pc.record))
        if pc is not leader and leader.record is not None and leader.record.term == leader.term:
            self._deliver(leader, pc, keep_record, leader.record)  # as to a newcomer

    def _tick(self, pc: Pc, life: int) -> None:
        if pc.life == life:
            if pc.term is not None:
                self._take(pc, Ticked())
            self.after(TICK_S, self._tick, pc, life)

    def _take(self, pc: Pc, happened: Happened) -> None:
        before = pc.machine
        pc.machine, orders = step(before, happened, self.now_s, self._draw)
        if before.state is not pc.machine.state:
            self.moves.add((before.state, pc.machine.state))
            self.say(pc, f"{before.state.value} -> {pc.machine.state.value}")
        for order in orders:
            self.rules.check(pc.machine, order, self.now_s)
            self._order(pc, order)

    def _draw(self) -> int:
        return self.rng.getrandbits(31)

    # ---- messages ----

    def _order(self, pc: Pc, order: Order) -> None:
        match order:
            case Publish(record):
                trouble = "" if record.trouble is None else f" ({record.trouble.what})"
                shares = " ".join(f"{s.node_id}:{s.layers}" for s in record.stages)
                self.say(pc, f"publishes {record.phase} {record.epoch} {shares}{trouble}")
                pc.record = record
                for other in self.pcs.values():
                    if other is not pc:
                        self._deliver(pc, other, keep_record, record)
            case OrderPlacement() | OrderEnd():
                for node_id in order.node_ids:
                    self._send(pc, node_id, order)
            case _:
                self._send(pc, order.node_id, order)

    def _send(self, pc: Pc, to: NodeId, order: Order) -> None:
        self._deliver(pc, self.pcs[to], partial(obey, self), order)

    def _deliver(self, pc: Pc, to: Pc, take: Callable[[Pc, Any], None], what: Any) -> None:
        if to is not pc and self.rng.random() < self.weather.loss:
            self.say(pc, f"-> {to.name} {type(what).__name__} is lost")
            if take is keep_record:  # with its session; the next one begins with the record
                self.after(1.0, self._tell_again, pc, pc.term, to)
            return
        delay_s = self.rng.uniform(*self.weather.delay_s)
        self.after(delay_s, self._arrive, pc, pc.term, to, to.life, take, what)

    def _tell_again(self, pc: Pc, term: Term, to: Pc) -> None:
        if pc.term == term and pc.record is not None and pc.record.term == term:
            self._deliver(pc, to, keep_record, pc.record)

    def _arrive(
        self, pc: Pc, term: Term, to: Pc, life: int, take: Callable[[Pc, Any], None], what: Any
    ) -> None:
        if to.life == life and self.reaches(pc, to) and to.accepted == term:
            take(to, what)

    def answer(self, pc: Pc, happened: Happened) -> None:
        """Tell the coordinator something, if there is one by then."""
        if self.rng.random() < self.weather.loss:
            self.say(pc, f"{type(happened).__name__} is lost")
            return
        self.after(self.rng.uniform(*self.weather.delay_s), self._told, pc, pc.life, happened)

    def _told(self, pc: Pc, life: int, happened: Happened) -> None:
        if pc.life != life:
            return
        for other in self.pcs.values():
            if other.term is not None and other.term == pc.accepted and self.reaches(pc, other):
                self._take(other, happened)


def keep_record(pc: Pc, record: Deployment) -> None:
    """Let a PC take a record, if it is newer than its own."""
    if pc.record is None or record.order > pc.record.order:
        pc.record = record


# ---- what is so ----


def leaders(world: World) -> list[Pc]:
    """Return who is in office."""
    return [pc for pc in world.pcs.values() if pc.term is not None]


def is_ready(world: World) -> bool:
    """Return whether one coordinator has the pool ready, and every stage of it runs."""
    those = leaders(world)
    if len(those) != 1:
        return False
    record = those[0].record
    if record is None or record.phase != "ready":
        return False
    return all(world.pcs[share.node_id].epoch == record.epoch for share in record.stages)


def run_until_ready(world: World, at_most_s: float) -> float:
    """Let time pass until it is; return how long that took."""
    began_s = world.now_s
    while not is_ready(world):
        if world.now_s - began_s >= at_most_s:
            raise BreachError(f"not ready after {at_most_s} s")
        world.run(TICK_S)
    return world.now_s - began_s

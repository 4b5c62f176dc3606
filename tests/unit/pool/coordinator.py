"""A coordinator's machine with a clock, nodes as it sees them, and what it ordered."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from engine.domain import LayerRange, NodeId
from engine.messages.deployment import Deployment, StageShare, Trouble, Wish
from engine.messages.pool import Term
from engine.pool.deployment import begin, step
from engine.pool.deployment_inputs import (
    Happened,
    NodeSeen,
    PoolSeen,
    SplitEnded,
    StageLoaded,
    StageTrouble,
    Ticked,
    TookOffice,
    WarmEnded,
    Wished,
)
from engine.pool.deployment_state import SETTLE_S, State
from tests.unit.pool.models import MIB, model, node

if TYPE_CHECKING:
    from engine.pool.deployment_orders import Order

ME = NodeId("a")
MODEL = model(6)
SMALL = 1100 * MIB  # room for three of its six layers
LARGE = 4000 * MIB  # room for all of them
TICK_S = 0.25
FIRST_EPOCH = 101

Kind = TypeVar("Kind")


def term(counter: int, claimant: str = "a") -> Term:
    return Term(counter, NodeId(claimant), 1)


def wish(number: int = 1, **changes: object) -> Wish:
    """Return a wish of node ``a``, which has the model's files."""
    fields = {
        "wish_id": f"w{number}",
        "asked_on": NodeId("a"),
        "model_sha256": "m",
        "model": MODEL,
        "context_tokens": 32,
        "max_sequences": 1,
    }
    return Wish(**fields | changes)


def seen(name: str, usable: int = SMALL, **changes: object) -> NodeSeen:
    """Return a reachable node; all but ``c`` keep the model."""
    facts = {key: changes.pop(key) for key in tuple(changes) if key in FACTS}
    fields = {
        "node_id": NodeId(name),
        "is_reachable": True,
        "facts": node(name, usable, **facts),
        "kept_models": ("m",) if name != "c" else (),
        "incarnation": 1,
    }
    return NodeSeen(**fields | changes)


FACTS = frozenset({"layer_ms", "link_ms", "exclusions", "devices", "lent_bytes", "cap_bytes"})


def share(name: str, start: int, stop: int) -> StageShare:
    return StageShare(NodeId(name), LayerRange(start, stop))


def ready_record(order: tuple[int, int] = (1, 9), epoch: int = 7, **changes: object) -> Deployment:
    """Return what another coordinator left: ``a`` and ``b`` run three layers each."""
    counter, version = order
    fields = {
        "term": term(counter, "z"),
        "version": version,
        "phase": "ready",
        "wish": wish(),
        "epoch": epoch,
        "manifest_sha256": "f",
        "stages": (share("a", 0, 3), share("b", 3, 6)),
    }
    return Deployment(**fields | changes)


def trouble(code: str) -> Trouble:
    return Trouble(code, f"It was {code}.", "Look at it.")


class Coordinator:  # noqa: PLR0904 - a verb for each thing that happens
    """The machine of ``a``, driven."""

    def __init__(self, *nodes: NodeSeen) -> None:
        numbers = count(FIRST_EPOCH)
        self.draw = lambda: next(numbers)
        self.now_s = 1000.0
        self.machine = begin(ME)
        self.done: list[Order] = []  # at the last step
        self.all: list[Order] = []
        self.nodes: dict[str, NodeSeen] = {}
        self.see(*nodes)

    def take(self, happened: Happened, after_s: float = 0.0) -> list[Order]:
        self.now_s += after_s
        self.machine, self.done = step(self.machine, happened, self.now_s, self.draw)
        self.all += self.done
        return self.done

    def see(self, *nodes: NodeSeen) -> list[Order]:
        self.nodes = {one.node_id: one for one in nodes}
        return self.take(PoolSeen(nodes))

    def change(self, name: str, **changes: object) -> list[Order]:
        """See one node change; ``usable`` is what it may give now."""
        usable = changes.pop("usable", None)
        old = self.nodes[name]
        if usable is not None:
            changes["facts"] = replace(old.facts, free_bytes=usable)
        self.nodes[name] = replace(old, **changes)
        return self.take(PoolSeen(tuple(self.nodes.values())))

    def lose(self, name: str) -> list[Order]:
        return self.change(name, is_reachable=False)

    def tick(self, seconds: float = TICK_S) -> list[Order]:
        return self.take(Ticked(), seconds)

    def wait(self, seconds: float) -> list[Order]:
        """Let time pass in ticks; return everything ordered."""
        orders: list[Order] = []
        for _ in range(round(seconds / TICK_S)):
            orders += self.tick()
        return orders

    # ---- the road to ready ----

    def take_office(self, record: Deployment | None = None, counter: int = 5) -> list[Order]:
        self.take(TookOffice(term(counter), record))
        return self.tick(SETTLE_S)

    def wish(self, wished: Wish | None = None) -> list[Order]:
        wished = wished or wish()
        return self.take(Wished(wished, wished.wish_id))

    def cut(self, name: str | None = None) -> list[Order]:
        splitter = NodeId(name) if name else self.machine.work.splitter
        return self.take(SplitEnded(splitter, self.machine.epoch, "f"))

    def load(self, *names: str) -> list[Order]:
        """Let stages be loaded, each in a step; all of them if none is named."""
        orders: list[Order] = []
        for name in names or self.machine.chain:
            orders += self.take(StageLoaded(NodeId(name), self.machine.epoch))
        return orders

    def warm(self) -> list[Order]:
        return self.take(WarmEnded(self.machine.chain[0], self.machine.epoch))

    def run(self) -> None:
        """Let the nodes of the chain say that they run it."""
        for name in self.machine.chain:
            self.change(name, epoch=self.machine.epoch)

    def bring_up(self) -> Coordinator:
        """Go from splitting to ready."""
        self.cut()
        self.load()
        self.run()
        self.warm()
        assert self.state is State.READY
        return self

    def fail(self, name: str, code: str, after_s: float = 0.0) -> list[Order]:
        return self.take(StageTrouble(NodeId(name), self.machine.epoch, trouble(code)), after_s)

    # ---- what is so ----

    @property
    def state(self) -> State:
        return self.machine.state

    @property
    def record(self) -> Deployment:
        return self.machine.deployment

    def line(self, name: str):  # type: ignore[no-untyped-def]
        return next(line for line in self.record.plan if line.node_id == name)

    def ordered(self, kind: type[Kind]) -> list[Kind]:
        """Return the orders of one kind of the last step."""
        return [order for order in self.done if isinstance(order, kind)]


def in_office(*nodes: NodeSeen) -> Coordinator:
    """Return a coordinator with nothing to do; by default of ``a``, ``b`` and ``c``."""
    coordinator = Coordinator(*(nodes or (seen("a"), seen("b"), seen("c"))))
    assert coordinator.take_office() == []
    return coordinator


def splitting(*nodes: NodeSeen) -> Coordinator:
    coordinator = in_office(*nodes)
    coordinator.wish()
    assert coordinator.state is State.SPLITTING
    return coordinator


def loading(*nodes: NodeSeen) -> Coordinator:
    coordinator = splitting(*nodes)
    coordinator.cut()
    assert coordinator.state is State.LOADING
    return coordinator


def ready(*nodes: NodeSeen) -> Coordinator:
    return splitting(*nodes).bring_up()

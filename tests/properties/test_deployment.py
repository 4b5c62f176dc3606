"""The coordinator's machine under any sequence of events: rules hold, and calm ends ready."""

from __future__ import annotations

import os
from itertools import count

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.domain import NodeId
from engine.messages.deployment import Deployment, Trouble, Wish
from engine.messages.pool import Term
from engine.pool.deployment import begin, step
from engine.pool.deployment_inputs import (
    Known,
    LeftOffice,
    PoolSeen,
    Progressed,
    SplitEnded,
    StageLoaded,
    StageTrouble,
    Ticked,
    TookOffice,
    WarmEnded,
    Wished,
)
from engine.pool.deployment_orders import OrderPlacement, OrderSplit, OrderWarmUp
from engine.pool.deployment_state import PHASES, State
from tests.simulation.deployment_rules import Rules
from tests.unit.pool.coordinator import MODEL, seen, share, wish
from tests.unit.pool.models import MIB

NAMES = ("a", "b", "c")
CODES = ("golden_step", "storage", "stage_process_died", "shard_corrupt", "transport", "odd")
LONG = 20 if os.environ.get("DAISY_LONG") == "1" else 1
CALM_S = 16 + 120 + 10  # a wait that has begun, the long one, and the work itself


def record(counter: int, version: int, phase: str, whose: int, cut: int) -> Deployment:
    """Return what another coordinator left; one epoch is always one placement."""
    is_placed = phase in {"splitting", "loading", "warming", "ready"}
    return Deployment(
        term=Term(counter, NodeId("b"), 1),
        version=version,
        phase=phase,
        wish=None if phase == "unloaded" else wish(90 + whose),
        epoch=(7 if (whose, cut) == (0, 3) else 10 + 2 * cut + whose) if is_placed else 0,
        manifest_sha256="f" if phase in {"loading", "warming", "ready"} else None,
        stages=(share("a", 0, cut), share("b", cut, 6)) if is_placed else (),
    )


records = st.builds(
    record,
    st.integers(1, 4),
    st.integers(1, 9),
    st.sampled_from(sorted(set(PHASES.values()))),
    st.integers(0, 1),
    st.sampled_from((1, 3, 3, 3, 5)),
)
wishes = st.builds(
    lambda number, broken: wish(number, **broken),
    st.integers(0, 5),
    st.sampled_from((
        {},
        {},
        {},
        {"asked_on": NodeId("z")},
        {"max_sequences": 0},
        {"model": msgspec.structs.replace(MODEL, num_layers=5)},
    )),
)
pools = st.lists(
    st.fixed_dictionaries({
        "is_reachable": st.sampled_from((True, True, True, False)),
        "usable_mib": st.sampled_from((100, 800, 1200, 1210, 4000)),
        "incarnation": st.sampled_from((1, 1, 1, 2)),
        "epoch": st.sampled_from((0, 0, 7, "now")),
        "is_there": st.sampled_from((True, True, True, False)),
        "active_requests": st.integers(0, 1),
    }),
    min_size=3,
    max_size=3,
)
events = st.one_of(
    st.tuples(st.just("pool"), pools),
    st.tuples(st.just("pool"), pools),
    st.tuples(st.just("tick"), st.sampled_from((0.25, 0.25, 1.0, 5.0, 31.0, 700.0))),
    st.tuples(st.just("obey"), st.integers(1, 4)),
    st.tuples(st.just("obey"), st.integers(1, 4)),
    st.tuples(st.just("trouble"), st.tuples(st.sampled_from(NAMES), st.sampled_from(CODES))),
    st.tuples(st.just("stale"), st.sampled_from(NAMES)),
    st.tuples(st.just("wish"), wishes),
    st.tuples(st.just("unwish"), st.integers(6, 9)),
    st.tuples(st.just("known"), records),
    st.tuples(st.just("office"), st.none() | records),
    st.tuples(st.just("leave"), st.none()),
)


class Driven:
    """The machine of ``a``, what it was told, and what it ordered."""

    def __init__(self, constant_draw: bool = False) -> None:
        numbers = count(100)
        self.draw = (lambda: 8) if constant_draw else (lambda: next(numbers))
        self.now_s = 0.0
        self.counter = 4
        self.machine = begin(NodeId("a"))
        self.rules = Rules()
        self.orders: list[object] = []
        self.pending: list[object] = []

    def happen(self, happened: object, after_s: float = 0.0) -> None:
        self.now_s += after_s
        self.machine, orders = step(self.machine, happened, self.now_s, self.draw)
        for order in orders:
            self.rules.check(self.machine, order, self.now_s)
        self.orders += orders
        self.pending += orders
        own = self.machine.record
        if self.machine.state in PHASES and own is not None:
            assert own.phase == PHASES[self.machine.state]
            assert own.order == (self.machine.term, self.machine.version)

    def do(self, kind: str, what: object) -> None:
        getattr(self, f"do_{kind}")(what)

    def do_pool(self, pool: list[dict]) -> None:
        nodes = []
        for name, drawn in zip(NAMES, pool, strict=True):
            own = dict(drawn)
            is_there, usable = own.pop("is_there"), own.pop("usable_mib") * MIB
            own["epoch"] = self.machine.epoch if own["epoch"] == "now" else own["epoch"]
            if name == "a":
                is_there = own["is_reachable"] = True
            nodes += [seen(name, usable, **own)] if is_there else []
        self.happen(PoolSeen(tuple(nodes)))

    def do_tick(self, seconds: float) -> None:
        self.happen(Ticked(), seconds)

    def do_obey(self, times: int) -> None:
        """Answer as nodes do that obey, as far as something was ordered."""
        for _ in range(times):
            for answer in self.answers():
                self.happen(answer, 0.1)

    def answers(self) -> list[object]:
        pending, self.pending = self.pending, []
        answers: list[object] = []
        for order in pending:
            match order:
                case OrderSplit():
                    answers += [Progressed(order.node_id, order.epoch)]
                    answers += [SplitEnded(order.node_id, order.epoch, "f")]
                case OrderPlacement():
                    answers += [StageLoaded(n, order.record.epoch) for n in order.node_ids]
                case OrderWarmUp():
                    answers += [WarmEnded(order.node_id, order.epoch)]
        return answers

    def do_trouble(self, what: tuple[str, str]) -> None:
        name, code = what
        trouble = Trouble(code, f"{code} on {name}.", "Look at it.")
        epoch = self.machine.epoch
        self.happen(SplitEnded(NodeId(name), epoch, None, trouble))
        self.happen(StageTrouble(NodeId(name), epoch, trouble))
        self.happen(WarmEnded(NodeId(name), epoch, trouble))

    def do_stale(self, name: str) -> None:
        before = self.machine
        for epoch in (0, 3, 2**31):
            self.happen(SplitEnded(NodeId(name), epoch, "f"))
            self.happen(StageLoaded(NodeId(name), epoch))
            self.happen(StageTrouble(NodeId(name), epoch, Trouble("storage", "Full.", "Tidy.")))
            self.happen(WarmEnded(NodeId(name), epoch))
            self.happen(Progressed(NodeId(name), epoch))
        assert self.machine.epoch == before.epoch or before.state is State.PLANNING

    def do_wish(self, wished: Wish) -> None:
        self.happen(Wished(wished, wished.wish_id))
        state = self.machine.state
        orders = len(self.orders)
        self.happen(Wished(wished, wished.wish_id))  # it is repeated
        assert (self.machine.state, len(self.orders)) == (state, orders)

    def do_unwish(self, number: int) -> None:
        self.happen(Wished(None, f"w{number}"))

    def do_known(self, known: Deployment) -> None:
        self.happen(Known(known))

    def do_office(self, own: Deployment | None) -> None:
        self.counter += 1
        self.happen(TookOffice(Term(self.counter, NodeId("a"), 1), own))

    def do_leave(self, _: None) -> None:
        self.happen(LeftOffice())
        orders = len(self.orders)
        self.happen(Ticked(), 1.0)
        assert len(self.orders) == orders

    def calm(self) -> float:
        """Let everything be well from now on; return how long it took to be ready."""
        if self.machine.term is None:
            self.do_office(None)
        began_s = self.now_s
        self.pending.clear()
        nodes = tuple(seen(name, 4000 * MIB, incarnation=3) for name in NAMES)
        self.happen(PoolSeen(nodes))
        self.happen(Ticked(), 1.0)
        wanted = self.machine.wish
        if wanted is None or wanted.max_sequences == 0 or wanted.model != MODEL:
            self.happen(Wished(wish(77), "w77"))
        while self.machine.state is not State.READY:
            assert self.now_s - began_s < CALM_S
            for answer in self.answers():
                self.happen(answer, 0.1)
            self.happen(Ticked(), 0.25)
            epoch = self.machine.epoch
            runs = self.machine.work.loaded
            self.happen(
                PoolSeen(
                    tuple(
                        msgspec.structs.replace(n, epoch=epoch if n.node_id in runs else 0)
                        for n in nodes
                    )
                )
            )
        return self.now_s - began_s


@settings(max_examples=120 * LONG, deadline=None)
@given(st.lists(events, max_size=40), st.booleans())
def test_every_order_keeps_the_rules_and_calm_ends_ready(
    story: list[tuple[str, object]], constant_draw: bool
) -> None:
    driven = Driven(constant_draw)
    driven.do_office(None)
    for kind, what in story:
        driven.do(kind, what)
    driven.calm()


@settings(max_examples=40 * LONG, deadline=None)
@given(st.lists(events, max_size=25), st.permutations(range(3)))
def test_the_order_in_which_nodes_are_listed_decides_nothing(
    story: list[tuple[str, object]], order: list[int]
) -> None:
    one, other = Driven(), Driven()
    for driven in (one, other):
        driven.do_office(None)
    for kind, what in story:
        one.do(kind, what)
        if kind == "pool":
            nodes = list(one.machine.nodes.values())
            shuffled = [nodes[i] for i in order if i < len(nodes)]
            other.happen(PoolSeen(tuple(shuffled)))
        else:
            other.do(kind, what)
    assert one.orders == other.orders

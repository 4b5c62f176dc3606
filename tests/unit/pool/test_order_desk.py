"""What becomes of a stage whose placement has ended: kept for the next one, or ended for good."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress

import pytest

from engine.domain import NodeId
from engine.errors import RemoteProtocolError
from engine.messages.deployment import Deployment
from engine.messages.pool import Stamp, Term
from engine.messages.pool_control import DeploymentChanged, EndPlacement
from engine.pool.order_desk import Files, OrderDesk
from engine.pool.record_book import RecordBook
from engine.pool.terms import Fence
from tests.unit.pool.coordinator import share, wish

COORDINATOR = NodeId("z")
TERM = Term(1, COORDINATOR, 1)
STAMP = Stamp("open", TERM, COORDINATOR)
EPOCH = 7


class Host:
    """Runs a stage of a placement, as far as a desk knows."""

    def __init__(self) -> None:
        self.epoch = EPOCH
        self.is_loaded = True

    async def end(self, *, for_good: bool = True) -> None:
        await asyncio.sleep(0)
        self.epoch = 0
        self.is_loaded = self.is_loaded and not for_good


class Shelf:
    """Keeps no model."""

    def let_go_all_but(self, names: object) -> None:
        pass

    def kept(self) -> tuple[str, ...]:
        return ()


@asynccontextmanager
async def desk_of(host: Host):
    fence = Fence("open", TERM)
    desk = OrderDesk(NodeId("a"), fence, RecordBook(), host, Files(Shelf(), None), None)
    with suppress(asyncio.CancelledError):
        async with asyncio.TaskGroup() as group:
            running = group.create_task(desk.run())
            await asyncio.sleep(0)
            yield desk
            running.cancel()


def record(phase: str, version: int, **fields: object) -> DeploymentChanged:
    present = Deployment(term=TERM, version=version, phase=phase, **fields)
    return DeploymentChanged(stamp=STAMP, deployment=present)


END = EndPlacement(stamp=STAMP, epoch=EPOCH)
PLANNING = record("planning", 1, wish=wish())
ELSEWHERE = record("ready", 2, wish=wish(), epoch=8, stages=(share("b", 0, 6),))
UNLOADED = record("unloaded", 2)
FAILED = record("failed", 2, wish=wish())


def after(*orders: object) -> Host:
    host = Host()

    async def scenario() -> None:
        async with desk_of(host) as desk:
            for order in orders:
                desk.take(order, COORDINATOR)
                for _ in range(5):
                    await asyncio.sleep(0)

    asyncio.run(scenario())
    return host


class Told:
    """Takes down what was carried out."""

    def __init__(self) -> None:
        self.ended: list[int] = []
        self.epoch = EPOCH
        self.is_loaded = True

    async def end(self, *, for_good: bool = True) -> None:
        self.ended.append(self.epoch)


REPLACED = Term(1, NodeId("y"), 1)
IN_FORCE = Term(2, NodeId("x"), 5)


def stamped(pool_id: str, term: Term, sender: str) -> EndPlacement:
    return EndPlacement(stamp=Stamp(pool_id, term, NodeId(sender)), epoch=EPOCH)


@pytest.mark.parametrize(
    ("order", "came_from"),
    [
        (stamped("open", TERM, COORDINATOR), COORDINATOR),
        (stamped("open", REPLACED, "y"), "y"),
        (stamped("open", IN_FORCE, COORDINATOR), COORDINATOR),
        (stamped("other", IN_FORCE, "x"), "x"),
    ],
    ids=["of the term before", "of one long gone", "in the new one's name", "of another pool"],
)
def test_s08_a_recorded_order_is_refused_once_its_term_has_ended(
    order: EndPlacement, came_from: str
) -> None:
    """TLS lets nobody play back bytes; this is about a member that sends again what it was sent."""

    async def scenario() -> list[int]:
        host = Told()
        fence = Fence("open", TERM)
        desk = OrderDesk(NodeId("a"), fence, RecordBook(), host, Files(Shelf(), None), None)
        with suppress(asyncio.CancelledError):
            async with asyncio.TaskGroup() as group:
                running = group.create_task(desk.run())
                await asyncio.sleep(0)
                fence.accept(IN_FORCE)
                desk.take(order, NodeId(came_from))
                for _ in range(5):
                    await asyncio.sleep(0)
                running.cancel()
        return host.ended

    assert asyncio.run(scenario()) == []


def test_s08_an_order_in_anothers_name_costs_its_sender_the_connection() -> None:
    async def scenario() -> None:
        async with desk_of(Host()) as desk:
            with pytest.raises(RemoteProtocolError):
                desk.take(END, NodeId("b"))

    asyncio.run(scenario())


def test_a_stage_stays_loaded_while_the_pool_places_anew() -> None:
    host = after(PLANNING, END)
    assert (host.epoch, host.is_loaded) == (0, True)


@pytest.mark.parametrize("settled", [ELSEWHERE, UNLOADED, FAILED])
def test_it_is_ended_for_good_once_nothing_is_being_placed(settled: DeploymentChanged) -> None:
    assert not after(PLANNING, END, settled).is_loaded


@pytest.mark.parametrize("settled", [ELSEWHERE, UNLOADED, FAILED])
def test_an_order_to_end_it_that_comes_late_does_not_keep_it(settled: DeploymentChanged) -> None:
    assert not after(settled, END).is_loaded

    host = Host()

    async def at_once() -> None:
        async with desk_of(host) as desk:
            desk.take(settled, COORDINATOR)
            desk.take(END, COORDINATOR)
            for _ in range(5):
                await asyncio.sleep(0)

    asyncio.run(at_once())
    assert not host.is_loaded

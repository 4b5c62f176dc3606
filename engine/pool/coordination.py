"""The coordinator's rim: what it sees goes into the decisions, its orders go out to the nodes.

Every node has one. Out of office it only keeps the record, and tells a new coordinator.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import TYPE_CHECKING

from engine.messages.chain import Placement, StageFailed, StagePlace, StageReady
from engine.messages.deployment import Trouble
from engine.messages.pool import Stamp
from engine.messages.pool_control import (
    DeploymentChanged,
    DeploymentKnown,
    EndPlacement,
    KeepModel,
    MakeWish,
    ModelSplit,
    SplitModel,
    WarmedUp,
    WarmUp,
)
from engine.pool.actions import BecameCoordinator, CoordinatorLost, Following, SteppedDown
from engine.pool.deployment import begin, step
from engine.pool.deployment_inputs import (
    Known,
    LeftOffice,
    NodeSeen,
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
from engine.pool.deployment_orders import (
    OrderEnd,
    OrderKeep,
    OrderPlacement,
    OrderSplit,
    OrderWarmUp,
    Publish,
)
from engine.pool.membership import gone
from engine.pool.node_seen import facts_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.domain import NodeId
    from engine.messages.deployment import Deployment, NodeProgress
    from engine.messages.message import Message
    from engine.messages.pool import NodeReport
    from engine.pool.deployment_inputs import Happened
    from engine.pool.deployment_orders import Order
    from engine.pool.mesh import Mesh
    from engine.pool.outbox import Outbox
    from engine.pool.participant import Participant
    from engine.pool.record_book import RecordBook

TICK_S = 0.25
EPOCH_BITS = 31

_logger = logging.getLogger(__name__)


class Coordination:
    """Brings the pool to run what was wished, while this node is in office.

    Thread: the node's loop.
    """

    def __init__(
        self,
        participant: Participant,
        mesh: Mesh,
        book: RecordBook,
        outbox: Outbox,
        own_report: Callable[[], NodeReport],
    ) -> None:
        """Begin out of office.

        Args:
            participant: Knows who is in office.
            mesh: Knows the other nodes.
            book: Keeps the record.
            outbox: Sends.
            own_report: Returns what this node is.
        """
        self._participant = participant
        self._own = participant.identity.node_id
        self._mesh = mesh
        self._book = book
        self._outbox = outbox
        self._own_report = own_report
        self._state = begin(self._own)
        self._is_in_office = False
        self._seen: tuple[NodeSeen, ...] = ()
        self._greeted: frozenset[NodeId] = frozenset()
        self._look = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    async def run(self) -> None:
        """Look at the pool whenever it changes, and let time pass, until cancelled."""
        while True:
            try:
                async with asyncio.timeout(TICK_S):
                    await self._look.wait()
            except TimeoutError:
                pass
            self._look.clear()
            if self._is_in_office:
                self._see()
                self._happen(Ticked())

    def look(self) -> None:
        """Take note that something about the nodes has changed."""
        self._look.set()

    # ---- the office -----------------------------------------------------------------------------

    async def on_office(
        self, change: BecameCoordinator | SteppedDown | Following | CoordinatorLost
    ) -> None:
        """Take what the election decided.

        Args:
            change: In the order it was decided.
        """
        match change:
            case BecameCoordinator():
                self._is_in_office = True
                self._seen, self._greeted = (), frozenset()
                self._happen(TookOffice(change.term, self._book.deployment))
                self._see()
            case SteppedDown():
                self._is_in_office = False
                self._happen(LeftOffice())
            case Following():
                if self._book.deployment is not None:
                    known = DeploymentKnown(deployment=self._book.deployment)
                    self._outbox.tell(change.coordinator, known)
            case CoordinatorLost():
                pass

    def stamp(self) -> Stamp | None:
        """Return what makes a message an order of this node's; None out of office."""
        term = self._participant.election.accepted
        if not self._is_in_office or term is None:
            return None
        return Stamp(self._participant.identity.pool_id, term, self._own)

    # ---- what nodes say -------------------------------------------------------------------------

    def take(self, message: Message, sender: NodeId) -> bool:
        """Take what a node tells the coordinator; out of office it is dropped.

        Args:
            message: Decoded.
            sender: Whose session it came over; this node's own too.

        Returns:
            Whether it was for the coordinator.
        """
        happened: Happened
        if isinstance(message, StageFailed) and self._is_in_office:
            self._see()  # a PC that has just gone explains it better than a link that broke
        match message:
            case MakeWish():
                happened = Wished(message.wish, message.wish_id)
            case DeploymentKnown():
                happened = Known(message.deployment)
            case ModelSplit():
                happened = SplitEnded(
                    sender, message.epoch, message.manifest_sha256, message.trouble
                )
            case StageReady():
                happened = StageLoaded(sender, message.epoch)
            case StageFailed():
                trouble = Trouble(code=message.code, what=message.what, advice=message.advice)
                whose = self._whose(message, sender)
                if whose is None:
                    return True
                happened = StageTrouble(whose, message.epoch, trouble)
            case WarmedUp():
                happened = WarmEnded(sender, message.epoch, message.trouble)
            case _:
                return False
        if self._is_in_office:
            self._happen(happened)
        return True

    def progressed(self, progress: NodeProgress) -> None:
        """Take note that a node gets on with its work.

        Args:
            progress: Of a node.
        """
        if self._is_in_office:
            self._happen(Progressed(progress.node_id, progress.epoch))

    def _whose(self, message: StageFailed, sender: NodeId) -> NodeId | None:
        """Return the node whose stage failed: the sender's own, or one that the head names.

        None where somebody else says it: the word of a node outside of the chain is no news.
        """
        record = self._book.deployment
        if record is None or record.epoch != message.epoch:
            return sender
        if message.stage_index >= len(record.stages):
            return None
        whose = record.stages[message.stage_index].node_id
        return whose if sender in {whose, record.head} else None

    # ---- what is seen ---------------------------------------------------------------------------

    def _see(self) -> None:
        nodes = tuple(self._nodes())
        if nodes != self._seen:
            self._seen = nodes
            self._happen(PoolSeen(nodes))
        reachable = frozenset(node.node_id for node in nodes if node.is_reachable)
        newcomers = reachable - self._greeted - {self._own}
        self._greeted = reachable
        record, stamp = self._book.deployment, self.stamp()
        if record is not None and stamp is not None and record.term == stamp.term:
            for node_id in newcomers:
                changed = DeploymentChanged(stamp=stamp, deployment=record)
                self._outbox.tell(node_id, changed)
        if record is not None and record.phase == "loading":
            for node in nodes:
                if node.epoch == record.epoch:  # its word may have been lost
                    self._happen(StageLoaded(node.node_id, node.epoch))

    def _nodes(self) -> list[NodeSeen]:
        reachable = self._mesh.reachable()
        have_left = gone(self._participant.membership)
        reports = {**self._mesh.reports(), self._own: self._own_report()}
        nodes = []
        for node_id, report in sorted(reports.items()):
            is_own = node_id == self._own
            incarnation = (
                self._participant.identity.incarnation
                if is_own
                else self._mesh.incarnation_of(node_id)
            )
            nodes.append(
                NodeSeen(
                    node_id=node_id,
                    is_reachable=is_own or node_id in reachable,
                    facts=facts_of(report),
                    kept_models=report.kept_models,
                    epoch=report.epoch,
                    active_requests=report.active_requests,
                    incarnation=incarnation or 0,
                    has_left=node_id in have_left,
                )
            )
        return nodes

    # ---- what is ordered ------------------------------------------------------------------------

    def _happen(self, happened: Happened) -> None:
        self._state, orders = step(
            self._state, happened, self._loop.time(), lambda: secrets.randbits(EPOCH_BITS)
        )
        stamp = self.stamp()
        for order in orders:
            _logger.info("coordinator: %s", order)
            if stamp is not None:
                self._order(order, stamp)

    def _order(self, order: Order, stamp: Stamp) -> None:
        match order:
            case Publish():
                self._book.take(order.record)
                changed = DeploymentChanged(stamp=stamp, deployment=order.record)
                self._outbox.tell_all(changed)
            case OrderSplit():
                message = SplitModel(
                    stamp=stamp, epoch=order.epoch, wish=order.wish, layers=order.layers
                )
                self._outbox.tell(order.node_id, message)
            case OrderPlacement():
                placement = placement_of(order.record, stamp, self._mesh.address_of)
                for node_id in order.node_ids:
                    self._outbox.tell(node_id, placement)
            case OrderWarmUp():
                self._outbox.tell(order.node_id, WarmUp(stamp=stamp, epoch=order.epoch))
            case OrderKeep():
                keep = KeepModel(stamp=stamp, model_sha256=order.model_sha256)
                self._outbox.tell(order.node_id, keep)
            case OrderEnd():
                for node_id in order.node_ids:
                    self._outbox.tell(node_id, EndPlacement(stamp=stamp, epoch=order.epoch))


def placement_of(
    record: Deployment, stamp: Stamp, address_of: Callable[[NodeId], str | None]
) -> Placement:
    """Return what the nodes of a chain are ordered to run.

    Args:
        record: Cut and divided.
        stamp: Of who orders it.
        address_of: Knows where a node listens; None where it does not.
    """
    wish = record.wish
    assert wish is not None  # noqa: S101 - a placement is of something
    assert record.manifest_sha256 is not None  # noqa: S101 - it was cut before
    return Placement(
        epoch=record.epoch,
        manifest_sha256=record.manifest_sha256,
        context_tokens=wish.context_tokens,
        max_sequences=wish.max_sequences,
        stages=tuple(
            StagePlace(
                node_id=share.node_id,
                address=address_of(share.node_id) or "",
                stage_index=index,
                layers=share.layers,
                kind=wish.kind,
                mode=wish.mode,
                link_precision=wish.link_precision,
            )
            for index, share in enumerate(record.stages)
        ),
        stamp=stamp,
        speculate=wish.speculate,
    )

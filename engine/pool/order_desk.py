"""What the coordinator orders this node to do, done: keep a model, cut it, run a stage, warm up.

Only what ``order_admission`` admits comes this far. Of each kind of work one runs at a time: a
newer order ends the older.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from msgspec.structs import replace

from engine.errors import DaisyError, ShardCorruptError
from engine.messages.chain import Placement, StageFailed, StageReady, own_places
from engine.messages.deployment import Trouble
from engine.messages.pool_control import (
    DeploymentChanged,
    EndPlacement,
    KeepModel,
    ModelSplit,
    SplitModel,
    WarmedUp,
    WarmUp,
)
from engine.pool.order_admission import OrderAdmission
from engine.pool.work_report import WorkReport

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence
    from pathlib import Path

    from engine.domain import NodeId, StageDescription
    from engine.messages.chain import StagePlace
    from engine.messages.deployment import Deployment, Wish
    from engine.messages.message import Message
    from engine.messages.pool import Stamp
    from engine.pool.model_shelf import ModelShelf
    from engine.pool.order_admission import Order
    from engine.pool.peer_sources import PeerSources
    from engine.pool.pull import ChunkSource
    from engine.pool.record_book import RecordBook
    from engine.pool.terms import Fence

KEEP_LOADED_S = 120.0  # a stage whose placement has ended, while the pool places anew
SETTLED = frozenset({"ready", "failed", "unloaded"})  # phases in which nothing is being placed

_logger = logging.getLogger(__name__)


class StageHost(Protocol):
    """The part of the node that runs a stage."""

    @property
    def epoch(self) -> int:
        """Of the placement whose stage runs here; 0 for none."""
        ...

    @property
    def is_loaded(self) -> bool:
        """Whether a stage is loaded here, of a placement that runs or has ended."""
        ...

    async def place(self, placement: Placement, folder: Path) -> StageDescription:
        """Load this node's stage of a placement out of a folder, in place of what ran."""
        ...

    async def end(self, *, for_good: bool = True) -> None:
        """End the placement that runs here, if one does; its stage may stay for the next."""
        ...

    async def probe(self, epoch: int) -> None:
        """Send a token round the chain whose head is here."""
        ...


class Colleagues(Protocol):
    """The other nodes, as far as orders need them."""

    def tell_all(self, message: Message) -> None:
        """Hand a message to every node, this one included; returns at once."""
        ...

    def answer(self, stamp: Stamp, message: Message) -> None:
        """Hand an answer to the coordinator that gave an order; returns at once."""
        ...

    def address_of(self, node_id: NodeId) -> str | None:
        """Return where a node listens, as reached from here; None if that isn't known."""
        ...


class Files(NamedTuple):
    """Where files come from."""

    shelf: ModelShelf  # this node's
    sources: PeerSources  # the other nodes


class OrderDesk:
    """Takes the coordinator's orders and answers them.

    Attributes:
        on_kept: Told when this node keeps another model.

    Thread: the node's loop.
    """

    def __init__(
        self,
        node_id: NodeId,
        fence: Fence,
        book: RecordBook,
        host: StageHost,
        files: Files,
        colleagues: Colleagues,
    ) -> None:
        """Begin with no order.

        Args:
            node_id: This node.
            fence: Its own.
            book: Keeps the record.
            host: Runs stages.
            files: Of models, here and elsewhere.
            colleagues: The other nodes, to talk to.
        """
        self._node_id = node_id
        self._admission = OrderAdmission(fence, self._begin)
        self._host = host
        self._book = book
        self._shelf, self._sources = files
        self._colleagues = colleagues
        self.on_kept: Callable[[], Awaitable[None]] | None = None
        self._group: asyncio.TaskGroup | None = None
        self._work: dict[str, asyncio.Task[None]] = {}
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._epochs: dict[str, int] = {}  # that work is for
        self._described: StageReady | None = None  # what was answered last
        self._loop = asyncio.get_running_loop()

    async def run(self) -> None:
        """Stand in for the work until cancelled.

        Cancellation: ends all work; what was fetched stays.
        """
        async with asyncio.TaskGroup() as self._group:
            await self._admission.run()

    def is_placing(self, epoch: int) -> bool:
        """Return whether a stage of this placement is being fetched or loaded here."""
        return epoch != 0 and self._is_at("stage", epoch)  # a record without stages has epoch 0

    def _is_at(self, kind: str, epoch: int) -> bool:
        task = self._work.get(kind)
        return self._epochs.get(kind) == epoch and task is not None and not task.done()

    def take(self, order: Order, sender: NodeId) -> None:
        """Take an order; it is carried out beside everything else.

        Args:
            order: As it came.
            sender: Whose session it came over.

        Fails with ``RemoteProtocolError`` where it has no stamp, or another node's.
        """
        self._admission.take(order, sender)

    def look(self) -> None:
        """Take note that another term may be in force."""
        self._admission.look()

    def _begin(self, order: Order, stamp: Stamp) -> None:
        match order:
            case DeploymentChanged():
                if (
                    order.deployment.term == stamp.term
                ):  # a coordinator speaks for its own term only
                    self._take_record(order.deployment)
            case Placement():
                if self._described is not None and self._host.epoch == order.epoch:
                    self._colleagues.answer(stamp, self._described)  # it was lost on the way
                else:
                    self._start("stage", order.epoch, partial(self._place, order, stamp))
            case EndPlacement():
                if self.is_placing(order.epoch) or self._host.epoch == order.epoch:
                    self._end_stage(for_good=self._is_settled_without(order.epoch))
            case SplitModel():
                self._start("split", order.epoch, partial(self._split, order, stamp))
            case KeepModel():
                self._start("keep", 0, partial(self._keep, order))
            case WarmUp():
                self._start("warm-up", order.epoch, partial(self._warm_up, order, stamp))

    def _take_record(self, record: Deployment) -> None:
        """Take the record, and end a stage the pool no longer counts on."""
        self._book.take(record)
        present = self._book.deployment
        if present is not None and present.phase in {"ready", "unloaded"}:
            model = () if present.wish is None else (present.wish.model_sha256,)
            shards = () if present.manifest_sha256 is None else (present.manifest_sha256,)
            self._shelf.let_go_all_but((*model, *shards))
            self._copy_shards(present)
        if present is None or self.is_placing(present.epoch):
            return
        is_settled = present.phase in SETTLED
        if self._host.epoch not in {0, present.epoch}:
            self._end_stage(for_good=is_settled)
        elif is_settled and self._host.epoch == 0 and self._host.is_loaded:
            self._end_stage(for_good=True)

    def _is_settled_without(self, epoch: int) -> bool:
        """Return whether no placement is being made that may want what was loaded for this one."""
        present = self._book.deployment
        return present is not None and present.phase in SETTLED and present.epoch != epoch

    def _end_stage(self, *, for_good: bool) -> None:
        """End what runs or is being loaded here: the pool has another plan."""
        if for_good:
            self._start("stage", -1, self._host.end)
        else:
            self._start("stage", 0, self._end_for_now)

    async def _end_for_now(self) -> None:
        """End the placement; keep what is loaded for a while, since the next one may want it."""
        await self._host.end(for_good=False)
        await asyncio.sleep(KEEP_LOADED_S)
        await self._host.end()

    def _start(
        self, kind: str, epoch: int, work: Callable[[], Coroutine[object, object, None]]
    ) -> None:
        """Start work once older work of its kind has ended, unless it is the very same."""
        if self._group is None or self._is_at(kind, epoch):
            return
        self._epochs[kind] = epoch
        self._work[kind] = self._group.create_task(
            _after(self._work.get(kind), self._turns[kind], work)
        )

    # ---- the orders ---------------------------------------------------------------------------

    async def _place(self, placement: Placement, stamp: Stamp) -> None:
        index = 0
        try:
            first, *more = places = own_places(placement, self._node_id)
            index = first.stage_index
            report = self._report(placement.epoch)
            async with self._sources.open() as sources:
                folder = await self._fetched(placement, first, sources)
                for place in more:  # into the same folder
                    await self._fetched(placement, place, sources)
            report("compile", 0, 1, "steps")
            description = await self._loaded(placement, places, folder)
            report("compile", 1, 1, "steps")
        except DaisyError as error:
            failed = StageFailed(
                epoch=placement.epoch,
                stage_index=index,
                code=error.code,
                what=error.what,
                advice=error.advice,
            )
            self._colleagues.answer(stamp, failed)
        else:
            ready = StageReady(epoch=placement.epoch, stage_index=index, description=description)
            self._described = ready
            self._colleagues.answer(stamp, ready)

    async def _fetched(
        self, placement: Placement, place: StagePlace, sources: Sequence[ChunkSource]
    ) -> Path:
        report = self._report(placement.epoch)
        return await self._shelf.fetch(placement.manifest_sha256, place.layers, sources, report)

    async def _loaded(
        self, placement: Placement, places: Sequence[StagePlace], folder: Path
    ) -> StageDescription:
        try:
            return await self._host.place(self._addressed(placement), folder)
        except ShardCorruptError:
            # What is damaged goes out of the store, so that the next attempt fetches it anew.
            for place in places:
                await self._shelf.verify(placement.manifest_sha256, place.layers)
            raise

    async def _split(self, order: SplitModel, stamp: Stamp) -> None:
        manifest_sha256, trouble = None, None
        try:
            manifest_sha256 = await self._shelf.split(
                order.wish.model_sha256, order.layers, self._report(order.epoch)
            )
        except DaisyError as error:
            trouble = trouble_of(error)
        answer = ModelSplit(epoch=order.epoch, manifest_sha256=manifest_sha256, trouble=trouble)
        self._colleagues.answer(stamp, answer)

    async def _keep(self, order: KeepModel) -> None:
        try:
            async with self._sources.open() as sources:
                await self._shelf.keep(order.model_sha256, sources, self._report(0))
        except DaisyError as error:
            _logger.warning("keep: a second copy of the model could not be made, %s", error.what)
        else:
            if self.on_kept is not None:
                await self.on_kept()
            if self._book.deployment is not None:
                self._copy_shards(self._book.deployment)

    def _copy_shards(self, record: Deployment) -> None:
        """Begin to fetch all shards of what runs, where this node keeps its model."""
        wish = record.wish
        if record.phase != "ready" or wish is None or record.manifest_sha256 is None:
            return
        if wish.model_sha256 in self._shelf.kept():
            self._start(
                "copy", record.epoch, partial(self._copy, record, record.manifest_sha256, wish)
            )

    async def _copy(self, record: Deployment, manifest_sha256: str, wish: Wish) -> None:
        layers = tuple(share.layers for share in record.stages)
        try:
            async with self._sources.open() as sources:
                await self._shelf.copy_shards(wish.model_sha256, manifest_sha256, layers, sources)
        except DaisyError as error:
            _logger.warning("copy: the shards could not be fetched, %s", error.what)

    async def _warm_up(self, order: WarmUp, stamp: Stamp) -> None:
        trouble = None
        report = self._report(order.epoch)
        report("warm-up", 0, 1, "steps")
        try:
            await self._host.probe(order.epoch)
        except DaisyError as error:
            trouble = trouble_of(error)
        else:
            report("warm-up", 1, 1, "steps")
        self._colleagues.answer(stamp, WarmedUp(epoch=order.epoch, trouble=trouble))

    def _addressed(self, placement: Placement) -> Placement:
        """Return a placement with every node's address as it is reached from here."""
        return replace(
            placement,
            stages=tuple(
                replace(place, address=self._colleagues.address_of(place.node_id) or place.address)
                for place in placement.stages
            ),
        )

    def _report(self, epoch: int) -> WorkReport:
        return WorkReport(self._node_id, epoch, self._colleagues.tell_all, self._loop.time)


async def _after(
    before: asyncio.Task[None] | None,
    turn: asyncio.Lock,
    work: Callable[[], Coroutine[object, object, None]],
) -> None:
    if before is not None:
        before.cancel()
    async with turn:  # what was cancelled holds it until it has ended
        await work()


def trouble_of(error: DaisyError) -> Trouble:
    """Return an error as it is told to other nodes.

    Args:
        error: Any of ours.
    """
    return Trouble(code=error.code, what=error.what, advice=error.advice)

"""The one placement this node takes part in: its stage, its links, and its head if it has it.

A node has one stage, or two where the first and the last stay with it. Frames are taken only from
the node whose stage comes before, and sampled tokens only from the one that has the last stage:
what any other member of the pool sends to a chain it is no part of counts for nothing.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from engine.domain import NodeId, SampledTokens
from engine.errors import DaisyError, PlacementError
from engine.messages.chain import BatchFailed, StageFailed, own_places
from engine.messages.codec import decode
from engine.pipeline.chat_text import load_chat_text
from engine.pipeline.draft_keeper import DraftKeeper
from engine.pipeline.head import Head
from engine.pipeline.loaded_stage import LoadedStage, load_stage
from engine.pipeline.placed_stage import PlacedStage, join_chain
from engine.pipeline.shard_folder import ShardFolder, open_shard_folder
from engine.pipeline.withheld_tokens import WithheldTokens
from engine.scheduler.row_costs import RowCosts

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence
    from pathlib import Path
    from types import TracebackType

    from engine.domain import StageDescription
    from engine.messages.chain import Placement, StagePlace
    from engine.pipeline.draft_keeper import DraftChoice
    from engine.transport.endpoint import Endpoint

_logger = logging.getLogger(__name__)


class Placements:
    """Loads, runs and ends this node's stages; one placement at a time.

    Attributes:
        stages: What runs, in the order of the chain; none, one, or the first and the last.
        head: The head, where this node has the first stage.
        on_changed: Told when a stage begins or ends here.
        on_broken: Told when the chain whose head is here can't go on.

    Thread: the node's loop.
    """

    def __init__(
        self,
        node_id: NodeId,
        endpoint: Endpoint,
        group: asyncio.TaskGroup,
        cpus: tuple[int, ...] | None,
        draft: DraftChoice = "none",
    ) -> None:
        """Begin with none.

        Args:
            node_id: This node.
            endpoint: Opens connections to the neighbours.
            group: Parent of what runs.
            cpus: Processors a stage may use; None for all.
            draft: Which draft model guesses where the head is here.
        """
        self.stages: tuple[PlacedStage, ...] = ()
        self.head: Head | None = None
        self.on_changed: Callable[[], None] | None = None
        self.on_broken: Callable[[StageFailed], None] | None = None
        self._node_id = node_id
        self._endpoint = endpoint
        self._group = group
        self._cpus = cpus
        self._draft: DraftChoice = draft
        self._drafts: DraftKeeper | None = None
        self._loaded: tuple[LoadedStage, ...] = ()
        self._stack = AsyncExitStack()
        self._turn = asyncio.Lock()

    @property
    def stage(self) -> PlacedStage | None:
        """The first of those that run; None for nothing."""
        return self.stages[0] if self.stages else None

    @property
    def epoch(self) -> int:
        """Of the placement whose stage runs here; 0 for none."""
        return 0 if self.stage is None else self.stage.placement.epoch

    @property
    def is_loaded(self) -> bool:
        """Whether a stage is loaded here, of a placement that runs or has ended."""
        return bool(self._loaded)

    async def place(self, placement: Placement, folder: Path) -> StageDescription:
        """Load this node's stage out of a folder, in place of what ran.

        What is loaded already and asked for again goes on.

        Args:
            placement: Who runs what; with addresses as they are reached from here.
            folder: Of shards.

        Returns:
            What was loaded; of two stages the first.

        Fails as ``run_stage`` does; then nothing runs.

        Cancellation: ends what was being loaded; nothing runs.
        """
        return await self.load(placement, await asyncio.to_thread(open_shard_folder, folder))

    async def load(self, placement: Placement, folder: ShardFolder) -> StageDescription:
        """As ``place``, with shards that are open.

        Args:
            placement: Who runs what.
            folder: Its shards.
        """  # noqa: DOC501 - cancellation is passed on
        places = own_places(placement, self._node_id)
        async with self._turn:
            await self._end()
            try:
                loaded = await self._load(placement, places, folder)
                self.stages = await self._start_all(placement, places, loaded, folder)
            except asyncio.CancelledError:
                await self._end()
                raise
            except BaseException:
                await self._give_up()
                raise
            self._tell_changed()
            return loaded[0].description

    async def end(self, *, for_good: bool = True) -> None:
        """End the running placement, if there is one: its requests and its links.

        Args:
            for_good: Whether its process ends as well; else it stays for the next placement.

        Cancellation: what is loaded ends then too.
        """
        async with self._turn:
            await (self._give_up() if for_good else self._end())

    def memory_bytes(self) -> int:
        """Return what the processes of stages and draft model take of this PC's memory."""
        drafts = 0 if self._drafts is None else self._drafts.memory_bytes()
        return drafts + sum(loaded.process.memory_bytes() for loaded in self._loaded)

    async def probe(self, epoch: int) -> None:
        """Send a token round the chain whose head is here.

        Args:
            epoch: Of the placement that is meant.

        Raises:
            PlacementError: Its head is not here.

        Fails as the chain does.
        """
        if self.head is None or self.epoch != epoch:
            raise PlacementError(f"The head of placement {epoch} does not run on this PC.")
        await self.head.probe()

    def stage_after(self, sender: NodeId) -> PlacedStage | None:
        """Return the stage here that takes what a node sends; None for what nobody waits for.

        Args:
            sender: Whose certificate the connection showed.
        """
        for stage in self.stages:
            before = stage.place.stage_index - 1
            if before >= 0 and stage.placement.stages[before].node_id == sender:
                return stage
        return None

    def on_sampled(self, tokens: SampledTokens, frame: bytes, sender: NodeId) -> None:
        """Take what the last stage sampled, if the head is here.

        Args:
            tokens: Decoded.
            frame: As they came.
            sender: Whose certificate the connection showed. Another stage of the chain may only
                say that it dropped a micro-batch, with no token in it; nobody else says anything.
        """
        if self.head is None or self.stage is None:
            return
        stages = self.stage.placement.stages
        is_dropped = not any(row.token_ids for row in tokens.rows)
        if stages[-1].node_id == sender or (
            is_dropped and any(place.node_id == sender for place in stages)
        ):
            self.head.on_sampled(tokens, frame)

    def on_failure(self, failure: BatchFailed | StageFailed, sender: NodeId | None = None) -> None:
        """Take what a stage of the chain reports to its head.

        Args:
            failure: Of any epoch; that of another one is nothing to this head.
            sender: Who says so; what a node outside of the chain says counts for nothing. None
                for this node itself.
        """
        if self.head is None or self.stage is None:
            return
        chain = {place.node_id for place in self.stage.placement.stages}
        if sender is None or sender in chain:
            self.head.on_failure(failure)

    async def _load(
        self, placement: Placement, places: tuple[StagePlace, ...], folder: ShardFolder
    ) -> tuple[LoadedStage, ...]:
        """Return the stages that are asked for; what is loaded and is none of them ends first."""
        found = [
            next((one for one in self._loaded if one.serves(placement, place, folder)), None)
            for place in places
        ]
        await self._give_up_all_but(found)
        loaded = []
        for place, known in zip(places, found, strict=True):
            one = known
            if one is None:
                one = await load_stage(placement, place, folder, self._cpus)
                self._loaded = (*self._loaded, one)
            loaded.append(one)
        return tuple(loaded)

    async def _start_all(
        self,
        placement: Placement,
        places: tuple[StagePlace, ...],
        loaded: tuple[LoadedStage, ...],
        folder: ShardFolder,
    ) -> tuple[PlacedStage, ...]:
        """Start the last one first: once there is a head, requests may come."""
        withheld = WithheldTokens(placement.epoch) if len(places) > 1 else None
        started = [
            await self._start(placement, place, one, folder, withheld)
            for place, one in zip(reversed(places), reversed(loaded), strict=True)
        ]
        return tuple(reversed(started))

    async def _start(
        self,
        placement: Placement,
        place: StagePlace,
        loaded: LoadedStage,
        folder: ShardFolder,
        withheld: WithheldTokens | None,
    ) -> PlacedStage:
        async def send_own_head(frame: bytes) -> None:
            message = decode(frame)
            if isinstance(message, SampledTokens):
                if self.head is not None:
                    self.head.on_sampled(message, frame)
            elif isinstance(message, BatchFailed | StageFailed):
                self.on_failure(message)

        stage = await self._stack.enter_async_context(
            join_chain(placement, place, loaded, self._endpoint, send_own_head, withheld)
        )
        tasks = await self._stack.enter_async_context(_CancelledAtEnd(self._group))
        if place.stage_index == 0:
            text = await asyncio.to_thread(load_chat_text, folder)
            self._drafts = DraftKeeper(self._draft, self._cpus) if placement.speculate else None
            guessing = None
            if self._drafts is not None:
                guessing = self._drafts.guessing(loaded.description, len(placement.stages))
                tasks.start(self._drafts.run(text, placement))
            costs = RowCosts(loaded.description.row_times)
            self.head = Head(
                text, placement, stage.server.accept, self._tell_broken, guessing, costs
            )
            tasks.start(self.head.run_loop())
        for loop in stage.loops():
            tasks.start(_logged(loop))
        await asyncio.sleep(0)  # they begin now: what never began could not be ended in order
        return stage

    async def _end(self) -> None:
        """End the placement; what is loaded stays if it can."""
        stages, self.stages = self.stages, ()
        head, self.head = self.head, None
        if head is not None:
            head.stop()
        stack, self._stack = self._stack, AsyncExitStack()
        if not stages:
            await stack.aclose()
            return
        # Until it has settled it is nobody's: whoever is stopped here leaves none for the next.
        loaded, self._loaded = self._loaded, ()
        settled: list[LoadedStage] = []
        try:
            await stack.aclose()
            for stage in stages:
                if await stage.loaded.settle(stage.placement.epoch, stage.server.open_sequences):
                    settled.append(stage.loaded)  # noqa: PERF401 - counts also if this is cancelled
        finally:
            self._loaded = tuple(settled)
            await asyncio.shield(_closed([one for one in loaded if one not in settled]))
            self._tell_changed()

    async def _give_up(self) -> None:
        """End the placement and what is loaded."""
        await self._end()
        await self._give_up_all_but(())

    async def _give_up_all_but(self, kept: Sequence[LoadedStage | None]) -> None:
        doomed = [one for one in self._loaded if one not in kept]
        self._loaded = tuple(one for one in self._loaded if one in kept)
        if doomed:
            await asyncio.shield(_closed(doomed))
            self._tell_changed()

    def _tell_broken(self, failure: StageFailed) -> None:
        if self.on_broken is not None:
            self.on_broken(failure)

    def _tell_changed(self) -> None:
        if self.on_changed is not None:
            self.on_changed()


class _CancelledAtEnd:
    """Tasks of the node's group that end with a placement."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> _CancelledAtEnd:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def start(self, coroutine: Coroutine[object, object, None]) -> None:
        self._tasks.append(self._group.create_task(coroutine))


async def _closed(loaded: Iterable[LoadedStage]) -> None:
    """End processes, all at once."""
    async with asyncio.TaskGroup() as group:
        for one in loaded:
            group.create_task(one.close())


async def _logged(coroutine: Coroutine[object, object, None]) -> None:
    """Run a loop whose end is reported elsewhere."""
    try:
        await coroutine
    except DaisyError as error:
        _logger.info("stage: ended, %s", error.what)

"""The one placement this node takes part in: its stage, its links, and its head if it has it."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from engine.domain import NodeId, SampledTokens
from engine.errors import DaisyError, PlacementError
from engine.messages.codec import decode
from engine.messages.control import BatchFailed, StageFailed
from engine.pipeline.chat_text import load_chat_text
from engine.pipeline.head import Head
from engine.pipeline.loaded_stage import LoadedStage, load_stage
from engine.pipeline.placed_stage import PlacedStage, join_chain, own_place
from engine.pipeline.shard_folder import ShardFolder, open_shard_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path
    from types import TracebackType

    from engine.domain import StageDescription
    from engine.messages.control import Placement, StagePlace
    from engine.transport.endpoint import Endpoint

_logger = logging.getLogger(__name__)


class Placements:
    """Loads, runs and ends this node's stage; one placement at a time.

    Attributes:
        stage: What runs; None for nothing.
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
    ) -> None:
        """Begin with none.

        Args:
            node_id: This node.
            endpoint: Opens connections to the neighbours.
            group: Parent of what runs.
            cpus: Processors a stage may use; None for all.
        """
        self.stage: PlacedStage | None = None
        self.head: Head | None = None
        self.on_changed: Callable[[], None] | None = None
        self.on_broken: Callable[[StageFailed], None] | None = None
        self._node_id = node_id
        self._endpoint = endpoint
        self._group = group
        self._cpus = cpus
        self._loaded: LoadedStage | None = None
        self._stack = AsyncExitStack()
        self._turn = asyncio.Lock()

    @property
    def epoch(self) -> int:
        """Of the placement whose stage runs here; 0 for none."""
        return 0 if self.stage is None else self.stage.placement.epoch

    @property
    def is_loaded(self) -> bool:
        """Whether a stage is loaded here, of a placement that runs or has ended."""
        return self._loaded is not None

    async def place(self, placement: Placement, folder: Path) -> StageDescription:
        """Load this node's stage out of a folder, in place of what ran.

        What is loaded already and asked for again goes on.

        Args:
            placement: Who runs what; with addresses as they are reached from here.
            folder: Of shards.

        Returns:
            What was loaded.

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
        place = own_place(placement, self._node_id)
        async with self._turn:
            await self._end()
            try:
                loaded = await self._load(placement, place, folder)
                self.stage = await self._start(placement, place, loaded, folder)
            except asyncio.CancelledError:
                await self._end()
                raise
            except BaseException:
                await self._give_up()
                raise
            self._tell_changed()
            return loaded.description

    async def end(self, *, for_good: bool = True) -> None:
        """End the running placement, if there is one: its requests and its links.

        Args:
            for_good: Whether its process ends as well; else it stays for the next placement.

        Cancellation: what is loaded ends then too.
        """
        async with self._turn:
            await (self._give_up() if for_good else self._end())

    def memory_bytes(self) -> int:
        """Return what the stage's process takes of this PC's memory."""
        return 0 if self._loaded is None else self._loaded.process.memory_bytes()

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
        self, placement: Placement, place: StagePlace, folder: ShardFolder
    ) -> LoadedStage:
        """Return the stage that is loaded, if it is the one that is asked for; else load it."""
        if self._loaded is not None and self._loaded.serves(placement, place, folder):
            return self._loaded
        await self._give_up()
        self._loaded = await load_stage(placement, place, folder, self._cpus)
        return self._loaded

    async def _start(
        self, placement: Placement, place: StagePlace, loaded: LoadedStage, folder: ShardFolder
    ) -> PlacedStage:
        async def send_own_head(frame: bytes) -> None:
            message = decode(frame)
            if isinstance(message, SampledTokens):
                if self.head is not None:
                    self.head.on_sampled(message, frame)
            elif isinstance(message, BatchFailed | StageFailed):
                self.on_failure(message)

        stage = await self._stack.enter_async_context(
            join_chain(placement, place, loaded, self._endpoint, send_own_head)
        )
        tasks = await self._stack.enter_async_context(_CancelledAtEnd(self._group))
        if place.stage_index == 0:
            text = await asyncio.to_thread(load_chat_text, folder)
            self.head = Head(text, placement, stage.server.accept, self._tell_broken)
            tasks.start(self.head.run_loop())
        for loop in stage.loops():
            tasks.start(_logged(loop))
        await asyncio.sleep(0)  # they begin now: what never began could not be ended in order
        return stage

    async def _end(self) -> None:
        """End the placement; what is loaded stays if it can."""
        stage, self.stage = self.stage, None
        head, self.head = self.head, None
        if head is not None:
            head.stop()
        stack, self._stack = self._stack, AsyncExitStack()
        if stage is None:
            await stack.aclose()
            return
        # Until it has settled it is nobody's: whoever is stopped here leaves none for the next.
        loaded, self._loaded = stage.loaded, None
        has_settled = False
        try:
            await stack.aclose()
            has_settled = await loaded.settle(stage.placement.epoch, stage.server.open_sequences)
        finally:
            if has_settled:
                self._loaded = loaded
            else:
                await asyncio.shield(loaded.close())
            self._tell_changed()

    async def _give_up(self) -> None:
        """End the placement and what is loaded."""
        await self._end()
        await self._give_up_process()

    async def _give_up_process(self) -> None:
        loaded, self._loaded = self._loaded, None
        if loaded is not None:
            await asyncio.shield(loaded.close())
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


async def _logged(coroutine: Coroutine[object, object, None]) -> None:
    """Run a loop whose end is reported elsewhere."""
    try:
        await coroutine
    except DaisyError as error:
        _logger.info("stage: ended, %s", error.what)

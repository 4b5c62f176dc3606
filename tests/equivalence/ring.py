"""A head over stage processes, as the nodes of a placement run them, without a network."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

import openvino as ov

from engine.domain import LayerRange, NodeId, SampledTokens
from engine.errors import DaisyError
from engine.messages.chain import BatchFailed, Placement, StageFailed, StagePlace
from engine.messages.codec import decode
from engine.pipeline.head import Head
from engine.pipeline.loaded_stage import LoadedStage
from engine.pipeline.stage_server import StageServer
from engine.scheduler.scheduler import Scheduler
from engine.splitter.cut import cut_shard
from engine.splitter.paged_support import probe_paged_support
from engine.stages.host import StageProcess
from tests.equivalence.chain import order, ranges_at
from tests.unit.pipeline.scripted import Asker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine
    from pathlib import Path

    from engine.domain import StageDescription
    from engine.messages.control import Generate
    from engine.messages.stage_control import LoadShard
    from engine.pipeline.chat_text import ChatText
    from engine.scheduler.row_costs import RowCosts
    from engine.splitter.analysis import Analysis

LOAD_WITHIN_S = 120.0
SETTLED_WITHIN_S = 60.0


def orders_of(
    analysis: Analysis, folder: Path, cuts: list[int], kind: str, mode: str = "exact"
) -> list[LoadShard]:
    """Cut a model into shards, those that are not there yet, and say how each is loaded."""
    orders = []
    for layers in ranges_at(cuts, analysis.num_layers):
        xml = folder / f"{layers.start}-{layers.stop}" / "openvino_model.xml"
        if not xml.exists():
            xml.parent.mkdir(parents=True)
            shard = cut_shard(analysis, layers).model
            window = probe_paged_support(shard, len(layers)).sliding_window
            ov.save_model(shard, str(xml), compress_to_fp16=False)
            (xml.parent / "window").write_text(str(window or 0))
        window = int((xml.parent / "window").read_text()) or None
        orders.append(order(analysis, layers, xml, kind, mode, window))
    return orders


class Ring:
    """Stage processes one after the other, and at most one placement of them at a time.

    Attributes:
        processes: In order; they outlive a placement.
        head: Of the placement.
        servers: Of the placement.
    """

    def __init__(self, text: ChatText, orders: list[LoadShard]) -> None:
        self.text = text
        self.orders = orders
        self.processes: list[StageProcess] = []
        self.descriptions: list[StageDescription] = []
        self.head: Head
        self.servers: list[StageServer]
        self._epoch = 0
        self._lost: set[int] = set()

    async def load(self) -> None:
        """Start a process for each stage."""
        tasks = []
        async with asyncio.TaskGroup() as group:
            for index, wanted in enumerate(self.orders):
                self.processes.append(StageProcess())
                tasks.append(group.create_task(self.processes[index].load(wanted, LOAD_WITHIN_S)))
        self.descriptions = [task.result() for task in tasks]

    async def close(self) -> None:
        for process in self.processes:
            await process.close()

    def kill(self, index: int) -> None:
        """End a stage's process as a driver may."""
        self._lost.add(index)
        os.kill(self.processes[index].pid, signal.SIGKILL)

    async def replace_stage(self, index: int) -> None:
        """Load one stage again, whose process has ended."""
        self._lost.remove(index)
        await self.processes[index].close()
        self.processes[index] = StageProcess()
        await self.processes[index].load(self.orders[index], LOAD_WITHIN_S)

    @asynccontextmanager
    async def placed(
        self,
        max_sequences: int,
        context_tokens: int = 512,
        max_tokens: int | None = None,
        row_costs: RowCosts | None = None,
    ) -> AsyncIterator[Head]:
        """Place the stages; at the end, free what they hold and see that it is all.

        Args:
            max_sequences: At once.
            context_tokens: Of each.
            max_tokens: Room for all together, if it is to be less than for each of them.
            row_costs: By which the head cuts prompts; None for chunks as long as may be.

        Yields:
            The head.
        """
        self._epoch += 1
        placement = self._placement(max_sequences, context_tokens)
        self.servers = []
        for index in reversed(range(len(self.processes))):
            send_next = self.servers[0].accept if self.servers else None
            process = self.processes[index]
            server = StageServer(process, index, self._epoch, send_next, self._to_head)
            self.servers.insert(0, server)
        self.head = Head(self.text, placement, self.servers[0].accept, row_costs=row_costs)
        if max_tokens is not None:
            limits = replace(self.head._scheduler._limits, max_tokens=max_tokens)
            self.head._scheduler = Scheduler(limits, self._epoch)
        loops = [self.head.run_loop(), *(server.run_loop() for server in self.servers)]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_until_broken(loop)) for loop in loops]
            try:
                yield self.head
            finally:
                for task in tasks:
                    task.cancel()
        for index, server in enumerate(self.servers):
            if index in self._lost:
                continue
            process = self.processes[index]
            loaded = LoadedStage(process, self.descriptions[index], "", self.orders[index], "")
            assert await loaded.settle(self._epoch, server.open_sequences), "something is left"

    def _placement(self, max_sequences: int, context_tokens: int) -> Placement:
        return Placement(
            epoch=self._epoch,
            manifest_sha256="0" * 64,
            context_tokens=context_tokens,
            max_sequences=max_sequences,
            stages=tuple(
                StagePlace(
                    node_id=NodeId(f"node-{index}"),
                    address=f"wss://127.0.0.1:{9000 + index}",
                    stage_index=index,
                    layers=LayerRange(wanted.layers.start, wanted.layers.stop),
                    kind=wanted.kind,
                    mode=wanted.mode,
                )
                for index, wanted in enumerate(self.orders)
            ),
        )

    async def _to_head(self, frame: bytes) -> None:
        message = decode(frame)
        if isinstance(message, SampledTokens):
            self.head.on_sampled(message, frame)
        elif isinstance(message, BatchFailed | StageFailed):
            self.head.on_failure(message)

    async def balanced(self) -> None:
        """Wait until nothing runs and every stage holds what the head says it keeps.

        Raises:
            TimeoutError: They never agree.
        """
        async with asyncio.timeout(SETTLED_WITHIN_S):
            while not await self._is_balanced():  # noqa: ASYNC110 - stages say nothing unasked
                await asyncio.sleep(0.01)
        self.head._scheduler.check_integrity()

    async def _is_balanced(self) -> bool:
        load = self.head.load()
        if load.num_running or load.num_waiting or load.num_batches_in_flight:
            return False
        for process, wanted in zip(self.processes, self.orders, strict=True):
            usage = await process.usage()
            if usage.num_sequences != len(load.kept_ids):
                return False
            # A stateful stage holds masked slots as well, until it needs them.
            if wanted.kind == "paged" and usage.used_blocks != load.kept_blocks:
                return False
        return True

    async def ask(self, request: Generate, key: str | None = None) -> Asker:
        """Ask and wait for the end."""
        asker = Asker()
        await self.head.answer(request, asker.send, key)
        return asker


def prompt_of(text: ChatText, request: Generate) -> list[int]:
    """Return the ids of a request's prompt."""
    return text.prompt_ids(request, datetime.now().astimezone())


async def _until_broken(loop: Coroutine[object, object, None]) -> None:
    with suppress(DaisyError):
        await loop


async def failure_of(work: object) -> DaisyError:
    """Return what an answer failed with."""
    try:
        await work
    except DaisyError as error:
        return error
    raise AssertionError("it did not fail")

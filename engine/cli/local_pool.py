"""Several nodes on this PC, one for each shard, and a connection to ask them through.

Until PCs find each other by themselves, this is who starts the nodes and sends the placement.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.cli.asker_endpoint import open_asker_endpoint
from engine.config import NODE_START_DEADLINE_S, NODE_STOP_DEADLINE_S, PLACEMENT_DEADLINE_S
from engine.domain import ComputeMode, NodeId, StageKind
from engine.errors import PeerTimeoutError, RemoteProtocolError, StageError, rebuilt
from engine.messages.codec import decode, encode_control
from engine.messages.control import (
    Placement,
    StageFailed,
    StagePlace,
    StageReady,
)

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import AsyncIterator, Callable, Sequence

    from engine.domain import StageDescription
    from engine.pipeline.shard_folder import ShardFolder
    from engine.transport.connection import Connection

_EPOCH = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOptions:
    """How the stages run.

    Attributes:
        kind: Paged or stateful; None for paged where every shard can be.
        mode: Exact or fast.
        context_tokens: Of one sequence.
        max_sequences: At once.
        num_threads: Of each stage; None lets the device decide.
        base_port: Of the first node; 0 lets the system choose all.
        cpus: Processors of each stage, in order; None for all.
    """

    kind: StageKind | None = None
    mode: ComputeMode = "fast"
    context_tokens: int
    max_sequences: int = 1
    num_threads: int | None = None
    base_port: int = 0
    cpus: Sequence[tuple[int, ...]] | None = None


@dataclass(frozen=True, slots=True)
class LocalNode:
    """A node process of this pool."""

    node_id: NodeId
    address: str
    process: Process


@dataclass(frozen=True, slots=True)
class LocalPool:
    """Nodes that run and hold a model.

    Attributes:
        head: The connection to ask through.
        nodes: In the order of the stages.
        stages: What each has loaded.
    """

    head: Connection
    nodes: tuple[LocalNode, ...]
    stages: tuple[StageDescription, ...]


@asynccontextmanager
async def open_local_pool(
    folder: ShardFolder,
    options: PoolOptions,
    on_ready: Callable[[int, int], None] = lambda _done, _total: None,
) -> AsyncIterator[LocalPool]:
    """Start a node for each shard, load the model, and connect to the head.

    Args:
        folder: The shards.
        options: How the stages run.
        on_ready: Told ``(stages loaded, stages)``.

    Yields:
        The pool, for as long as the context is open.

    Raises:
        PortInUseError: A port is taken.
        StageError: A stage can't be loaded.
        PeerTimeoutError: A node did not start, or a stage did not load, in time.

    Cancellation: ends every node and waits for it.
    """
    async with AsyncExitStack() as stack:
        nodes = await stack.enter_async_context(_nodes(folder, options))
        endpoint = await stack.enter_async_context(open_asker_endpoint())
        links = [await endpoint.connect(node.address) for node in nodes]
        placement = _placement(folder, options, nodes)
        for link in links:
            await link.send(encode_control(placement))
        stages: list[StageDescription] = []
        on_ready(0, len(links))
        for link in links:
            stages.append(await _loaded(link))
            on_ready(len(stages), len(links))
        yield LocalPool(links[0], tuple(nodes), tuple(stages))


@asynccontextmanager
async def _nodes(folder: ShardFolder, options: PoolOptions) -> AsyncIterator[list[LocalNode]]:
    """Start all nodes at once, and end them all at once: neither takes longer for more of them.

    Yields:
        The nodes, which listen.
    """
    processes: list[Process] = []
    try:
        for index in range(len(folder.manifest.shards)):
            # Not in one expression: where one can't be started, those before it are ended.
            processes.append(await _start(folder, options, index))  # noqa: PERF401
        addresses = [await _address(p, _node_id(i)) for i, p in enumerate(processes)]
        yield [
            LocalNode(_node_id(i), address, process)
            for i, (address, process) in enumerate(zip(addresses, processes, strict=True))
        ]
    finally:
        await asyncio.shield(asyncio.gather(*map(_end, processes)))


def _node_id(index: int) -> NodeId:
    return NodeId(f"node-{index + 1}")


async def _start(folder: ShardFolder, options: PoolOptions, index: int) -> Process:
    node_id = _node_id(index)
    port = options.base_port + index if options.base_port else 0
    # UTF-8 whatever the locale: a node sends paths to its stage as text.
    command = [sys.executable, "-X", "utf8", "-m", "engine"]
    command += ["--node-id", node_id, "--until-stdin-closes"]
    command += ["--port", str(port), "--shards", str(folder.path)]
    if options.cpus is not None:
        command += ["--cpus", ",".join(map(str, options.cpus[index]))]
    # A session of its own: Ctrl-C reaches only the asker, which then ends the nodes in order.
    return await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )


async def _address(process: Process, node_id: NodeId) -> str:
    assert process.stdout is not None  # noqa: S101 - a pipe was asked for
    try:
        async with asyncio.timeout(NODE_START_DEADLINE_S):
            line = await process.stdout.readline()
    except TimeoutError as exc:
        raise PeerTimeoutError(
            f"{node_id} did not start within {NODE_START_DEADLINE_S:g} s."
        ) from exc
    try:
        told = json.loads(line)
    except json.JSONDecodeError as exc:
        raise StageError(f"{node_id} ended before it could be reached.") from exc
    if "error" in told:
        raise rebuilt(told["error"], told["what"], told["advice"])
    return str(told["address"])


async def _end(process: Process) -> None:
    if process.stdin is not None:
        process.stdin.close()
    try:
        async with asyncio.timeout(NODE_STOP_DEADLINE_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def _placement(folder: ShardFolder, options: PoolOptions, nodes: Sequence[LocalNode]) -> Placement:
    shards = folder.manifest.shards
    kind = options.kind or ("paged" if all(s.can_be_paged for s in shards) else "stateful")
    return Placement(
        epoch=_EPOCH,
        manifest_sha256=folder.manifest_sha256,
        context_tokens=options.context_tokens,
        max_sequences=options.max_sequences,
        stages=tuple(
            StagePlace(
                node_id=node.node_id,
                address=node.address,
                stage_index=index,
                layers=shard.layers,
                kind=kind,
                mode=options.mode,
                num_threads=options.num_threads,
            )
            for index, (node, shard) in enumerate(zip(nodes, shards, strict=True))
        ),
    )


async def _loaded(link: Connection) -> StageDescription:
    try:
        async with asyncio.timeout(PLACEMENT_DEADLINE_S):
            answer = decode(await link.receive())
    except TimeoutError as exc:
        raise PeerTimeoutError(f"A stage did not load within {PLACEMENT_DEADLINE_S:g} s.") from exc
    match answer:
        case StageReady():
            return answer.description
        case StageFailed():
            raise rebuilt(answer.code, f"Stage {answer.stage_index}: {answer.what}", answer.advice)
        case _:
            raise RemoteProtocolError(f"A node answered a placement with {type(answer).__name__}.")

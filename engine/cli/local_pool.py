"""Several nodes on this PC, one for each shard, and a connection to ask them through.

They are a pool for the time of one command: paired by invite links, told their placement over
their control ports.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import engine
from engine.cli.founder import found_pool_here
from engine.config import NODE_START_DEADLINE_S, NODE_STOP_DEADLINE_S, PLACEMENT_DEADLINE_S
from engine.errors import PeerTimeoutError, RemoteProtocolError, StageError, rebuilt
from engine.messages.chain import Placement, StageFailed, StagePlace, StageReady
from engine.messages.codec import decode, encode_control
from engine.messages.control import ErrorReport
from engine.node import Listening
from engine.transport.control_port import connect_control

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import AsyncIterator, Callable, Sequence

    from engine.cli.founder import Founder
    from engine.domain import ComputeMode, LinkPrecision, NodeId, StageDescription, StageKind
    from engine.pipeline.shard_folder import ShardFolder
    from engine.transport.control_port import ControlConnection

_EPOCH = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOptions:
    """How the stages run.

    Attributes:
        kind: Paged or stateful; None for paged where every shard can be.
        mode: Exact or fast.
        link_precision: Of the hidden states between the stages.
        context_tokens: Of one sequence.
        max_sequences: At once.
        num_threads: Of each stage; None lets the device decide.
        base_port: Of the first node; 0 lets the system choose all.
        cpus: Processors of each stage, in order; None for all.
        draft: As ``draft_choice`` takes it.
        speculate: Whether the head may guess ahead, for any request.
    """

    kind: StageKind | None = None
    mode: ComputeMode = "fast"
    link_precision: LinkPrecision = "auto"
    context_tokens: int
    max_sequences: int = 1
    num_threads: int | None = None
    base_port: int = 0
    cpus: Sequence[tuple[int, ...]] | None = None
    draft: str = "none"
    speculate: bool = True


@dataclass(frozen=True, slots=True)
class LocalNode:
    """A node process of this pool.

    Attributes:
        name: As it is shown.
        node_id: Its own.
        address: By the other nodes.
        process: It.
    """

    name: str
    node_id: NodeId
    address: str
    process: Process
    _control_port: int
    _token: str = field(repr=False)

    async def connect(self) -> ControlConnection:
        """Connect to it, as a program of this PC.

        Fails with ``TransportError`` where it is gone.
        """
        return await connect_control(self._control_port, self._token, engine.__version__)


@dataclass(frozen=True, slots=True)
class LocalPool:
    """Nodes that run and hold a model.

    Attributes:
        head: The connection to ask through.
        nodes: In the order of the stages.
        stages: What each has loaded.
    """

    head: ControlConnection
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
        founder = await stack.enter_async_context(found_pool_here())
        nodes = await stack.enter_async_context(_nodes(folder, options, founder))
        links: list[ControlConnection] = []
        for node in nodes:
            links.append(await node.connect())
            stack.push_async_callback(links[-1].close, "The command has ended.")
        placement = _placement(folder, options, nodes)
        for link in links:
            await link.send(encode_control(founder.roster()))
        for link in links:
            await link.send(encode_control(placement))
        stages: list[StageDescription] = []
        on_ready(0, len(links))
        for link in links:
            stages.append(await _loaded(link))
            on_ready(len(stages), len(links))
        yield LocalPool(links[0], tuple(nodes), tuple(stages))


@asynccontextmanager
async def _nodes(
    folder: ShardFolder, options: PoolOptions, founder: Founder
) -> AsyncIterator[list[LocalNode]]:
    """Start all nodes at once, and end them all at once: neither takes longer for more of them.

    Yields:
        The nodes, which listen.
    """
    processes: list[Process] = []
    try:
        for index in range(len(folder.manifest.shards)):
            # Not in one expression: where one can't be started, those before it are ended.
            processes.append(await _start(folder, options, index, founder))  # noqa: PERF401
        yield [await _listening(process, _name(i)) for i, process in enumerate(processes)]
    finally:
        await asyncio.shield(asyncio.gather(*map(_end, processes)))


def _name(index: int) -> str:
    return f"node-{index + 1}"


async def _start(
    folder: ShardFolder, options: PoolOptions, index: int, founder: Founder
) -> Process:
    name = _name(index)
    port = options.base_port + index if options.base_port else 0
    # UTF-8 whatever the locale: a node sends paths to its stage as text.
    command = [sys.executable, "-X", "utf8", "-m", "engine"]
    command += ["--name", name, "--folder", str(founder.place / name)]
    command += ["--invited", "--until-stdin-closes"]
    command += ["--port", str(port), "--shards", str(folder.path), "--draft", options.draft]
    if options.cpus is not None:
        command += ["--cpus", ",".join(map(str, options.cpus[index]))]
    # A session of its own: Ctrl-C reaches only the asker, which then ends the nodes in order.
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdin is not None  # noqa: S101 - a pipe was asked for
    process.stdin.write(f"{await founder.invite()}\n".encode())
    return process


async def _listening(process: Process, name: str) -> LocalNode:
    assert process.stdout is not None  # noqa: S101 - a pipe was asked for
    try:
        async with asyncio.timeout(NODE_START_DEADLINE_S):
            line = await process.stdout.readline()
    except TimeoutError as exc:
        raise PeerTimeoutError(f"{name} did not start within {NODE_START_DEADLINE_S:g} s.") from exc
    try:
        told = json.loads(line)
    except json.JSONDecodeError as exc:
        raise StageError(f"{name} ended before it could be reached.") from exc
    if "error" in told:
        raise rebuilt(told["error"], told["what"], told["advice"])
    where = Listening(**told)
    return LocalNode(name, where.node_id, where.address, process, where.control_port, where.token)


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
                link_precision=options.link_precision,
                num_threads=options.num_threads,
            )
            for index, (node, shard) in enumerate(zip(nodes, shards, strict=True))
        ),
        speculate=options.speculate,
    )


async def _loaded(link: ControlConnection) -> StageDescription:
    try:
        async with asyncio.timeout(PLACEMENT_DEADLINE_S):
            answer = decode(await link.receive())
    except TimeoutError as exc:
        raise PeerTimeoutError(f"A stage did not load within {PLACEMENT_DEADLINE_S:g} s.") from exc
    match answer:
        case StageReady():
            return answer.description
        case ErrorReport():
            raise rebuilt(answer.code, answer.what, answer.advice)
        case StageFailed():
            raise rebuilt(answer.code, f"Stage {answer.stage_index}: {answer.what}", answer.advice)
        case _:
            raise RemoteProtocolError(f"A node answered a placement with {type(answer).__name__}.")

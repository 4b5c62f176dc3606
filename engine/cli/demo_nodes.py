"""The demo's nodes: real ``daisy node`` processes on this PC, which end with the demo."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine.cli.own_node import ask_status, asked_node, open_own_node
from engine.cli.plan_table import NONE
from engine.config import NODE_START_DEADLINE_S, NODE_STOP_DEADLINE_S
from engine.domain import NodeId
from engine.errors import PeerTimeoutError, StageError, TransportError, rebuilt
from engine.messages.roster_control import Invite, Invited, Joined, JoinPool
from engine.process_ending import describe_ending

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from engine.messages.pool_status import PoolStatus

LOOK_AGAIN_S = 0.1
_LOG = "log.txt"


@dataclass(frozen=True, slots=True)
class DemoNode:
    """A node that runs.

    Attributes:
        name: As it is shown.
        data: Its data folder.
        node_id: Its own.
        port: Where it listens.
        process: It.
    """

    name: str
    data: Path
    node_id: NodeId
    port: int
    process: Process

    async def status(self) -> PoolStatus:
        """Ask it how the pool looks.

        Fails as ``open_own_node`` and ``ask_status`` do.
        """
        async with open_own_node(self.data) as connection:
            return await ask_status(connection)


class DemoNodes:
    """Starts nodes, and ends all of them, whatever happens.

    Thread: one event loop.
    """

    def __init__(self, folder: Path, memory_cap: int) -> None:
        """Begin; nothing is started.

        Args:
            folder: Holds a data folder for each.
            memory_cap: Bytes each may give.
        """
        self._folder = folder
        self._memory_cap = memory_cap
        self._processes: list[Process] = []

    async def start(self, name: str, options: Sequence[str]) -> DemoNode:
        """Start a node, and wait until it listens.

        Args:
            name: As it is shown; names its folder as well.
            options: Of ``daisy node``, beside those every node has.

        Raises:
            DaisyError: As the node says it.
            PeerTimeoutError: It did not start in time.
            StageError: It ended without a word.
        """
        data = self._folder / name
        await asyncio.to_thread(data.mkdir, exist_ok=True)
        command = [sys.executable, "-X", "utf8", "-m", "engine.cli.entry", "node", "--json"]
        command += ["--data", str(data), "--name", name, "--memory", str(self._memory_cap)]
        log = await asyncio.to_thread((data / _LOG).open, "ab")
        try:
            # A session of its own: Ctrl-C reaches only the demo, which then ends the nodes. They
            # end with its pipe as well, should it be killed.
            process = await asyncio.create_subprocess_exec(
                *(*command, *options, "--until-stdin-closes"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        finally:
            log.close()
        self._processes.append(process)
        told = await _listening(process, name)
        return DemoNode(name, data, NodeId(told["node_id"]), told["port"], process)

    @staticmethod
    async def pair(host: DemoNode, other: DemoNode) -> None:
        """Make a node a member of another one's pool, by an invite link as people use it.

        Args:
            host: Invites.
            other: Joins, and starts anew.

        Fails as the two commands do.
        """
        async with open_own_node(host.data) as connection:
            invited = await asked_node(connection, Invite(is_link=True), Invited)
        async with open_own_node(other.data) as connection:
            await asked_node(connection, JoinPool(link=invited.link), Joined)

    async def end(self, node: DemoNode) -> None:
        """End a node in good order.

        Args:
            node: One that was started here.
        """
        await _end(node.process)

    async def end_all(self) -> None:
        """End every node that still runs, and wait for it."""
        await asyncio.gather(*map(_end, self._processes))


async def _listening(process: Process, name: str) -> dict[str, Any]:
    if process.stdout is None:
        raise StageError(f"{name} has no standard output.")
    try:
        async with asyncio.timeout(NODE_START_DEADLINE_S):
            line = await process.stdout.readline()
    except TimeoutError as exc:
        raise PeerTimeoutError(
            f"The node {name} did not start within {NODE_START_DEADLINE_S:g} s."
        ) from exc
    if not line:
        raise StageError(describe_ending(f"The node {name}", await process.wait()))
    told: dict[str, Any] = json.loads(line)
    if told["event"] == "error":
        raise rebuilt(str(told["code"]), f"{name}: {told['what']}", str(told["advice"]))
    return told


async def _end(process: Process) -> None:
    if process.stdin is not None:
        process.stdin.close()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(NODE_STOP_DEADLINE_S):
            await process.wait()
    if process.returncode is None:
        process.kill()
        await process.wait()


async def see_each_other(nodes: Sequence[DemoNode], within_s: float) -> float | None:
    """Wait until every node sees every other.

    Args:
        nodes: That run.
        within_s: How long to wait.

    Returns:
        Seconds it took; None if they do not in time.
    """
    ids = {node.node_id for node in nodes}

    def is_so(seen: Sequence[PoolStatus]) -> bool:
        return all(ids <= _online(status) for status in seen)

    return await _wait(nodes, is_so, within_s)


async def agree(nodes: Sequence[DemoNode], within_s: float) -> float | None:
    """Wait until all nodes name one of them as coordinator.

    Args:
        nodes: That run.
        within_s: How long to wait.

    Returns:
        Seconds it took; None if they do not in time.
    """
    ids = {node.node_id for node in nodes}

    def is_so(seen: Sequence[PoolStatus]) -> bool:
        named = {status.coordinator for status in seen}
        return len(named) == 1 and named <= ids

    return await _wait(nodes, is_so, within_s)


async def layers_cover(
    nodes: Sequence[DemoNode], num_layers: int, within_s: float
) -> dict[str, str] | None:
    """Wait until the nodes report every layer of a model among them.

    Args:
        nodes: That run; the first is asked.
        num_layers: Of the model.
        within_s: How long to wait.

    Returns:
        The layers of each node by its name, ``-`` for none; None if they do not in time.
    """
    held: dict[str, str] = {}

    def is_so(seen: Sequence[PoolStatus]) -> bool:
        own = {node.node_id: node.name for node in nodes}
        layers = {
            own[s.node_id]: s.report.layers
            for s in seen[0].nodes
            if s.node_id in own and s.report is not None
        }
        held.update({name: NONE if r is None else str(r) for name, r in layers.items()})
        return sum(len(r) for r in layers.values() if r is not None) == num_layers

    return held if await _wait(nodes[:1], is_so, within_s) is not None else None


def _online(status: PoolStatus) -> set[NodeId]:
    return {node.node_id for node in status.nodes if node.state == "online"}


async def _wait(
    nodes: Sequence[DemoNode], is_so: Callable[[Sequence[PoolStatus]], bool], within_s: float
) -> float | None:
    """Ask nodes again and again until what they say is so; return the seconds, None if too late."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    while loop.time() - began_s < within_s:
        with contextlib.suppress(TransportError):  # asked again
            if is_so(await asyncio.gather(*(node.status() for node in nodes))):
                return loop.time() - began_s
        await asyncio.sleep(LOOK_AGAIN_S)
    return None

"""``daisy node`` and ``daisy status``: be a PC of the pool, and see how the pool looks."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
from typing import TYPE_CHECKING

import msgspec

from engine.cli.arguments import data_dir
from engine.cli.asker_endpoint import open_asker_endpoint
from engine.errors import PeerUnreachableError, RemoteProtocolError, UsageError
from engine.messages.codec import decode, encode_control
from engine.messages.control import AskPoolStatus, PoolStatusReport
from engine.node import NodeOptions, run_node
from engine.pool.adapters import rank_adapters
from engine.pool.node_folder import NodeFolder, read_reach
from engine.pool.part import PoolOptions
from engine.pool.peer_address import parse_peer_address
from engine.pool.system_interfaces import system_interfaces

if TYPE_CHECKING:
    import argparse

    from engine.cli.output import Output
    from engine.messages.pool import NodeStatus, PoolStatus

WATCH_EVERY_S = 1.0
ANSWER_WITHIN_S = 5.0
_SIZE = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)\s*(?P<unit>KiB|MiB|GiB|TiB)?", re.IGNORECASE)
_UNITS = {"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40, None: 1}
_EVERY_ADDRESS = "0.0.0.0"  # noqa: S104 - a node is there to be reached by the other PCs


async def node_command(given: argparse.Namespace, output: Output) -> None:
    """Be a PC of the pool until told to stop.

    Args:
        given: Parsed options.
        output: Told the address, and what is odd.
    """
    cap = None if given.memory is None else parse_size(given.memory)
    peers = tuple(parse_peer_address(text) for text in given.peer)
    folder = await asyncio.to_thread(NodeFolder, data_dir(given) / "node")
    try:
        for note in folder.notes:
            output.say(f"Note: {note}")
        await asyncio.to_thread(_require_interfaces, tuple(given.interface))
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)

        def on_listening(address: str) -> None:
            port = address.rpartition(":")[2]
            folder.keep_reach(f"ws://127.0.0.1:{port}")
            output.event("listening", node_id=folder.node_id, port=int(port))
            output.say(f"Node {folder.node_id} listens on port {port}. Ctrl-C ends it.")
            output.say(
                "Connections are not encrypted yet: use it only in a network you trust wholly."
            )

        options = NodeOptions(
            node_id=folder.node_id,
            host=_EVERY_ADDRESS,
            port=given.port,
            shard_folders=(),
            pool=PoolOptions(
                folder=folder,
                name=given.name or socket.gethostname(),
                interfaces=tuple(given.interface),
                peers=peers,
                memory_cap_bytes=cap,
            ),
        )
        await run_node(options, on_listening, stop)
    finally:
        folder.close()


def _require_interfaces(chosen: tuple[str, ...]) -> None:
    """Return if every interface that was named is there.

    Raises:
        UsageError: One is not; names those there are.
    """
    interfaces = system_interfaces()
    missing = rank_adapters(interfaces, chosen).missing
    if missing:
        known = ", ".join(interface.name for interface in interfaces)
        raise UsageError(f"There is no interface {missing[0]}.", f"There are: {known}.")


async def status_command(given: argparse.Namespace, output: Output) -> None:
    """Show the pool as this PC's node sees it.

    Args:
        given: Parsed options.
        output: Told the table.

    Raises:
        PeerUnreachableError: No node runs here.
        RemoteProtocolError: What answers is no node.
    """
    reach = await asyncio.to_thread(read_reach, data_dir(given) / "node")
    if reach is None:
        raise PeerUnreachableError("No node of Daisy runs on this PC.", "Start it: daisy node.")
    async with open_asker_endpoint() as endpoint:
        connection = await endpoint.connect(reach.address)
        while True:
            await connection.send(encode_control(AskPoolStatus()))
            async with asyncio.timeout(ANSWER_WITHIN_S):
                answer = decode(await connection.receive())
            if not isinstance(answer, PoolStatusReport):
                raise RemoteProtocolError(
                    f"The node answered a question about the pool with {type(answer).__name__}."
                )
            output.event("status", **msgspec.to_builtins(answer.status))
            for line in status_lines(answer.status):
                output.say(line)
            if not given.watch:
                return
            await asyncio.sleep(WATCH_EVERY_S)


def status_lines(status: PoolStatus) -> list[str]:
    """Return the table a person is shown.

    Args:
        status: As a node told it.
    """
    lines = [_coordinator_line(status)]
    lines += [_node_line(node) for node in status.nodes]
    lines += [f"  {node.node_id[:6]}: {note}" for node in status.nodes for note in node.notes]
    return lines + [f"Note: {note}" for note in status.notes]


def _coordinator_line(status: PoolStatus) -> str:
    if status.coordinator is None:
        return "No coordinator yet."
    name = next((_name(n) for n in status.nodes if n.node_id == status.coordinator), "unknown")
    since = status.coordinator_since_s
    return f"Coordinator: {name} ({status.coordinator[:6]})" + (
        "" if since is None else f", for {since:.0f} s"
    )


def _node_line(node: NodeStatus) -> str:
    words = [f"  {node.node_id[:6]}  {_name(node):<20} {node.state}"]
    if node.report is not None:
        free, total = (
            b / (1 << 30) for b in (node.report.memory_free_bytes, node.report.memory_total_bytes)
        )
        words.append(f"memory {free:.1f} of {total:.1f} GiB free")
        if node.report.memory_cap_bytes is not None:
            words.append(f"lends at most {node.report.memory_cap_bytes / (1 << 30):.1f} GiB")
        if node.report.layers is not None:
            words.append(f"layers {node.report.layers}")
    if node.round_trip_ms is not None:
        words.append(f"{node.round_trip_ms:.1f} ms away")
    if node.is_asked:
        words.append("this PC")
    elif not node.hears_us:
        words.append("does not hear this PC")
    return ", ".join(words)


def _name(node: NodeStatus) -> str:
    return "?" if node.report is None else node.report.name


def parse_size(text: str) -> int:
    """Return the bytes of a size as a person writes it: ``6GiB``, ``512 MiB``, ``1000``.

    Args:
        text: A number, and a unit.

    Raises:
        UsageError: It is none, or nothing.
    """
    match = _SIZE.fullmatch(text.strip())
    num_bytes = (
        0
        if match is None
        else int(float(match["number"]) * _UNITS[match["unit"].lower() if match["unit"] else None])
    )
    if num_bytes < 1:
        raise UsageError(f"{text!r} is no amount of memory.", "Write it like 6GiB.")
    return num_bytes

"""``daisy node``: be a PC of the pool."""

from __future__ import annotations

import asyncio
import re
import socket
from functools import partial
from typing import TYPE_CHECKING

from engine.cli.arguments import data_dir
from engine.cli.interrupts import stop_on_signals, stop_when_input_ends
from engine.cli.own_node import NODE_FOLDER
from engine.cli.plan_table import short
from engine.errors import IdentityCopiedError, UsageError, first_of
from engine.node import Listening, NodeOptions, run_node
from engine.pool.adapters import rank_adapters
from engine.pool.node_folder import NodeFolder
from engine.pool.part import PoolOptions
from engine.pool.peer_address import parse_peer_address
from engine.pool.system_interfaces import system_interfaces

if TYPE_CHECKING:
    import argparse

    from engine.cli.output import Output

_SIZE = re.compile(r"(?P<number>[0-9]{1,15}(?:\.[0-9]{1,9})?)\s*(?P<unit>[A-Za-z]{0,3})")
_UNITS = {"": 1, "b": 1} | {
    f"{letter}{ending}": base**power
    for power, letter in enumerate("kmgt", 1)
    for ending, base in (("ib", 1024), ("", 1024), ("b", 1000))
}
_PORTS = 1 << 16
_EVERY_ADDRESS = "0.0.0.0"  # noqa: S104 - a node is there to be reached by the other PCs


async def node_command(given: argparse.Namespace, output: Output) -> None:
    """Be a PC of the pool until told to stop.

    Args:
        given: Parsed options.
        output: Told the address, and what is odd.

    Raises:
        UsageError: The port is none.

    Fails with ``UsageError`` where another node has the data folder, and as ``run_node`` does.
    """
    cap = None if given.memory is None else parse_size(given.memory)
    peers = tuple(parse_peer_address(text) for text in given.peer)
    if not 0 <= given.port < _PORTS:
        raise UsageError(f"--port is {given.port}; it must be from 0 to {_PORTS - 1}.")
    folder = await asyncio.to_thread(NodeFolder, data_dir(given) / NODE_FOLDER)
    try:
        for note in folder.notes:
            output.say(f"Note: {note}")
        await asyncio.to_thread(_require_interfaces, tuple(given.interface))
        stop = asyncio.Event()
        stop_on_signals(stop)
        if given.until_stdin_closes:
            stop_when_input_ends(stop)
        pool = PoolOptions(
            folder=folder,
            name=given.name or socket.gethostname(),
            interfaces=tuple(given.interface),
            peers=peers,
            memory_cap_bytes=cap,
        )
        while await _is_to_start_again(pool, given.port, output, stop):
            continue
    finally:
        folder.close()


async def _is_to_start_again(
    pool: PoolOptions, port: int, output: Output, stop: asyncio.Event
) -> bool:
    """Be a node; return whether it must be one again, for its identity was another PC's copy."""
    folder = pool.folder
    options = NodeOptions(folder.node_id, _EVERY_ADDRESS, port, shard_folders=(), pool=pool)
    try:
        await run_node(options, partial(_tell_listening, folder, output, len(folder.notes)), stop)
    except BaseExceptionGroup as group:
        error = first_of(group)
        if not isinstance(error, IdentityCopiedError):
            raise
        output.event("identity_copied", what=error.what)
        output.say(f"Note: {error.what}")
        return True
    return False


def _tell_listening(
    folder: NodeFolder, output: Output, num_told: int, listening: Listening
) -> None:
    for note in folder.notes[num_told:]:
        output.say(f"Note: {note}")
    port = listening.address.rpartition(":")[2]
    folder.keep_reach(listening.control_port, listening.token)
    output.event("listening", node_id=folder.node_id, port=int(port))
    output.say(f"Node {short(folder.node_id)} listens on port {port}. Ctrl-C ends it.")
    output.say("Connections are not encrypted yet: use it only in a network you trust wholly.")


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


def parse_size(text: str) -> int:
    """Return the bytes of a size as a person writes it: ``6GiB``, ``6G``, ``512 MB``, ``1000``.

    Args:
        text: A number, and a unit.

    Raises:
        UsageError: It is none, or nothing.
    """
    match = _SIZE.fullmatch(text.strip())
    unit = None if match is None else _UNITS.get(match["unit"].lower())
    num_bytes = 0 if match is None or unit is None else int(float(match["number"]) * unit)
    if num_bytes < 1:
        raise UsageError(f"{text!r} is no amount of memory.", "Write it like 6GiB.")
    return num_bytes

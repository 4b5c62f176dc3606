"""``daisy node``: be a PC of the pool."""

from __future__ import annotations

import asyncio
import re
import socket
from typing import TYPE_CHECKING

from engine.cli.amounts import memory
from engine.cli.arguments import data_dir
from engine.cli.chain_options import draft_word
from engine.cli.node_news import News
from engine.cli.node_window import tell, tell_news
from engine.cli.own_node import NODE_FOLDER
from engine.cli.plan_table import short
from engine.cli.shown_text import printable
from engine.errors import IdentityCopiedError, UsageError, first_of
from engine.models.shown_path import shown_path
from engine.node import Listening, NodeOptions, run_node
from engine.node.stopping import stop_on_signals, stop_when_input_ends
from engine.pipeline.draft_keeper import draft_choice
from engine.pool.adapters import rank_adapters
from engine.pool.node_folder import NodeFolder
from engine.pool.part import PoolOptions
from engine.pool.peer_address import parse_peer_address
from engine.pool.stage_memory import usable_for
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
    name = given.name or socket.gethostname()
    folder = await asyncio.to_thread(NodeFolder, data_dir(given) / NODE_FOLDER, name)
    try:
        if given.name:
            await asyncio.to_thread(folder.take_name, given.name)
        for note in folder.notes:
            output.say(f"Note: {note}")
        await asyncio.to_thread(_require_interfaces, tuple(given.interface))
        stop = asyncio.Event()
        stop_on_signals(stop)
        if given.until_stdin_closes:
            stop_when_input_ends(stop)
        pool = PoolOptions(
            interfaces=tuple(given.interface),
            peers=peers,
            memory_cap_bytes=cap,
        )
        window = _Window(folder, pool, shown_path(data_dir(given)), output)
        options = NodeOptions(
            folder,
            _EVERY_ADDRESS,
            given.port,
            shard_folders=(),
            draft=draft_choice(draft_word(given)),
            pool=pool,
        )
        # A program that started the node asks it for what it wants to know.
        while await _is_to_start_again(
            options, window, stop, has_news=not given.until_stdin_closes
        ):
            continue
        tell(News("ended", f"Node {window.name} has ended."), output)
    finally:
        folder.close()


async def _is_to_start_again(
    options: NodeOptions, window: _Window, stop: asyncio.Event, *, has_news: bool
) -> bool:
    """Be a node; return whether it must be one again: in another pool, or as another PC."""
    folder = window.folder
    listening: asyncio.Future[Listening] = asyncio.get_running_loop().create_future()
    num_told = len(folder.notes)

    def on_listening(reach: Listening) -> None:
        window.tell_listening(reach, num_told)
        listening.set_result(reach)

    try:
        async with asyncio.TaskGroup() as group:
            if not has_news:
                return await run_node(options, on_listening, stop)
            news = group.create_task(tell_news(listening, window.output))
            # Before the node has ended: it waits for those that are connected to it.
            ending = group.create_task(_cancel_after(stop, news))
            is_to_start_again = await run_node(options, on_listening, stop)
            for task in (news, ending):
                task.cancel()
            return is_to_start_again
    except BaseExceptionGroup as group:
        error = first_of(group)
        if not isinstance(error, IdentityCopiedError):
            raise
        tell(News("identity_copied", f"Note: {error.what}", {"what": error.what}), window.output)
        return True


async def _cancel_after(stop: asyncio.Event, task: asyncio.Task[None]) -> None:
    await stop.wait()
    task.cancel()


class _Window:
    """What a node's owner is told of its start."""

    def __init__(self, folder: NodeFolder, pool: PoolOptions, data: str, output: Output) -> None:
        self.folder = folder
        self.output = output
        self._pool = pool
        self._data = data

    @property
    def name(self) -> str:
        """The node's name and id, printable."""
        own = self.folder.roster.member(self.folder.node_id)
        name = "" if own is None else own.name
        return f"{printable(name)} ({short(self.folder.node_id)})"

    def tell_listening(self, listening: Listening, num_told: int) -> None:
        """Say where it is, and write that down for the commands.

        Args:
            listening: Where.
            num_told: Of the folder's notes, that were told already.
        """
        folder, output = self.folder, self.output
        for note in folder.notes[num_told:]:
            output.say(f"Note: {note}")
        port = listening.address.rpartition(":")[2]
        folder.keep_reach(listening.control_port, listening.token)
        output.event("listening", node_id=folder.node_id, port=int(port))
        output.say(f"Node {self.name} listens on port {port}. Ctrl-C ends it.")
        output.say(f"Its data folder is {self._data}.")
        too_little = little_memory_note(self._pool.memory_cap_bytes)
        if too_little is not None:
            output.say(f"Note: {too_little}")
        num_others = len(folder.roster.members) - 1
        if num_others:
            output.say(f"PCs it is paired with: {num_others}. (daisy pcs lists them.)")
        else:
            output.say(
                "It is paired with no PC yet. To add one: daisy invite here, daisy join there."
            )


def little_memory_note(cap_bytes: int | None) -> str | None:
    """Return what to say of a limit under which no stage of any model can run; None if it is none.

    Args:
        cap_bytes: The most the node may lend; None for no limit.
    """
    least = usable_for(0)
    if cap_bytes is None or cap_bytes > least:
        return None
    return (
        f"--memory {memory(cap_bytes)} is too little for a part of any model: its process alone "
        f"takes {memory(least)}. This PC will be left out."
    )


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

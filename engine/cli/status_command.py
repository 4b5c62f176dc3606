"""``daisy status``: how the pool looks from this PC."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import msgspec

from engine.cli.arguments import data_dir
from engine.cli.live_region import LiveRegion, obeys_sequences
from engine.cli.own_node import ask_status, connect_own_node, open_own_node
from engine.cli.status_table import status_lines
from engine.errors import PeerUnreachableError

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from engine.cli.output import Output
    from engine.messages.pool_status import PoolStatus

WATCH_EVERY_S = 1.0
_WAITING = "Waiting for it. Ctrl-C ends this."


async def status_command(given: argparse.Namespace, output: Output) -> None:
    """Show the pool as this PC's node sees it.

    Args:
        given: Parsed options.
        output: Told the table.

    Raises:
        PeerUnreachableError: No node runs here; one that ends while it is watched is waited for.

    Cancellation: a table that is watched stays as it was drawn last.
    """
    is_drawn = given.watch and not output.is_for_programs and obeys_sequences(sys.stdout)
    table = _Table(LiveRegion(sys.stdout) if is_drawn else None, output)
    data = data_dir(given)
    if not given.watch:
        async with open_own_node(data) as connection:
            table.show_status(await ask_status(connection))
        return
    while True:
        try:
            await _watch(data, table)
        except PeerUnreachableError as error:
            if table.is_empty:
                raise
            # Whoever watches wants to see it come back as well.
            output.event("node_ended", what=error.what)
            table.show([f"{error.what} {error.advice}", _WAITING])
        await _until_it_runs(data)


async def _watch(data: Path, table: _Table) -> None:
    async with open_own_node(data) as connection:
        while True:
            table.show_status(await ask_status(connection))
            await asyncio.sleep(WATCH_EVERY_S)


async def _until_it_runs(data: Path) -> None:
    while (connection := await connect_own_node(data)) is None:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(WATCH_EVERY_S)
    await connection.close("It was only to see whether a node runs.")


class _Table:
    """What stands there of the pool."""

    def __init__(self, region: LiveRegion | None, output: Output) -> None:
        self.is_empty = True
        self._region = region
        self._output = output

    def show_status(self, status: PoolStatus) -> None:
        self._output.event("status", **msgspec.to_builtins(status))
        self.show(status_lines(status))

    def show(self, lines: list[str]) -> None:
        if self._region is not None:
            self._region.draw(lines)
        else:
            self._output.result(lines if self.is_empty else ["", *lines])
        self.is_empty = False

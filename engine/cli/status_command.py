"""``daisy status``: how the pool looks from this PC."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import msgspec

from engine.cli.arguments import data_dir
from engine.cli.live_region import LiveRegion, obeys_sequences
from engine.cli.own_node import ask_status, open_own_node
from engine.cli.status_table import status_lines

if TYPE_CHECKING:
    import argparse

    from engine.cli.output import Output

WATCH_EVERY_S = 1.0


async def status_command(given: argparse.Namespace, output: Output) -> None:
    """Show the pool as this PC's node sees it.

    Args:
        given: Parsed options.
        output: Told the table.

    Fails with ``PeerUnreachableError`` where no node runs here.

    Cancellation: a table that is watched stays as it was drawn last.
    """
    is_drawn = given.watch and not output.is_for_programs and obeys_sequences(sys.stdout)
    region = LiveRegion(sys.stdout) if is_drawn else None
    async with open_own_node(data_dir(given)) as connection:
        while True:
            status = await ask_status(connection)
            output.event("status", **msgspec.to_builtins(status))
            lines = status_lines(status)
            if region is not None:
                region.draw(lines)
            else:
                output.result(lines)
            if not given.watch:
                return
            await asyncio.sleep(WATCH_EVERY_S)
            if region is None:
                output.result([""])  # between two tables

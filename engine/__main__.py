"""A headless node of a command: ``python -m engine --name NAME --folder DIR --shards DIR``."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import sys
from pathlib import Path

from engine.errors import DaisyError, first_of
from engine.messages.limits import MAX_LINK_LENGTH
from engine.node import NodeOptions, run_node
from engine.node.stopping import stop_on_signals, stop_when_input_ends
from engine.pipeline.draft_keeper import draft_choice
from engine.pool.joining import join_by
from engine.pool.node_folder import NodeFolder
from engine.transport.invite_link import parse_invite_link
from engine.transport.invited import invited_by_link


def main(arguments: list[str]) -> int:
    """Run a node until it is told to stop.

    Args:
        arguments: As on the command line.

    Returns:
        The exit status.
    """
    parser = argparse.ArgumentParser(prog="python -m engine", description="Run a node of Daisy.")
    parser.add_argument("--name", required=True, help="as the others are shown it")
    parser.add_argument("--folder", type=Path, required=True, help="for its key; nobody else's")
    parser.add_argument(
        "--invited",
        action="store_true",
        help="join by the link that standard input begins with",
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--shards", type=Path, action="append", default=[], metavar="FOLDER")
    parser.add_argument("--cpus", type=_cpu_list, help="processors its stage may use: 0,1")
    parser.add_argument(
        "--draft",
        default="none",
        metavar="FOLDER",
        help="a draft model; none, or auto for Daisy's own where it fits",
    )
    parser.add_argument(
        "--until-stdin-closes", action="store_true", help="stop when standard input ends"
    )
    parser.add_argument("--verbose", action="store_true")
    given = parser.parse_args(arguments)
    logging.basicConfig(
        level=logging.INFO if given.verbose else logging.WARNING,
        format=f"%(asctime)s {given.name} %(name)s %(message)s",
    )
    try:
        asyncio.run(_run(given))
    except BaseExceptionGroup as group:
        error = first_of(group)
        if not isinstance(error, DaisyError):
            raise
        _announce(error=error.code, what=error.what, advice=error.advice)
        return error.exit_code
    except DaisyError as error:
        _announce(error=error.code, what=error.what, advice=error.advice)
        return error.exit_code
    return 0


async def _run(given: argparse.Namespace) -> None:
    folder = NodeFolder(given.folder, given.name)
    with contextlib.closing(folder):
        if given.invited:
            link = parse_invite_link(await asyncio.to_thread(_first_line))
            await join_by(folder, invited_by_link(link), link.addresses)
        options = NodeOptions(
            folder=folder,
            host=given.host,
            port=given.port,
            shard_folders=tuple(given.shards),
            cpus=given.cpus,
            draft=draft_choice(given.draft),
        )
        stop = asyncio.Event()
        stop_on_signals(stop)
        if given.until_stdin_closes:
            stop_when_input_ends(stop)
        await run_node(options, lambda listening: _announce(**listening._asdict()), stop)


def _first_line() -> str:
    """Read no more of standard input than its first line: it is watched to its end afterwards."""
    line = b""
    while len(line) <= MAX_LINK_LENGTH and (byte := os.read(0, 1)) not in {b"", b"\n"}:
        line += byte
    return line.decode("utf-8", "replace")


def _announce(**fields: object) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


def _cpu_list(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

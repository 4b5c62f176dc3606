"""A headless node: ``python -m engine --node-id NAME --shards FOLDER``."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import threading
from pathlib import Path

from engine.domain import NodeId
from engine.errors import DaisyError, first_of
from engine.node import NodeOptions, run_node


def main(arguments: list[str]) -> int:
    """Run a node until it is told to stop.

    Args:
        arguments: As on the command line.

    Returns:
        The exit status.
    """
    parser = argparse.ArgumentParser(prog="python -m engine", description="Run a node of Daisy.")
    parser.add_argument("--node-id", required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--shards", type=Path, action="append", default=[], metavar="FOLDER")
    parser.add_argument("--cpus", type=_cpu_list, help="processors its stage may use: 0,1")
    parser.add_argument(
        "--until-stdin-closes", action="store_true", help="stop when standard input ends"
    )
    parser.add_argument("--verbose", action="store_true")
    given = parser.parse_args(arguments)
    logging.basicConfig(
        level=logging.INFO if given.verbose else logging.WARNING,
        format=f"%(asctime)s {given.node_id} %(name)s %(message)s",
    )
    options = NodeOptions(
        node_id=NodeId(given.node_id),
        host=given.host,
        port=given.port,
        shard_folders=tuple(given.shards),
        cpus=given.cpus,
    )
    try:
        asyncio.run(_run(options, ends_with_stdin=given.until_stdin_closes))
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


async def _run(options: NodeOptions, *, ends_with_stdin: bool) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        try:
            loop.add_signal_handler(number, stop.set)
        except NotImplementedError:  # Windows: the pipe below is the way
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop.set))
    if ends_with_stdin:
        watch = threading.Thread(target=_watch_stdin, args=(loop, stop), daemon=True)
        watch.start()
    await run_node(options, lambda listening: _announce(**listening._asdict()), stop)


def _watch_stdin(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    while os.read(0, 4096):
        pass
    with contextlib.suppress(RuntimeError):  # the node has ended by itself
        loop.call_soon_threadsafe(stop.set)


def _announce(**fields: object) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


def _cpu_list(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

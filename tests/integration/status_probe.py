"""Asks nodes for their status, many times in one process: a path on standard input, JSON out."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import msgspec

from engine.cli.own_node import ask_status, open_own_node
from engine.errors import DaisyError

ANSWER_S = 10.0


async def status_of(folder: Path) -> bytes:
    async with open_own_node(folder) as node:
        return msgspec.json.encode(await ask_status(node))


async def main() -> None:
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        try:
            told = await status_of(Path(line.strip()))
        except DaisyError:
            told = b"null"
        sys.stdout.buffer.write(told + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    asyncio.run(main())

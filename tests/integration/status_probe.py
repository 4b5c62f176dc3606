"""Asks nodes for their status, many times in one process: a path on standard input, JSON out."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import msgspec

from engine.cli.asker_endpoint import open_asker_endpoint
from engine.errors import DaisyError
from engine.messages.codec import decode, encode_control
from engine.messages.control import AskPoolStatus
from engine.pool.node_folder import read_reach

ANSWER_S = 10.0


async def status_of(endpoint, folder: Path) -> bytes:
    reach = read_reach(folder / "node")
    if reach is None:
        return b"null"
    connection = await endpoint.connect(reach.address)
    try:
        await connection.send(encode_control(AskPoolStatus()))
        async with asyncio.timeout(ANSWER_S):
            answer = decode(await connection.receive())
    finally:
        await connection.close("Done.")
    return msgspec.json.encode(answer.status)


async def main() -> None:
    loop = asyncio.get_running_loop()
    async with open_asker_endpoint() as endpoint:
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            try:
                told = await status_of(endpoint, Path(line.strip()))
            except (DaisyError, TimeoutError):
                told = b"null"
            sys.stdout.buffer.write(told + b"\n")
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    asyncio.run(main())

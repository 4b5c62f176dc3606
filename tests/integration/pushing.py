"""Nodes that only move files, each in a process of its own; tests start, kill and read them.

    python -m tests.integration.pushing send NODE_ID PORT STORE LOG PACE_MS FILE...
    python -m tests.integration.pushing pull STORE SPARE_BYTES NODE_ID=PORT,... NAME...

A sender takes its files into its store, prints its port, and serves until its standard input ends.
Each piece it is asked for is a line of its log before it answers. A receiver prints "begun", pulls
all files at once, again where nobody could give one, and prints what came of it as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import AsyncExitStack
from pathlib import Path

from engine.errors import DaisyError, ShardCorruptError
from engine.messages.codec import decode
from engine.messages.pool_control import AskChunk
from engine.pool.chunk_service import ChunkService
from engine.pool.chunk_wire import PeerChunkSource
from engine.pool.chunks import chunk_list_of
from engine.pool.disk import pieces_of
from engine.pool.pull import Pulls
from engine.pool.store import ShardStore
from engine.pool.store_threads import StoreThreads
from tests.paired import endpoint_of, id_of

AGAIN_AFTER_S = 0.05


def say(*words):
    print(*words, flush=True)  # noqa: T201 - read by the test


async def send(node_id, port, store, log, pace_ms, *files):
    opened = ShardStore(Path(store))
    for file in files:
        opened.add_hashed(Path(file), chunk_list_of(pieces_of(Path(file))))
    lines = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    async with StoreThreads() as threads, asyncio.TaskGroup() as group:
        service = ChunkService(opened, threads)

        async def attend(connection):
            while True:
                message = decode(await connection.receive())
                if isinstance(message, AskChunk):
                    line = f"{message.name} {message.index} {message.piece}\n"
                    os.write(lines, line.encode())
                    await asyncio.sleep(float(pace_ms) / 1000)
                await service.serve(message, connection)

        endpoint = endpoint_of(node_id, group, "receiver")
        listener = await endpoint.listen("127.0.0.1", int(port), attend)
        say(listener.port)
        await asyncio.to_thread(sys.stdin.read)
        await listener.close()


async def pull(store, spare_bytes, where, *names):
    opened = ShardStore(Path(store), spare_bytes=int(spare_bytes))
    async with (
        StoreThreads() as threads,
        asyncio.TaskGroup() as group,
        AsyncExitStack() as closing,
    ):
        places = [place.split("=") for place in where.split(",")]
        endpoint = endpoint_of("receiver", group, *(name for name, _ in places))
        sources = []
        for name, port in places:
            source = PeerChunkSource(endpoint, id_of(name), f"wss://127.0.0.1:{port}")
            sources.append(await closing.enter_async_context(source))
        pulls = Pulls(opened, threads)
        say("begun")
        try:
            done = await asyncio.gather(*(until_whole(pulls, name, sources) for name in names))
        except DaisyError as exc:
            say(json.dumps({"code": exc.code, "what": exc.what}))
            return
    fetched = sum(report.fetched_bytes for report in done)
    called = {id_of(name): name for name, _ in places}
    aside = {called[i]: why for report in done for i, why in report.set_aside.items()}
    say(json.dumps({"fetched_bytes": fetched, "set_aside": aside}))


async def until_whole(pulls, name, sources):
    """Pull as a node does: when nobody could give a file, somebody may be back soon."""
    while True:
        try:
            return await pulls.pull(name, sources)
        except ShardCorruptError:
            await asyncio.sleep(AGAIN_AFTER_S)


if __name__ == "__main__":
    asyncio.run({"send": send, "pull": pull}[sys.argv[1]](*sys.argv[2:]))

"""The two ends of a measured transfer, each in a process of its own.

    python push_ends.py send FOLDER FILE     prints: websocket port, plain port, the file's SHA-256
    python push_ends.py receive FOLDER       answers each line of JSON with one

The receiver's lines are ``{"how": "pull" or "plain", "port": ..., "name": ...}``; it answers with
the seconds it took, and the bytes. A pull is what a node does: websocket, chunks verified, the
whole file hashed, flushed and renamed. Plain is what it is held against: one TCP connection read
into a file, nothing checked, nothing flushed.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from engine.messages.codec import decode
from engine.messages.control import PROTOCOL_VERSION, SHARD_FORMAT, Hello
from engine.pool.chunk_service import ChunkService
from engine.pool.chunk_wire import PeerChunkSource
from engine.pool.chunks import chunk_list_of
from engine.pool.disk import pieces_of
from engine.pool.pull import Pulls
from engine.pool.store import ShardStore
from engine.pool.store_threads import StoreThreads
from engine.transport.endpoint import Endpoint
from engine.transport.identity import open_identity
from engine.transport.peer_trust import PeerTrust

if TYPE_CHECKING:
    from engine.transport.connection import Connection
    from engine.transport.identity import Identity

PIECE_BYTES = 1 << 20


def _endpoint(folder: Path, name: str, other: str, group: asyncio.TaskGroup) -> Endpoint:
    """Return one end's connections: with the other end and nobody else, as members of a pool."""
    own, peer = (_identity(folder, one) for one in (name, other))
    hello = Hello(
        protocol_version=PROTOCOL_VERSION,
        product_version="0",
        shard_format=SHARD_FORMAT,
        node_id=own.node_id,
    )
    return Endpoint(hello, group, PeerTrust(own, [peer.certificate]))


def _identity(folder: Path, name: str) -> Identity:
    """Return the key of an end; the sender makes both, before the receiver looks for them."""
    place = folder.parent / f"key-{name}"
    place.mkdir(exist_ok=True)
    return open_identity(place, None)


# ---- the sender --------------------------------------------------------------------------------


def _serve_plain(path: Path) -> int:
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            connection, _ = server.accept()
            with connection, path.open("rb") as file:
                while piece := file.read(PIECE_BYTES):
                    connection.sendall(piece)

    threading.Thread(target=serve, daemon=True).start()
    return int(server.getsockname()[1])


async def send(folder: Path, path: Path) -> None:
    """Serve a file in both ways until the standard input ends.

    Args:
        folder: For the store.
        path: The file.
    """
    store = ShardStore(folder)
    chunks = chunk_list_of(pieces_of(path))
    store.add_hashed(path, chunks)
    async with StoreThreads() as threads, asyncio.TaskGroup() as group:
        service = ChunkService(store, threads)

        async def attend(connection: Connection) -> None:
            while True:
                message = decode(await connection.receive())
                await service.serve(message, connection)  # type: ignore[arg-type]

        endpoint = _endpoint(folder, "sender", "receiver", group)
        listener = await endpoint.listen("127.0.0.1", 0, attend)
        print(listener.port, _serve_plain(path), chunks.sha256, flush=True)
        await asyncio.to_thread(sys.stdin.read)
        await listener.close()


# ---- the receiver ------------------------------------------------------------------------------


def _receive_plain(folder: Path, port: int) -> int:
    target = folder / "plain"
    piece = memoryview(bytearray(PIECE_BYTES))
    total = 0
    with socket.create_connection(("127.0.0.1", port)) as connection, target.open("wb") as file:
        while count := connection.recv_into(piece):
            file.write(piece[:count])
            total += count
    target.unlink()
    return total


async def _pull(folder: Path, store: ShardStore, name: str, port: int) -> int:
    sender = _identity(folder, "sender").node_id
    address = f"wss://127.0.0.1:{port}"
    async with (
        StoreThreads() as threads,
        asyncio.TaskGroup() as group,
        PeerChunkSource(_endpoint(folder, "receiver", "sender", group), sender, address) as source,
    ):
        report = await Pulls(store, threads).pull(name, [source])
    return report.fetched_bytes


def receive(folder: Path) -> None:
    """Do what the lines of the standard input say.

    Args:
        folder: What is received lies there for a moment.
    """
    for line in sys.stdin:
        order = json.loads(line)
        store = ShardStore(folder / "store")
        began = time.perf_counter()
        if order["how"] == "pull":
            num_bytes = asyncio.run(_pull(folder, store, order["name"], order["port"]))
        else:
            num_bytes = _receive_plain(folder, order["port"])
        seconds = time.perf_counter() - began
        shutil.rmtree(folder / "store")
        print(json.dumps({"seconds": seconds, "bytes": num_bytes}), flush=True)


if __name__ == "__main__":
    where = Path(sys.argv[2])
    if sys.argv[1] == "send":
        asyncio.run(send(where, Path(sys.argv[3])))
    else:
        receive(where)

"""One PC of a measured chain or line, in a process of its own, over TLS or in the clear.

    python trust_ends.py KEYS OWN OTHER [SHARDS]

Prints a line of JSON with its ports, then answers each line of its standard input with one:

    {"do": "trips", "way": "tls", "port": 1, "num_bytes": 8192, "count": 400}   microseconds a trip
    {"do": "place", "way": "plain", "ports": [1, 2], "epoch": 3}                its stage is joined
    {"do": "answer", "prompt": "…", "tokens": 64}                               where the head is

*Over TLS* is what the program does: ``Endpoint``. *In the clear* exists here only, and is the very
same session, inbox and websocket library without TLS under it: nothing in the program can be told
to do that.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from websockets.asyncio.client import connect
from websockets.asyncio.server import serve

from engine.domain import MicroBatch, NodeId, SampledTokens, SequenceId, SequenceStep
from engine.errors import TransportError
from engine.messages.chain import Placement, StagePlace
from engine.messages.codec import decode, encode_micro_batch, peek_type
from engine.messages.control import (
    PROTOCOL_VERSION,
    SHARD_FORMAT,
    Finished,
    Generate,
    Hello,
    MessageType,
)
from engine.messages.limits import MAX_FRAME_BYTES
from engine.node.placements import Placements
from engine.pipeline.shard_folder import ShardFolder, open_shard_folder
from engine.pipeline.stage_server import STAGE_FRAMES
from engine.transport.connection import Connection
from engine.transport.endpoint import Endpoint
from engine.transport.identity import open_identity
from engine.transport.peer_trust import PeerTrust
from engine.transport.session import Liveness, Session
from engine.transport.websocket import LIBRARY_QUEUE_FRAMES, WRITE_BUFFER_BYTES, Websocket

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from websockets.asyncio.server import ServerConnection

CLEAR: dict[str, Any] = {
    "compression": None,
    "ping_interval": None,
    "max_size": MAX_FRAME_BYTES,
    "max_queue": LIBRARY_QUEUE_FRAMES,
    "write_limit": WRITE_BUFFER_BYTES,
}
NUM_WARMUPS = 50
CONTEXT_TOKENS = 1024
VALUE_BYTES = 2
SCHEMES = {"tls": "wss", "plain": "ws"}


@dataclass(frozen=True)
class ClearEndpoint:
    """What ``Endpoint`` is to a chain, with no TLS and no trust; of this script only."""

    hello: Hello
    group: asyncio.TaskGroup
    liveness: Liveness = field(default_factory=Liveness)

    async def connect(self, address: str, node_id: NodeId | None) -> Connection:
        """Connect, and exchange hellos.

        Args:
            address: ``ws://host:port``.
            node_id: Not looked at.
        """
        library = await connect(address, proxy=None, **CLEAR)
        return await self._greeted(Websocket(library, address), is_listener=False)

    async def listen(self, attend: Callable[[Connection], Awaitable[None]]) -> int:
        """Accept connections for good.

        Args:
            attend: Serves one.

        Returns:
            The port.
        """

        async def take(library: ServerConnection) -> None:
            websocket = Websocket(library, "127.0.0.1:0")
            connection = await self._greeted(websocket, is_listener=True)
            with suppress(TransportError):  # it left
                await attend(connection)

        server = await serve(take, "127.0.0.1", 0, **CLEAR)
        return int(server.sockets[0].getsockname()[1])

    async def _greeted(self, websocket: Websocket, *, is_listener: bool) -> Connection:
        now_s = asyncio.get_running_loop().time()
        session = Session(self.hello, is_listener=is_listener, now_s=now_s, liveness=self.liveness)
        connection = Connection(websocket, session)
        self.group.create_task(connection.run())
        await connection.greeted()
        return connection


@dataclass(frozen=True)
class EitherWay:
    """Connects by TLS or in the clear, as an address says."""

    tls: Endpoint
    clear: ClearEndpoint
    liveness: Liveness = field(default_factory=Liveness)

    async def connect(self, address: str, node_id: NodeId | None) -> Connection:
        """Connect.

        Args:
            address: ``wss://host:port`` or ``ws://host:port``.
            node_id: Who must answer, where that can be told.
        """
        if address.startswith("wss"):
            return await replace(self.tls, liveness=self.liveness).connect(address, node_id)
        return await replace(self.clear, liveness=self.liveness).connect(address, node_id)


class End:
    """One PC."""

    def __init__(self, keys: Path, own: str, other: str, group: asyncio.TaskGroup) -> None:
        """Make or find the keys of both.

        Args:
            keys: A folder that both ends share.
            own: Name of this one.
            other: Of the other.
            group: Parent of all connections.
        """
        self.identity, peer = (_identity(keys, name) for name in (own, other))
        hello = Hello(
            protocol_version=PROTOCOL_VERSION,
            product_version="0",
            shard_format=SHARD_FORMAT,
            node_id=self.identity.node_id,
        )
        trust = PeerTrust(self.identity, [peer.certificate])
        self.way = EitherWay(Endpoint(hello, group, trust), ClearEndpoint(hello, group))
        self.chain = Placements(self.identity.node_id, self.way, group, None)  # type: ignore[arg-type]
        self.folder: ShardFolder | None = None

    async def listen(self) -> dict[str, object]:
        """Open both ports.

        Returns:
            Their numbers, and who this is.
        """
        listener = await self.way.tls.listen("127.0.0.1", 0, self._attend)
        plain = await self.way.clear.listen(self._attend)
        return {"tls": listener.port, "plain": plain, "node_id": self.identity.node_id}

    async def _attend(self, connection: Connection) -> None:
        """Echo what belongs to no chain, and bring a chain's frames to their stage."""
        while True:
            frame = await connection.receive()
            chain = self.chain
            if chain.stage is None:
                await connection.send(frame)
            elif peek_type(frame) in STAGE_FRAMES:
                stage = chain.stage_after(connection.peer.node_id)
                if stage is not None:
                    await stage.accept(frame, connection.send)
            elif peek_type(frame) is MessageType.SAMPLED_TOKENS:
                tokens = decode(frame)
                if isinstance(tokens, SampledTokens):
                    chain.on_sampled(tokens, frame, connection.peer.node_id)

    async def trips(self, way: str, port: int, num_bytes: int, count: int) -> list[float]:
        """Send decode frames there and back, one after the other.

        Args:
            way: "tls" or "plain".
            port: Of the other end, that way.
            num_bytes: Of the hidden states of a frame; 2 a value.
            count: Trips that are measured.

        Returns:
            Microseconds of each.
        """
        connection = await self.way.connect(f"{SCHEMES[way]}://127.0.0.1:{port}", None)
        hidden = np.ones((1, num_bytes // VALUE_BYTES), np.float16)
        step = (SequenceStep(SequenceId(1), 0, 1, 1),)
        frame = encode_micro_batch(MicroBatch(1, 1, step, np.ones(1, np.int32), hidden))
        taken = []
        for number in range(count + NUM_WARMUPS):
            began = time.perf_counter()
            await connection.send(frame)
            await connection.receive()
            if number >= NUM_WARMUPS:
                taken.append(1e6 * (time.perf_counter() - began))
        await connection.close("Measured.")
        return taken

    async def place(self, way: str, ports: list[int], node_ids: list[str], epoch: int) -> None:
        """Join this end's stage to the other's; its process, once loaded, stays.

        Args:
            way: "tls" or "plain".
            ports: Of both ends that way, the head's first.
            node_ids: Of both, the head's first.
            epoch: Of the placement.

        Raises:
            SystemExit: This end was given no shards.
        """
        if self.folder is None:
            raise SystemExit("There are no shards to place.")
        stages = tuple(
            StagePlace(
                node_id=NodeId(node_id),
                address=f"{SCHEMES[way]}://127.0.0.1:{port}",
                stage_index=index,
                layers=shard.layers,
                num_threads=1,
            )
            for index, (node_id, port, shard) in enumerate(
                zip(node_ids, ports, self.folder.manifest.shards, strict=True)
            )
        )
        placement = Placement(
            epoch=epoch,
            manifest_sha256=self.folder.manifest_sha256,
            context_tokens=CONTEXT_TOKENS,
            max_sequences=1,
            stages=stages,
        )
        await self.chain.load(placement, self.folder)

    async def answer(self, prompt: str, tokens: int) -> dict[str, float]:
        """Answer once, as the head.

        Args:
            prompt: As it is.
            tokens: Of the answer.

        Raises:
            SystemExit: The other end has the head.
        """
        if self.chain.head is None:
            raise SystemExit("The head is not here.")
        ended: list[Finished] = []

        async def take(message: object) -> None:
            if isinstance(message, Finished):
                ended.append(message)

        request = Generate(request_id="r", prompt=prompt, max_tokens=tokens, ignore_eos=True)
        began = time.perf_counter()
        await self.chain.head.answer(request, take)
        whole_s = time.perf_counter() - began
        rate = (ended[0].completion_tokens - 1) / ended[0].decode_s
        return {
            "answers_per_s": 1 / whole_s,
            "tokens_per_s": rate,
            "own_ms_per_token": 1e3 / rate - ended[0].chain_compute_ms,
        }


def _identity(folder: Path, name: str) -> Any:  # noqa: ANN401 - of the engine
    place = folder / name
    place.mkdir(exist_ok=True)
    return open_identity(place, None)


async def _serve(end: End) -> None:
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        asked = json.loads(line)
        what = asked.pop("do")
        print(json.dumps(await getattr(end, what)(**asked)), flush=True)


async def _main() -> None:
    keys, own, other, *shards = sys.argv[1:]
    async with asyncio.TaskGroup() as group:
        end = End(Path(keys), own, other, group)
        end.folder = open_shard_folder(Path(shards[0])) if shards else None
        print(json.dumps(await end.listen()), flush=True)
        await _serve(end)
        await end.chain.end()
        raise SystemExit


if __name__ == "__main__":
    try:
        asyncio.run(_main())
    except* SystemExit:
        pass

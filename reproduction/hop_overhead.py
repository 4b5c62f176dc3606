"""Our own time per stage pass: from a frame's arrival to its departure, less the stage's compute.

One real stage process and one real stage server, fed one-row decode frames. What is left after the
compute the stage reports is the pipe both ways, the codec, the index arrays and the loop: all of
it Daisy's. The websocket is not in it; ``docs/protocol.md``'s transport has its own figure.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from pathlib import Path

import numpy as np
from machine import alone, refuse_when_busy
from protocol import add_protocol_arguments, write_results

from engine.domain import MicroBatch, NodeId, SequenceId, SequenceStep
from engine.messages.chain import OpenSequence, Placement, StagePlace
from engine.messages.codec import decode, encode_control, encode_micro_batch, peek_batch
from engine.pipeline.shard_folder import ShardFolder, open_shard_folder
from engine.pipeline.stage_server import StageServer
from engine.sampling.parameters import SamplingParameters
from engine.stages.host import StageProcess

LOAD_WITHIN_S = 300.0
PROMPT_TOKENS = 32
NUM_WARMUPS = 20


async def measure(
    folder: ShardFolder, stage_index: int, kind: str, cpu: int, num_passes: int
) -> list[float]:
    """Return our own milliseconds of each pass through one stage.

    Args:
        folder: Of shards.
        stage_index: Which one.
        kind: Paged or stateful.
        cpu: The core the stage gets; its node is pinned to the same.
        num_passes: Decode passes measured.
    """
    shard = folder.manifest.shards[stage_index]
    place = StagePlace(
        node_id=NodeId("measured"),
        address="wss://127.0.0.1:1",
        stage_index=stage_index,
        layers=shard.layers,
        kind=kind,  # type: ignore[arg-type]
        num_threads=1,
    )
    placement = Placement(
        epoch=1,
        manifest_sha256=folder.manifest_sha256,
        context_tokens=2048,
        max_sequences=1,
        stages=(place,),
    )
    arrived: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def depart(frame: bytes) -> None:
        arrived.put_nowait((time.perf_counter(), frame))

    own_ms = []
    async with StageProcess(cpus=(cpu,)) as process:
        description = await process.load(folder.order(placement, place), LOAD_WITHIN_S)
        send_next = None if description.is_last else depart
        server = StageServer(process, stage_index, 1, send_next, depart)
        loop = asyncio.ensure_future(server.run_loop())  # noqa: TID251 - ended below
        opening = OpenSequence(
            epoch=1,
            sequence_id=SequenceId(1),
            num_prompt_tokens=PROMPT_TOKENS,
            sampling=SamplingParameters(),
        )
        await server.accept(encode_control(opening))
        if send_next is not None:
            await arrived.get()  # the opening, passed on
        token = 0
        for number in range(num_passes + NUM_WARMUPS):
            hidden_size = None if description.is_first else folder.manifest.model.hidden_size
            frame = _frame(number, hidden_size, token)
            began = time.perf_counter()
            await server.accept(frame)
            ended, answer = await arrived.get()
            if number >= NUM_WARMUPS:
                own_ms.append((ended - began) * 1e3 - peek_batch(answer).compute_us / 1e3)
            if send_next is None:
                token = decode(answer).rows[0].token_ids[0]  # the last stage goes on with no other
        loop.cancel()
    return own_ms


def _frame(number: int, hidden_size: int | None, token: int) -> bytes:
    count = PROMPT_TOKENS if number == 0 else 1
    past = 0 if number == 0 else PROMPT_TOKENS + number - 1
    rng = np.random.default_rng(number)
    hidden = None
    if hidden_size is not None:
        hidden = rng.standard_normal((count, hidden_size), dtype=np.float32)
    step = SequenceStep(SequenceId(1), past, count, 1)
    ids = np.full(count, token, np.int32)
    return encode_micro_batch(MicroBatch(number, 1, (step,), ids, hidden))


def main() -> int:
    """Measure every stage of a folder of shards.

    Returns:
        The exit status.
    """
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("shards", type=Path, help="a folder made by daisy split")
    parser.add_argument("--passes", type=int, default=400)
    parser.add_argument("--cpu", type=int, default=0)
    add_protocol_arguments(parser)
    given = parser.parse_args()
    load = refuse_when_busy(given.max_load, given.force)
    folder = open_shard_folder(given.shards)
    record: dict[str, object] = {"load": load, "model": folder.manifest.model.name}
    with alone():
        for kind in ("paged", "stateful"):
            for index in range(len(folder.manifest.shards)):
                own = asyncio.run(measure(folder, index, kind, given.cpu, given.passes))
                cuts = statistics.quantiles(own, n=20)
                name = f"{kind} stage {index}"
                record[name] = own
                print(f"{name}: own time p50 {cuts[9]:.3f} ms, p95 {cuts[18]:.3f} ms")
    print(write_results(given.results, "hop-overhead", record))
    return 0


if __name__ == "__main__":
    sys.exit(main())

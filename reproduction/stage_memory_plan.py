"""Measure what each stage process takes of memory against what the plan says it will.

    python reproduction/stage_memory_plan.py MODEL_DIR --stages 1 2 3 --contexts 512 4096

The model is split as the engine does it. Each stage is loaded in a process of its own, one at a
time, and its KV cache is filled to the last token: every user's context, in the chunks and batches
the scheduler makes, and a last token of all users at once. Then the process's resident size is
compared with ``stage_memory`` of ``engine/pool``, without its headroom. The mapped weights are part
of both; of what was resident the most is taken, since the system may take mapped pages back.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from machine import MachineBusyError, alone, refuse_when_busy
from process_usage import MemorySample, MemorySampler
from protocol import MAX_LOAD, RESULTS, write_results

from engine.domain import MicroBatch, NodeId, SequenceId, SequenceStep
from engine.errors import DaisyError, StageError
from engine.messages.chain import OpenSequence, Placement, StagePlace
from engine.messages.codec import encode_control, encode_micro_batch
from engine.models.opening import open_model
from engine.pipeline.shard_folder import ShardFolder, open_shard_folder
from engine.pool.stage_memory import StageMemory, Workload, stage_memory
from engine.preparation import split_order
from engine.sampling.parameters import SamplingParameters
from engine.scheduler.limits import SchedulerLimits
from engine.splitter.process import split_in_process
from engine.stages.host import StageProcess

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from engine.splitter.orders import Progress

AIM_PERCENT = 15.0
LOAD_WITHIN_S = 900.0
SETTLED_S = 0.3  # the last look is after the last batch
EPOCH = 1
COLUMNS = (
    f"{'stage':9}{'layers':>8}{'kind':>9}{'mode':>7}{'users':>10}"
    f"{'plan':>8}{'resident':>10}{'own':>7}{'mapped':>8}{'plan is':>9}{'load':>6}"
)


@dataclass(frozen=True, slots=True)
class Seen:
    """One stage process with its cache full.

    Attributes:
        num_stages: Of the division.
        stage_index: Which of them.
        layers: As shown.
        workload: What it had room for.
        planned: By kind, headroom beside it.
        own_bytes: Memory that is the process's own when its cache was full.
        peak_own_bytes: The most it had on the way there.
        mapped_bytes: Pages of files it had resident, at most.
        load: Average of the last minute, at the end.
    """

    num_stages: int
    stage_index: int
    layers: str
    workload: Workload
    planned: StageMemory
    own_bytes: int
    peak_own_bytes: int
    mapped_bytes: int
    load: float

    @property
    def resident_bytes(self) -> int:
        """What the process took."""
        return self.own_bytes + self.mapped_bytes

    @property
    def deviation_percent(self) -> float:
        """By how much the plan without headroom is above what was measured; below 0 if it isn't."""
        return 100.0 * (bare_bytes(self.planned) / self.resident_bytes - 1.0)


def bare_bytes(planned: StageMemory) -> int:
    """Return a plan's bytes without its headroom."""
    return planned.total_bytes - planned.headroom_bytes


def filling(
    num_users: int, context_tokens: int, chunk_tokens: int, max_batch_tokens: int
) -> Iterator[tuple[SequenceStep, ...]]:
    """Yield the steps of the batches that fill every user's context, as the scheduler makes them.

    Args:
        num_users: Sequences, numbered from 1.
        context_tokens: Of each; all but the last one are its prompt.
        chunk_tokens: Longest chunk of one prompt.
        max_batch_tokens: Longest batch.
    """
    prompt_tokens = context_tokens - 1
    together = max(1, max_batch_tokens // chunk_tokens)
    for first in range(1, num_users + 1, together):
        users = range(first, min(first + together, num_users + 1))
        for past in range(0, prompt_tokens, chunk_tokens):
            count = min(chunk_tokens, prompt_tokens - past)
            # Nothing is drawn: the last stage would go on with no other token than that.
            yield tuple(SequenceStep(SequenceId(u), past, count, 0) for u in users)
    yield tuple(
        SequenceStep(SequenceId(user), prompt_tokens, 1, 1) for user in range(1, num_users + 1)
    )


async def fill(process: StageProcess, order: Placement, folder: ShardFolder, index: int) -> None:
    """Run a loaded stage until its cache is full.

    Args:
        process: Loaded.
        order: What it was loaded for.
        folder: Of the shards.
        index: Of the stage.

    Raises:
        StageError: Nothing is in the cache afterwards.
    """
    model = folder.manifest.model
    rng = np.random.default_rng(0)
    for user in range(1, order.max_sequences + 1):
        opening = OpenSequence(
            epoch=EPOCH,
            sequence_id=SequenceId(user),
            num_prompt_tokens=order.context_tokens - 1,
            sampling=SamplingParameters(),
        )
        await process.send(encode_control(opening))
    limits = SchedulerLimits(max_tokens=1, block_tokens=1, max_sequences=1)
    batches = filling(
        order.max_sequences, order.context_tokens, limits.chunk_tokens, limits.max_batch_tokens
    )
    for number, steps in enumerate(batches):
        count = sum(step.num_tokens for step in steps)
        ids = rng.integers(0, model.vocab_size, count, dtype=np.int32)
        hidden = None if index == 0 else rng.standard_normal((count, model.hidden_size), np.float32)
        await process.send(encode_micro_batch(MicroBatch(number, EPOCH, steps, ids, hidden)))
        await process.receive()
    usage = await process.usage()
    if usage.used_bytes == 0:
        raise StageError("The KV cache is empty after it was filled.")


async def measure(folder: ShardFolder, index: int, workload: Workload) -> Seen:
    """Load a stage, fill its cache and look at its process.

    Args:
        folder: Of the shards.
        index: Of the stage.
        workload: u8 stands for fast mode, f32 for exact mode.

    Raises:
        StageError: The process ended.
    """
    shards = folder.manifest.shards
    place = StagePlace(
        node_id=NodeId("measured"),
        address="wss://127.0.0.1:1",
        stage_index=index,
        layers=shards[index].layers,
        kind=workload.kind,
        mode="exact" if workload.kv_precision == "f32" else "fast",
    )
    placement = Placement(
        epoch=EPOCH,
        manifest_sha256=folder.manifest_sha256,
        context_tokens=workload.context_tokens,
        max_sequences=workload.max_sequences,
        stages=(place,),
    )
    async with StageProcess() as process:
        order = msgspec.structs.replace(folder.order(placement, place), num_threads=None)
        await process.load(order, LOAD_WITHIN_S)
        pid = process.pid
        if pid is None:
            raise StageError("The stage process has ended.")
        # Four-bit weights are repacked, and the mapped pages read, at the first inference.
        with MemorySampler(pid, 0.1) as sampler:
            await fill(process, placement, folder, index)
            await asyncio.sleep(SETTLED_S)
        planned = stage_memory(folder.manifest.model, workload, place.layers)
        return seen_of(sampler.samples, folder, index, workload, planned)


def seen_of(
    samples: Sequence[MemorySample],
    folder: ShardFolder,
    index: int,
    workload: Workload,
    planned: StageMemory,
) -> Seen:
    """Sum up what the sampler saw of one process."""
    shards = folder.manifest.shards
    return Seen(
        num_stages=len(shards),
        stage_index=index,
        layers=str(shards[index].layers),
        workload=workload,
        planned=planned,
        own_bytes=samples[-1].anonymous_bytes,
        peak_own_bytes=max(sample.anonymous_bytes for sample in samples),
        mapped_bytes=max(sample.mapped_bytes for sample in samples),
        load=os.getloadavg()[0],
    )


def row(seen: Seen) -> str:
    """Return a line of the table, in MB."""
    load = seen.workload
    mode = "exact" if load.kv_precision == "f32" else "fast"
    megabytes = [
        n / 1e6
        for n in (bare_bytes(seen.planned), seen.resident_bytes, seen.own_bytes, seen.mapped_bytes)
    ]
    plan, resident, own, mapped = megabytes
    users = f"{load.max_sequences} x {load.context_tokens}"
    return (
        f"{f'{seen.stage_index + 1} of {seen.num_stages}':9}{seen.layers:>8}{load.kind:>9}"
        f"{mode:>7}{users:>10}{plan:8.0f}{resident:10.0f}{own:7.0f}{mapped:8.0f}"
        f"{seen.deviation_percent:+8.1f}%{seen.load:6.1f}"
    )


def _split(model: Path, num_stages: int, out: Path, data_dir: Path) -> ShardFolder:
    order = split_order(open_model(model, data_dir), out, num_stages=num_stages)
    order = msgspec.structs.replace(order, has_golden=False)

    def ignore(_: Progress) -> None:
        """Nobody waits for it."""

    asyncio.run(split_in_process(order, ignore))
    return open_shard_folder(out)


def _measure_all(given: argparse.Namespace, seen: list[Seen]) -> None:
    print(f"{COLUMNS}\n{'':43}MB")
    for num_stages in given.stages:
        with tempfile.TemporaryDirectory(prefix=".stage-memory-", dir=given.scratch) as scratch:
            folder = _split(given.model, num_stages, Path(scratch) / "shards", Path(scratch))
            stages = [n - 1 for n in given.only or range(1, num_stages + 1)]
            for workload, index in product(_workloads(given), stages):
                seen.append(asyncio.run(measure(folder, index, workload)))
                print(row(seen[-1]), flush=True)


def _workloads(given: argparse.Namespace) -> list[Workload]:
    return [
        Workload(
            context_tokens=context,
            max_sequences=users,
            kv_precision="f32" if mode == "exact" else "u8",
            kind=kind,
        )
        for kind, mode, users, context in product(
            given.kinds, given.modes, given.users, given.contexts
        )
    ]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="folder with openvino_model.xml")
    parser.add_argument("--stages", type=int, nargs="+", default=[2], help="numbers of stages")
    parser.add_argument("--only", type=int, nargs="+", help="of the stages, from 1")
    parser.add_argument("--kinds", nargs="+", default=["paged"], choices=["paged", "stateful"])
    parser.add_argument("--modes", nargs="+", default=["fast"], choices=["fast", "exact"])
    parser.add_argument("--users", type=int, nargs="+", default=[1])
    parser.add_argument("--contexts", type=int, nargs="+", default=[4096])
    parser.add_argument("--scratch", type=Path, help="where the shards are written for a while")
    parser.add_argument("--max-load", type=float, default=MAX_LOAD)
    parser.add_argument("--force", action="store_true", help="measure on a busy machine")
    parser.add_argument("--results", type=Path, default=RESULTS)
    return parser.parse_args()


def _run(given: argparse.Namespace) -> None:
    load = refuse_when_busy(given.max_load, given.force)
    seen: list[Seen] = []
    with alone():
        _measure_all(given, seen)
    deviations = sorted(one.deviation_percent for one in seen)
    outside = [d for d in deviations if abs(d) > AIM_PERCENT]
    print(
        f"The plan is {deviations[0]:+.1f} % to {deviations[-1]:+.1f} % of what was measured; "
        f"{len(outside)} of {len(seen)} are off by more than {AIM_PERCENT:g} %."
    )
    record = {"load": load, "stages": [_plain(one) for one in seen]}
    print(f"raw data: {os.path.relpath(write_results(given.results, 'stage-memory', record))}")


def _plain(seen: Seen) -> dict[str, object]:
    return {
        **asdict(seen),
        "workload": msgspec.to_builtins(seen.workload),
        "planned": msgspec.to_builtins(seen.planned),
    }


def main() -> int:
    """Measure what the command line asks for; return the exit status."""
    try:
        _run(_arguments())
    except DaisyError as error:
        print(f"{error.what}\n{error.advice}", file=sys.stderr)
        return error.exit_code
    except MachineBusyError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What trust costs: a hop, a pool of two, and an answer under a flood, each against it without.

A hop and a pool over TLS against the same in the clear; an answer whose node is flooded by
strangers against the same answer in peace.

    python trust_cost.py hop
    python trust_cost.py pool SHARDS      a folder of two shards, made by daisy split --stages 2
    python trust_cost.py flood SHARDS     a folder of shards, made by daisy split

The way in the clear exists in ``trust_ends.py`` only: the program has no switch for it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from machine import alone, refuse_when_busy
from protocol import (
    TooDisturbedError,
    add_protocol_arguments,
    paired_ratio,
    run_arms,
    write_results,
)

from engine.cli.local_pool import PoolOptions, open_local_pool
from engine.messages.control import Finished, Generate, TextDelta
from engine.metrics import itl_ms, percentile
from engine.pipeline.asking import ask
from engine.pipeline.shard_folder import open_shard_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from engine.cli.local_pool import LocalPool

HERE = Path(__file__).parent
PROMPT = "The history of the bicycle begins"
# One row of hidden states in f16: 576, 4096 and 8192 wide.
FRAME_BYTES = (1152, 8192, 16384)
CONTEXT_TOKENS = 1024


class End:
    """A process of ``trust_ends.py``, asked line by line."""

    def __init__(self, keys: Path, own: str, other: str, *shards: Path) -> None:
        """Start it.

        Args:
            keys: A folder for both ends' keys.
            own: Its name.
            other: The other end's.
            shards: None, or one folder.
        """
        command = [sys.executable, HERE / "trust_ends.py", keys, own, other, *shards]
        self.process = subprocess.Popen(
            list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.ports: dict[str, Any] = self._line()

    def ask(self, **asked: object) -> Any:  # noqa: ANN401 - JSON
        """Return its answer.

        Args:
            asked: As ``trust_ends.py`` says.
        """
        self.tell(**asked)
        return self._line()

    def tell(self, **asked: object) -> None:
        """Ask, and leave the answer for ``heard``.

        Args:
            asked: As for ``ask``.
        """
        assert self.process.stdin is not None  # noqa: S101 - it was asked for
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()

    def heard(self) -> None:
        """Wait for the answer to ``tell``."""
        self._line()

    def close(self) -> None:
        """End it."""
        assert self.process.stdin is not None  # noqa: S101 - it was asked for
        self.process.stdin.close()
        self.process.wait(60)

    def _line(self) -> Any:  # noqa: ANN401 - JSON
        assert self.process.stdout is not None  # noqa: S101 - it was asked for
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("An end has ended; what it said is above.")
        return json.loads(line)


# ---- one hop -------------------------------------------------------------------------------------


def measure_hop(given: argparse.Namespace) -> dict[str, object]:
    """Send frames of one row there and back, over TLS and in the clear.

    Args:
        given: Parsed options.

    Returns:
        What is kept of it.
    """
    record: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        here, there = (End(Path(folder), *names) for names in (("a", "b"), ("b", "a")))
        for end in (here, there):
            stack.callback(end.close)
        processes = {"here": here.process.pid, "there": there.process.pid}

        def trips(way: str, num_bytes: int) -> dict[str, float]:
            taken = here.ask(
                do="trips", way=way, port=there.ports[way], num_bytes=num_bytes, count=given.trips
            )
            halves = [us / 2 for us in taken]  # there and back are two hops
            return {"hop_us": statistics.median(halves), "hop_p99_us": percentile(halves, 99)}

        for num_bytes in FRAME_BYTES:
            arms = {way: partial(trips, way, num_bytes) for way in ("tls", "plain")}
            record[f"{num_bytes} bytes"] = runs = run_arms(
                arms, processes, given.blocks, given.warmups
            )
            _tell(f"hop of {num_bytes} bytes", "us", runs, "hop_us", given)
            _tell(f"hop of {num_bytes} bytes, p99", "us", runs, "hop_p99_us", given)
    return record


# ---- a pool of two -------------------------------------------------------------------------------


def measure_pool(given: argparse.Namespace) -> dict[str, object]:
    """Answer with a chain of two, joined over TLS and in the clear; the stages stay loaded.

    Args:
        given: Parsed options.

    Returns:
        What is kept of it.
    """
    epochs = count(1)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        names = (("a", "b"), ("b", "a"))
        ends = [End(Path(folder), *pair, given.shards) for pair in names]
        for end in ends:
            stack.callback(end.close)
        head, tail = ends
        ids = [end.ports["node_id"] for end in ends]
        processes = {"head": head.process.pid, "tail": tail.process.pid}

        def answer(way: str) -> dict[str, float]:
            epoch, ports = next(epochs), [end.ports[way] for end in ends]
            for end in (tail, head):
                end.ask(do="place", way=way, ports=ports, node_ids=ids, epoch=epoch)
            figures: dict[str, float] = head.ask(do="answer", prompt=PROMPT, tokens=given.tokens)
            return figures

        arms = {way: partial(answer, way) for way in ("tls", "plain")}
        runs = run_arms(arms, processes, given.blocks, given.warmups)
        for figure, unit in (("answers_per_s", "answers/s"), ("tokens_per_s", "tokens/s")):
            _tell(f"a pool of two, {given.tokens} tokens", unit, runs, figure, given)
    return {"answers": runs, "tokens": given.tokens}


# ---- under a flood -------------------------------------------------------------------------------


def measure_flood(given: argparse.Namespace) -> dict[str, object]:
    """Answer in peace, and while the head's port is flooded.

    Args:
        given: Parsed options.

    Returns:
        What is kept of it.
    """
    return asyncio.run(_measure_flood(given))


async def _measure_flood(given: argparse.Namespace) -> dict[str, object]:
    options = PoolOptions(context_tokens=CONTEXT_TOKENS, num_threads=1)
    done: list[dict[str, int]] = []
    async with open_local_pool(open_shard_folder(given.shards), options) as pool:
        processes = {f"node {n}": node.process.pid for n, node in enumerate(pool.nodes)}
        loop = asyncio.get_running_loop()

        def in_loop(way: str) -> dict[str, float]:
            coroutine = _answered(pool, given.tokens)
            if way == "calm":
                return asyncio.run_coroutine_threadsafe(coroutine, loop).result()  # noqa: TID251
            with Flooding(_port_of(pool), given, done):
                return asyncio.run_coroutine_threadsafe(coroutine, loop).result()  # noqa: TID251

        arms: Mapping[str, Callable[[], dict[str, float]]] = {
            way: partial(in_loop, way) for way in ("flooded", "calm")
        }
        runs = await asyncio.to_thread(run_arms, arms, processes, given.blocks, given.warmups)
    _tell("ITL p99 of an answer", "ms", runs, "itl_p99_ms", given)
    _tell("ITL p50 of an answer", "ms", runs, "itl_p50_ms", given)
    print(f"meanwhile: {json.dumps(done[-1])} in the last flood")
    return {"answers": runs, "floods": done, "tokens": given.tokens}


class Flooding:
    """A flood for as long as the context is open."""

    def __init__(self, port: int, given: argparse.Namespace, done: list[dict[str, int]]) -> None:
        """Begin with none.

        Args:
            port: Of a node.
            given: Parsed options.
            done: Gets what was done.
        """
        self._command = [sys.executable, str(HERE / "flood.py"), str(port)]
        self._command += ["--connections", str(given.connections)]
        self._command += ["--megabytes", str(given.megabytes)]
        self._done = done

    def __enter__(self) -> None:
        """Flood; returns once the first round is over."""
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None  # noqa: S101 - it was asked for
        self._process.stdout.readline()

    def __exit__(self, *_: object) -> None:
        """End it, and keep what it did."""
        told, _err = self._process.communicate("", 120)
        self._done.append(json.loads(told.splitlines()[-1]))


def _port_of(pool: LocalPool) -> int:
    return int(pool.nodes[0].address.rpartition(":")[2])


async def _answered(pool: LocalPool, tokens: int) -> dict[str, float]:
    request = Generate(request_id="measured", prompt=PROMPT, max_tokens=tokens, ignore_eos=True)
    times: list[float] = []
    async for event in ask(pool.head, request):
        if isinstance(event, TextDelta):
            times.append(time.perf_counter())
        elif isinstance(event, Finished) and event.completion_tokens != tokens:
            raise SystemExit("The answer was cut short.")
    gaps = itl_ms(times)
    return {"itl_p99_ms": percentile(gaps, 99), "itl_p50_ms": percentile(gaps, 50)}


# ---- what is told --------------------------------------------------------------------------------


def _tell(what: str, unit: str, runs: Any, figure: str, given: argparse.Namespace) -> None:  # noqa: ANN401
    arms = list(dict.fromkeys(run.slot.arm for run in runs))
    medians = {
        arm: statistics.median(run.figures[figure] for run in runs if run.slot.arm == arm)
        for arm in arms
    }
    shown = ", ".join(f"{arm} {median:.2f} {unit}" for arm, median in medians.items())
    try:
        ratio = str(paired_ratio(runs, figure, arms[0], arms[1], given.max_disturbed))
    except TooDisturbedError as error:
        ratio = str(error)
    print(f"{what}: {shown}; {arms[0]}/{arms[1]} {ratio}", flush=True)


def main() -> int:
    """Measure one of the three.

    Returns:
        The exit status.
    """
    parser = argparse.ArgumentParser(description="What trust costs.")
    kinds = parser.add_subparsers(dest="kind", required=True)
    hop = kinds.add_parser("hop", help="one hop over TLS and in the clear")
    hop.add_argument("--trips", type=int, default=400, help="of a run")
    pool = kinds.add_parser("pool", help="a pool of two over TLS and in the clear")
    flood = kinds.add_parser("flood", help="an answer while its node is flooded")
    for each in (pool, flood):
        each.add_argument("shards", type=Path, help="a folder made by daisy split")
        each.add_argument("--tokens", type=int, default=64, help="of an answer")
    flood.add_argument("--connections", type=int, default=1000, help="half-open, in each round")
    flood.add_argument("--megabytes", type=float, default=10, help="of random bytes, in each round")
    for each in (hop, pool, flood):
        add_protocol_arguments(each)
    given = parser.parse_args()
    load = refuse_when_busy(given.max_load, given.force)
    measure = {"hop": measure_hop, "pool": measure_pool, "flood": measure_flood}[given.kind]
    with alone():
        record = measure(given)
    print(write_results(given.results, f"trust-{given.kind}", {"load": load, **record}))
    return 0


if __name__ == "__main__":
    sys.exit(main())

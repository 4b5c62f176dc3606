"""Two stages on one core each, one user, against the unsplit model on one core.

Both in fast mode, the same prompt, the same number of tokens, greedy, ends ignored. The unsplit
model is a plain OpenVINO loop in a process of its own (``engine.models.unsplit``); the split one is
the whole program: two nodes, two stage processes, websockets, text streamed to the asker.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
from machine import alone, refuse_when_busy
from protocol import add_protocol_arguments, paired_ratio, run_arms, write_results

from engine.cli.local_pool import LocalPool, PoolOptions, open_local_pool
from engine.messages.control import Finished, Generate
from engine.pipeline.asking import ask
from engine.pipeline.chat_text import load_chat_text
from engine.pipeline.shard_folder import ShardFolder, open_shard_folder

if TYPE_CHECKING:
    from collections.abc import Callable

PROMPT = "The history of the bicycle begins"
WORKER = Path(__file__).parent / "unsplit_worker.py"


class Split:
    """A pool of two nodes on a loop of its own, kept open between runs."""

    def __init__(self, folder: ShardFolder, kind: str) -> None:
        """Load it.

        Args:
            folder: Two shards.
            kind: Paged or stateful.
        """
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        options = PoolOptions(
            kind=kind,  # type: ignore[arg-type]
            context_tokens=2048,
            num_threads=1,
            cpus=[(0,), (1,)],
        )
        self._open = open_local_pool(folder, options)
        self._pool: LocalPool = self._run(self._open.__aenter__())
        for core, node in enumerate(self._pool.nodes):
            node_process = psutil.Process(node.process.pid)
            node_process.cpu_affinity([core])
        self.processes = {
            f"{kind} {role} {core}": pid
            for core, node in enumerate(self._pool.nodes)
            for role, pid in _pids(node.process.pid)
        }

    def _run(self, coroutine):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN202
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()  # noqa: TID251

    def measure(self, num_tokens: int) -> dict[str, float]:
        """Answer once.

        Args:
            num_tokens: Of the answer.
        """
        request = Generate(
            request_id="measured", prompt=PROMPT, max_tokens=num_tokens, ignore_eos=True
        )
        return self._run(self._answer(request))

    async def _answer(self, request: Generate) -> dict[str, float]:
        async for event in ask(self._pool.head, request):
            if isinstance(event, Finished):
                rate = (event.completion_tokens - 1) / event.decode_s
                return {
                    "tokens_per_s": rate,
                    "ttft_s": event.ttft_s or 0.0,
                    "own_ms_per_token": 1e3 / rate - event.chain_compute_ms,
                }
        raise SystemExit("The answer broke off.")

    def close(self) -> None:
        """End the nodes."""
        self._run(self._open.__aexit__(None, None, None))
        self._loop.call_soon_threadsafe(self._loop.stop)


def _pids(node: int) -> list[tuple[str, int]]:
    return [("node", node), *(("stage", c.pid) for c in psutil.Process(node).children())]


class Unsplit:
    """The unsplit model in a process pinned to the first core."""

    def __init__(self, xml: Path, prompt_ids: list[int]) -> None:
        """Load it.

        Args:
            xml: The model's IR.
            prompt_ids: What it continues.
        """
        command = [sys.executable, str(WORKER), str(xml), "0", *map(str, prompt_ids)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self._ask, self._answers = self._process.stdin, self._process.stdout
        self._read()
        self.processes = {"unsplit": self._process.pid}

    def measure(self, num_tokens: int) -> dict[str, float]:
        """Answer once.

        Args:
            num_tokens: Of the answer.
        """
        if self._ask is not None:
            self._ask.write(f"{num_tokens}\n")
        return self._read()

    def _read(self) -> dict[str, float]:
        line = self._answers.readline() if self._answers is not None else ""
        return dict(json.loads(line))

    def close(self) -> None:
        """End it."""
        if self._ask is not None:
            self._ask.close()
        self._process.wait()


def main() -> int:
    """Measure, and print the ratios.

    Returns:
        The exit status.
    """
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("xml", type=Path, help="the unsplit model's openvino_model.xml")
    parser.add_argument("shards", type=Path, help="the same model in two shards")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--kinds", nargs="+", default=["paged", "stateful"])
    add_protocol_arguments(parser)
    given = parser.parse_args()
    load = refuse_when_busy(given.max_load, given.force)
    folder = open_shard_folder(given.shards)
    prompt_ids = load_chat_text(folder).tokenizer.encode(PROMPT, add_special_tokens=True)
    with alone():
        unsplit = Unsplit(given.xml, prompt_ids)
        splits = {kind: Split(folder, kind) for kind in given.kinds}
        arms: dict[str, Callable[[], dict[str, float]]] = {
            "unsplit": lambda: unsplit.measure(given.tokens),
            **{k: (lambda s=s: s.measure(given.tokens)) for k, s in splits.items()},
        }
        processes = dict(unsplit.processes)
        for split in splits.values():
            processes |= split.processes
        repetitions = run_arms(arms, processes, given.blocks, given.warmups)
        unsplit.close()
        for split in splits.values():
            split.close()
    for kind in splits:
        ratio = paired_ratio(repetitions, "tokens_per_s", kind, "unsplit", given.max_disturbed)
        print(f"{kind}, tokens/s against unsplit: {ratio}")
    print(
        write_results(
            given.results,
            "two-stages-one-user",
            {
                "load": load,
                "model": folder.manifest.model.name,
                "repetitions": repetitions,
            },
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())

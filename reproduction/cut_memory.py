"""Measure the time and the memory a split takes.

    python reproduction/cut_memory.py MODEL_DIR

The model is split in a worker process, as the engine does it. The worker's memory is looked at
every 50 ms: what is its own (anonymous), and what is mapped from files, which the system takes
back when it needs to. The shards are deleted afterwards unless --out says where to keep them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
from machine import MachineBusyError, alone, refuse_when_busy
from process_usage import MemorySample, MemorySampler
from protocol import MAX_LOAD, RESULTS, write_results

from engine.errors import DaisyError
from engine.splitter.orders import Progress, SplitOrder
from engine.splitter.process import split_in_process

if TYPE_CHECKING:
    from collections.abc import Sequence

START = "start"  # from asking for the process to its first word
_MODEL_TEXTS = ("config.json", "generation_config.json")


@dataclass(frozen=True, slots=True)
class PhaseFigures:
    """What one phase took.

    Attributes:
        wall_s: All intervals of the phase together.
        peak_anonymous_bytes: The worker's own memory, at most.
        peak_mapped_bytes: Pages of files, at most.
    """

    wall_s: float
    peak_anonymous_bytes: int
    peak_mapped_bytes: int


@dataclass(slots=True)
class PhaseClock:
    """Notes when which phase was at work; an interval belongs to what ended it.

    Attributes:
        intervals: ``(phase, begin, end)`` on ``time.perf_counter``'s clock.
    """

    intervals: list[tuple[str, float, float]] = field(default_factory=list)
    _phase: str = START
    _since: float = field(default_factory=time.perf_counter)

    def note(self, progress: Progress, now: float) -> None:
        """Take one progress report.

        Args:
            progress: A report of nothing done yet begins a phase; what ends there is the last.
            now: When it came.
        """
        ended = self._phase if _is_beginning(progress, self._phase) else progress.phase
        self.intervals.append((ended, self._since, now))
        self._phase, self._since = progress.phase, now

    def stop(self, now: float) -> None:
        """End the last phase."""
        self.intervals.append((self._phase, self._since, now))


def _is_beginning(progress: Progress, phase: str) -> bool:
    """Whether a report says that a phase begins, rather than how far it is."""
    return progress.done == 0 or (progress.phase == "cut" and phase == "hash")


def phase_figures(
    intervals: Sequence[tuple[str, float, float]], samples: Sequence[MemorySample]
) -> dict[str, PhaseFigures]:
    """Add up each phase's time and find its peaks.

    Args:
        intervals: As ``PhaseClock`` notes them.
        samples: Of the worker's memory.
    """
    found = {}
    for phase in dict.fromkeys(name for name, _, _ in intervals):
        own = [(begin, end) for name, begin, end in intervals if name == phase]
        seen = [s for s in samples if any(begin <= s.time_s <= end for begin, end in own)]
        found[phase] = PhaseFigures(
            sum(end - begin for begin, end in own),
            max((s.anonymous_bytes for s in seen), default=0),
            max((s.mapped_bytes for s in seen), default=0),
        )
    return found


async def measure(order: SplitOrder) -> tuple[PhaseClock, list[MemorySample]]:
    """Split a model and watch the worker.

    Args:
        order: What to split.

    Returns:
        When which phase was at work, and the worker's memory.
    """
    clock = PhaseClock()
    with ExitStack() as stack:
        samplers: list[MemorySampler] = []

        def on_progress(progress: Progress) -> None:
            clock.note(progress, time.perf_counter())
            if not samplers:
                (worker,) = psutil.Process().children()
                samplers.append(stack.enter_context(MemorySampler(worker.pid)))

        await split_in_process(order, on_progress)
        clock.stop(time.perf_counter())
    return clock, samplers[0].samples


def _order(model: Path, out: Path, arguments: argparse.Namespace) -> SplitOrder:
    config = json.loads((model / "config.json").read_text("utf-8"))
    return SplitOrder(
        xml=str(model / "openvino_model.xml"),
        out=str(out),
        name=model.name,
        architecture=config["model_type"],
        context_length=config.get("max_position_embeddings"),
        eos_token_ids=(config["eos_token_id"],),
        text_files=tuple(
            (name, str(model / name)) for name in _MODEL_TEXTS if (model / name).exists()
        ),
        num_stages=arguments.stages,
        has_golden=not arguments.no_golden,
    )


def _report(figures: dict[str, PhaseFigures], model: Path) -> None:
    size = (model / "openvino_model.bin").stat().st_size
    print(f"{model.name}: {size / 1e9:.2f} GB of weights")
    print(f"{'phase':10}{'wall':>9}{'anonymous':>13}{'mapped':>11}")
    for phase, one in figures.items():
        print(
            f"{phase:10}{one.wall_s:7.1f} s{one.peak_anonymous_bytes / 1e6:10.0f} MB"
            f"{one.peak_mapped_bytes / 1e6:8.0f} MB"
        )
    whole = sum(one.wall_s for one in figures.values())
    anonymous = max(one.peak_anonymous_bytes for one in figures.values())
    mapped = max(one.peak_mapped_bytes for one in figures.values())
    print(f"{'whole':10}{whole:7.1f} s{anonymous / 1e6:10.0f} MB{mapped / 1e6:8.0f} MB")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="folder with openvino_model.xml")
    parser.add_argument("--stages", type=int, default=2)
    parser.add_argument("--no-golden", action="store_true", help="without golden vectors")
    parser.add_argument("--out", type=Path, help="keep the shards there")
    parser.add_argument("--max-load", type=float, default=MAX_LOAD)
    parser.add_argument("--force", action="store_true", help="measure on a busy machine")
    parser.add_argument("--results", type=Path, default=RESULTS)
    return parser.parse_args()


def _run(arguments: argparse.Namespace) -> None:
    load = refuse_when_busy(arguments.max_load, arguments.force)
    with alone(), ExitStack() as stack:
        out = arguments.out
        if out is None:
            scratch = tempfile.TemporaryDirectory(prefix=".cut-memory-", dir=arguments.model.parent)
            out = Path(stack.enter_context(scratch)) / "shards"
        order = _order(arguments.model, out, arguments)
        clock, samples = asyncio.run(measure(order))
    used = resource.getrusage(resource.RUSAGE_CHILDREN)  # the worker is the only child there was
    cpu_s = used.ru_utime + used.ru_stime
    figures = phase_figures(clock.intervals, samples)
    _report(figures, arguments.model)
    print(f"CPU time of the worker: {cpu_s:.1f} s; load average before: {load:.2f}")
    record = {
        "load": load,
        "num_stages": arguments.stages,
        "cpu_s": cpu_s,
        "phases": figures,
        "samples": samples,
    }
    path = write_results(arguments.results, "cut-memory", record)
    print(f"raw data: {os.path.relpath(path)}")


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

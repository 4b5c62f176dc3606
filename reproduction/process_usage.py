"""What processes use while something is measured: CPU time, waiting for a core, memory."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

_STEAL_FIELD = 8  # of the first line of /proc/stat


@dataclass(frozen=True, slots=True)
class Usage:
    """What was used between two moments.

    Attributes:
        wall_s: Time between them.
        cpu_s: CPU time of each process.
        waited_s: How long threads of each process were ready and had no core. On a quiet machine
            nearly nothing; unlike CPU time it tells disturbance from waiting for the network.
        stolen_s: Core time the hypervisor gave to others.
    """

    wall_s: float
    cpu_s: dict[str, float]
    waited_s: dict[str, float]
    stolen_s: float

    def is_disturbed(self, max_share: float) -> bool:
        """Whether a process waited for a core, or cores were stolen, for too much of the time.

        Args:
            max_share: Of the wall time; 0.05 is the protocol's.
        """
        return max(self.stolen_s, *self.waited_s.values(), 0.0) > max_share * self.wall_s


class UsageMeter:
    """Measures from its making to ``stop``; all threads must live through that time."""

    def __init__(self, processes: Mapping[str, int]) -> None:
        """Begin; fails with ``ProcessLookupError`` if a process has ended.

        Args:
            processes: Name to process id.
        """
        self._processes = dict(processes)
        self._began = time.perf_counter()
        self._stolen = _stolen_s()
        self._times = {name: _thread_times(pid) for name, pid in self._processes.items()}

    def stop(self) -> Usage:
        """Return what was used since; fails with ``ProcessLookupError`` if a process has ended."""
        after = {name: _thread_times(pid) for name, pid in self._processes.items()}
        spent = {
            name: tuple((b - a) / 1e9 for a, b in zip(self._times[name], times, strict=True))
            for name, times in after.items()
        }
        return Usage(
            wall_s=time.perf_counter() - self._began,
            cpu_s={name: cpu for name, (cpu, _) in spent.items()},
            waited_s={name: waited for name, (_, waited) in spent.items()},
            stolen_s=_stolen_s() - self._stolen,
        )


def _thread_times(pid: int) -> tuple[int, int]:
    """Sum nanoseconds on a core, and ready without one, over a process's threads.

    Raises:
        ProcessLookupError: The process has ended.
    """
    running = waiting = 0
    for task in Path("/proc").glob(f"{pid}/task/*"):
        # A thread may end between being listed and being read.
        with suppress(FileNotFoundError, ProcessLookupError):
            ran, waited, _ = (task / "schedstat").read_text("ascii").split()
            running += int(ran)
            waiting += int(waited)
    if memory_of(pid) is None:
        raise ProcessLookupError(f"Process {pid} ended while it was measured.")
    return running, waiting


def _stolen_s() -> float:
    first = Path("/proc/stat").read_text("ascii").split("\n", 1)[0]
    return int(first.split()[_STEAL_FIELD]) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class MemorySample:
    """One look at a process.

    Attributes:
        time_s: On ``time.perf_counter``'s clock.
        anonymous_bytes: Memory that is the process's own.
        mapped_bytes: Pages of files in memory; the system takes them back when it needs to.
    """

    time_s: float
    anonymous_bytes: int
    mapped_bytes: int


class MemorySampler:
    """Looks at a process's memory all the time, from a thread of its own; a context manager.

    Attributes:
        samples: In order of time; complete when the context has ended.
    """

    def __init__(self, pid: int, interval_s: float = 0.05) -> None:
        """Prepare.

        Args:
            pid: The process looked at; the thread ends when it has.
            interval_s: Between two looks.
        """
        self.samples: list[MemorySample] = []
        self._pid = pid
        self._interval_s = interval_s
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._look, name="memory-sampler", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopped.set()
        self._thread.join()

    def _look(self) -> None:
        while (sample := memory_of(self._pid)) is not None:
            self.samples.append(sample)
            if self._stopped.wait(self._interval_s):
                return


def memory_of(pid: int) -> MemorySample | None:
    """Look at a process's memory now; None if it has ended.

    Args:
        pid: Its id.
    """
    try:
        status = Path(f"/proc/{pid}/status").read_text("utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    if "RssAnon" not in fields:  # a process that has ended and was not waited for
        return None
    anonymous, mapped = (int(fields[key].split()[0]) * 1024 for key in ("RssAnon", "RssFile"))
    return MemorySample(time.perf_counter(), anonymous, mapped)

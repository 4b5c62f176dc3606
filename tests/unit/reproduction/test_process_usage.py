"""A process's work, its waiting for a core, its own memory and its mapped files are told apart."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from machine import MachineBusyError, alone, refuse_when_busy
from process_usage import MemorySampler, UsageMeter, memory_of

if TYPE_CHECKING:
    from pathlib import Path

MEGABYTE = 1024 * 1024


def test_work_is_cpu_time_and_sleep_is_not() -> None:
    meter = UsageMeter({"me": os.getpid()})
    end = time.thread_time() + 0.1
    while time.thread_time() < end:
        pass
    busy = meter.stop()
    meter = UsageMeter({"me": os.getpid()})
    time.sleep(0.1)
    idle = meter.stop()
    assert busy.cpu_s["me"] >= 0.095
    assert idle.wall_s >= 0.1
    assert idle.cpu_s["me"] < 0.05


def test_two_busy_processes_on_one_core_wait_for_it() -> None:
    core = next(iter(os.sched_getaffinity(0)))
    code = f"import os\nos.sched_setaffinity(0, [{core}])\nprint(flush=True)\nwhile True: pass"
    command = [sys.executable, "-c", code]
    workers = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2)]
    try:
        for worker in workers:
            worker.stdout.readline()
        meter = UsageMeter({f"worker {i}": worker.pid for i, worker in enumerate(workers)})
        time.sleep(0.3)
        usage = meter.stop()
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
            worker.stdout.close()
    assert sum(usage.waited_s.values()) > 0.2
    assert usage.is_disturbed(0.05)


def test_a_process_that_ended_is_said_so() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    with pytest.raises(ProcessLookupError, match=str(ended.pid)):
        UsageMeter({"gone": ended.pid})
    assert memory_of(ended.pid) is None


def test_own_memory_and_mapped_files_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(bytes(64 * MEGABYTE))
    before = memory_of(os.getpid())
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        assert sum(view[:: mmap.PAGESIZE]) == 0  # touches every page
        mapped = memory_of(os.getpid())
    own = bytearray(b"x") * (64 * MEGABYTE)
    after = memory_of(os.getpid())
    assert len(own) == 64 * MEGABYTE
    assert mapped.mapped_bytes - before.mapped_bytes > 60 * MEGABYTE
    assert mapped.anonymous_bytes - before.anonymous_bytes < 8 * MEGABYTE
    assert after.anonymous_bytes - before.anonymous_bytes > 56 * MEGABYTE


def test_a_peak_between_two_moments_is_seen() -> None:
    with MemorySampler(os.getpid(), interval_s=0.005) as sampler:
        peak = bytearray(b"x") * (64 * MEGABYTE)
        time.sleep(0.1)
        del peak
        time.sleep(0.05)
    sizes = [sample.anonymous_bytes for sample in sampler.samples]
    assert max(sizes) - sizes[-1] > 32 * MEGABYTE


def test_a_busy_machine_is_refused_unless_forced() -> None:
    with pytest.raises(MachineBusyError, match="--force"):
        refuse_when_busy(max_load=-1.0, is_forced=False)
    assert refuse_when_busy(max_load=-1.0, is_forced=True) >= 0


def test_two_measurements_never_run_together(tmp_path: Path) -> None:
    with alone(tmp_path), pytest.raises(MachineBusyError, match="Another"), alone(tmp_path):
        pytest.fail("both ran")
    with alone(tmp_path):
        pass

"""Time and memory of a split go to the phase that took them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cut_memory import PhaseClock, phase_figures
from process_usage import MemorySample
from random_ir import PRESETS, build_folder

from engine.splitter.orders import Progress

if TYPE_CHECKING:
    import pytest

SCRIPT = Path(__file__).parents[3] / "reproduction" / "cut_memory.py"


def test_an_interval_belongs_to_the_phase_that_ended_it() -> None:
    clock = PhaseClock(_since=0.0)
    for now, progress in (
        (1.0, Progress("analyse", 0, 1)),
        (3.0, Progress("analyse", 1, 1)),
        (3.0, Progress("cut", 0, 4)),
        (6.0, Progress("cut", 2, 4)),
        (7.0, Progress("hash", 9, 9)),
        (9.0, Progress("cut", 2, 4)),  # the file was still being synchronised
        (10.0, Progress("cut", 4, 4)),
        (11.0, Progress("hash", 9, 9)),
        (12.0, Progress("golden", 0, 4)),
        (20.0, Progress("golden", 4, 4)),
    ):
        clock.note(progress, now)
    clock.stop(21.0)
    found = {phase: one.wall_s for phase, one in phase_figures(clock.intervals, []).items()}
    assert found == {"start": 1.0, "analyse": 2.0, "cut": 4.0, "hash": 5.0, "golden": 9.0}


def test_a_peak_is_counted_in_its_phase() -> None:
    intervals = [("cut", 0.0, 1.0), ("hash", 1.0, 2.0), ("cut", 2.0, 3.0)]
    samples = [MemorySample(0.5, 10, 7), MemorySample(1.5, 90, 5), MemorySample(2.5, 30, 6)]
    found = phase_figures(intervals, samples)
    assert (found["cut"].peak_anonymous_bytes, found["cut"].peak_mapped_bytes) == (30, 7)
    assert found["hash"].peak_anonymous_bytes == 90


def test_a_real_split_is_measured_and_leaves_no_shards(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    build_folder(PRESETS["tiny"], tmp_path / "tiny", seed=0)
    command = [sys.executable, str(SCRIPT), str(tmp_path / "tiny"), "--force"]
    command += ["--results", str(tmp_path / "results")]
    # Whoever measures on this PC meanwhile holds the lock of its own temporary folder.
    own = {**os.environ, "TMPDIR": str(tmp_path_factory.mktemp("lock"))}
    run = subprocess.run(command, check=True, capture_output=True, text=True, env=own)
    (raw,) = (tmp_path / "results").iterdir()
    phases = json.loads(raw.read_text("utf-8"))["phases"]
    assert set(phases) == {"start", "analyse", "cut", "hash", "golden"}
    assert phases["golden"]["peak_anonymous_bytes"] > 10_000_000
    assert "anonymous" in run.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["results", "tiny"]

"""Guesses are the same in the process that uses them as in the one that wrote them down."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
from measured_guesses import Guesses, read_guesses, write_guesses
from measured_node import GUESSES as MEASURED
from measured_node import stand_in

import engine
from engine.domain import SequenceId
from engine.scheduler.drafting import DraftRequest

GUESSES = Guesses(
    prompts=[[5, 6, 7], [5, 6, 8]],
    answers=[[1, 2, 3, 4], [9, 9, 9, 9]],
    acceptance=1.0,
    num_drafts=3,
    vocab_size=16,
)


def test_what_was_recorded_is_guessed_in_another_process(tmp_path: Path) -> None:
    file = tmp_path / "guesses.json"
    write_guesses(file, GUESSES)
    drafter = read_guesses(file).drafter()
    asked = DraftRequest(SequenceId(1), np.array([5, 6, 7, 1], np.int32), 2)
    assert drafter.guess(asked) == (2, 3)


def test_every_frame_has_as_many_drafts_as_are_set_for_as_many_users_as_are_recorded() -> None:
    lengths = GUESSES.lengths()
    lengths.took_circuit(1, 0.01, 0.01)
    lengths.took_draft(3, 5.0)
    assert lengths.choose(SequenceId(1), num_running=2) == 3
    assert lengths.choose(SequenceId(1), num_running=3) == 0


def _environment(folder: Path) -> dict[str, str]:
    file = folder / "guesses.json"
    write_guesses(file, GUESSES)
    return {**os.environ, MEASURED: str(file), "PYTHONPATH": str(Path(engine.__file__).parents[1])}


def test_a_node_that_guesses_takes_the_interpreters_place(tmp_path: Path) -> None:
    program = stand_in(tmp_path)
    assert os.access(program, os.X_OK)
    asked = [str(program), "-X", "utf8", "-m", "engine", "--help"]
    done = subprocess.run(
        asked, check=False, capture_output=True, text=True, timeout=100, env=_environment(tmp_path)
    )
    assert done.returncode == 0, done.stderr
    assert "--until-stdin-closes" in done.stdout

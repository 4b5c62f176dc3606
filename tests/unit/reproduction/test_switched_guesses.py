"""A pool's nodes guess for each new sequence as the file says then."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from measured_guesses import Guesses, program_guesses, write_guesses
from switched_guesses import SwitchedGuesses

from engine.domain import RowTime, SequenceId
from engine.pipeline.draft_desk import Guessing
from engine.scheduler.draft_length import DraftLength
from engine.scheduler.drafting import DraftRequest
from engine.scheduler.row_costs import RowCosts
from engine.scheduler.suffix_drafter import SuffixDrafter

if TYPE_CHECKING:
    from pathlib import Path

RECORDED = Guesses([[5, 6]], [[1, 2, 3, 4]], 1.0, 3, 16)
ROW_TIMES = [RowTime(1, 0.01), RowTime(16, 0.05)]


def _switched(path: Path) -> SwitchedGuesses:
    return SwitchedGuesses(
        path, Guessing(SuffixDrafter(), DraftLength(RowCosts(ROW_TIMES), num_stages=2))
    )


def _guessed(switched: SwitchedGuesses, sequence_id: int, *token_ids: int) -> tuple[int, ...]:
    asked = DraftRequest(SequenceId(sequence_id), np.array(token_ids, np.int32), 2)
    return asyncio.run(switched.draft([asked]))[0]


def test_a_sequence_is_guessed_as_the_file_said_when_it_began(tmp_path: Path) -> None:
    path = tmp_path / "guesses.json"
    write_guesses(path, RECORDED)
    switched = _switched(path)
    assert switched.choose(SequenceId(1), num_running=1) == 3
    write_guesses(path, replace(RECORDED, answers=[[7, 8, 9, 10]], num_drafts=1))
    assert switched.choose(SequenceId(2), num_running=1) == 1
    assert _guessed(switched, 2, 5, 6) == (7, 8)
    assert switched.choose(SequenceId(1), num_running=1) == 3
    assert _guessed(switched, 1, 5, 6) == (1, 2)


def test_what_the_program_guesses_with_needs_no_recording(tmp_path: Path) -> None:
    path = tmp_path / "guesses.json"
    write_guesses(path, program_guesses("suffix"))
    switched = _switched(path)
    assert _guessed(switched, 1, 1, 2, 3, 4, 5, 9, 1, 2, 3, 4, 5) == (9, 1)
    assert switched.choose(SequenceId(1), num_running=1) > 0


def test_what_is_learned_is_kept_for_the_setting_that_learned_it(tmp_path: Path) -> None:
    path = tmp_path / "guesses.json"
    wrong = replace(RECORDED, acceptance=0.0, num_drafts=None)
    write_guesses(path, wrong)
    switched = _switched(path)
    first = switched.choose(SequenceId(1), num_running=1)
    for _ in range(40):
        switched.observe(SequenceId(1), first, 0)
        switched.took_circuit(1 + first, 0.02, 0.02)
        switched.took_draft(1, 1e-5)
    switched.forget(SequenceId(1))
    asyncio.run(switched.close(SequenceId(1)))
    write_guesses(path, replace(wrong, acceptance=1.0))
    assert switched.choose(SequenceId(2), num_running=1) == first
    write_guesses(path, wrong)
    assert switched.choose(SequenceId(3), num_running=1) < first

"""The README's table of exit codes is the engine's."""

from __future__ import annotations

import re
from pathlib import Path

from engine.cli.main import INTERRUPTED, READER_LEFT
from engine.errors import DaisyError

README = Path(__file__).parents[2] / "README.md"
HEADING = "## Exit codes"
DONE = 0


def every_error(cls=DaisyError):
    return [cls, *(found for child in cls.__subclasses__() for found in every_error(child))]


def documented():
    """The rows of the table: exit codes and what is said of each."""
    text = README.read_text(encoding="utf-8")
    assert text.count(HEADING) == 1
    section = text.partition(HEADING)[2].partition("\n## ")[0]
    rows = re.findall(r"^\| *(\d+) *\| *(.*?) *\|", section, flags=re.MULTILINE)
    assert len({number for number, _ in rows}) == len(rows)
    return {int(number): meaning for number, meaning in rows}


def test_every_status_is_documented_and_none_that_does_not_exist():
    ours = {DONE, INTERRUPTED, READER_LEFT, *(error.exit_code for error in every_error())}
    assert set(documented()) == ours


def test_every_status_says_what_it_means():
    assert all(documented().values())


def test_a_kind_of_error_has_one_status_and_each_error_the_one_of_its_kind():
    kinds = DaisyError.__subclasses__()
    assert len({kind.exit_code for kind in kinds}) == len(kinds)
    for kind in kinds:
        allowed = {kind.exit_code, INTERRUPTED}  # what a person stopped is no failure
        assert {error.exit_code for error in every_error(kind)} <= allowed
    codes = [error.code for error in every_error()]
    assert len(set(codes)) == len(codes)

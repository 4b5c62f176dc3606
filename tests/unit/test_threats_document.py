"""docs/threats.md has every threat, and names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| S(\d+) \|.*\|([^|]*)\|$", re.MULTILINE)
WITHOUT_TESTS = {27}  # there is no updater


def rows():
    found = ROW.findall((ROOT / "docs" / "threats.md").read_text(encoding="utf-8"))
    return [(int(number), re.findall("`(test_[a-z0-9_]+)`", tests)) for number, tests in found]


def written():
    """Return the names of all tests that bear a number."""
    texts = (file.read_text(encoding="utf-8") for file in (ROOT / "tests").rglob("test_*.py"))
    return {name for text in texts for name in re.findall(r"def (test_s\d\d_\w+)", text)}


def test_every_threat_has_a_row_and_every_row_its_tests():
    assert [number for number, _ in rows()] == list(range(1, 29))
    assert {number for number, tests in rows() if not tests} == WITHOUT_TESTS


def test_the_tests_it_names_exist_and_bear_the_number():
    there = written()
    for number, tests in rows():
        for name in tests:
            assert name in there, name
            assert f"s{number:02}_" in name, f"S{number}: {name}"

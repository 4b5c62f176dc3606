"""Each scenario's trace is what it was when somebody last understood it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.simulation.scenario import SCENARIOS, play

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("*.txt")), ids=lambda path: path.stem)
def test_a_scenario_has_its_trace(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert play(text) == text, "python -m tests.simulation.scenario writes it anew"

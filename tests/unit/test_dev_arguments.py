"""``installer/dev.py``: what it says before it sets anything up."""

import subprocess
import sys
from pathlib import Path

import pytest

DEV = Path(__file__).parents[2] / "installer" / "dev.py"


@pytest.mark.parametrize(
    ("words", "status"), [(["demo", "--help"], 0), (["--help"], 0), ([], 2)], ids=str
)
def test_help_is_given_at_once(words, status):
    done = subprocess.run(
        [sys.executable, str(DEV), *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == status
    said = done.stdout + done.stderr
    assert said.startswith("usage: dev.py")
    assert "Setting up" not in said
    assert "Looking for" not in said

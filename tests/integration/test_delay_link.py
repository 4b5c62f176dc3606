"""A link of a set delay: packets are late by it, never early, and the sender is not held up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

REPRODUCTION = Path(__file__).parents[2] / "reproduction"
TUN = Path("/dev/net/tun")
ROUND_TRIP_MS = 40.0

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(
        sys.platform != "linux" or os.geteuid() != 0 or not TUN.exists(),
        reason="needs root, Linux and TUN devices",
    ),
]

_SCRIPT = f"""
import json, sys
sys.path.insert(0, {str(REPRODUCTION)!r})
from delay_link import BASE_PORT, LinkSettings, delay_link, enter_own_network
enter_own_network()
with delay_link([BASE_PORT]) as link:
    plain = link.check(10)
    link.set(LinkSettings({ROUND_TRIP_MS} / 2))
    late = link.check(10)
    carried = link.carried()
    link.set(None)
    again = link.check(10)
print(json.dumps([plain.all_ms, late.all_ms, again.all_ms, carried]))
"""


def test_round_trips_take_what_is_set_and_nothing_once_it_is_taken_back(tmp_path: Path) -> None:
    script = tmp_path / "round_trips.py"
    script.write_text(_SCRIPT, "utf-8")
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    plain, late, again, carried = json.loads(done.stdout)
    assert min(late) >= ROUND_TRIP_MS
    assert min(late) < 2 * ROUND_TRIP_MS
    assert min(plain) < ROUND_TRIP_MS / 4
    assert min(again) < ROUND_TRIP_MS / 4
    assert carried["packets"] >= 2 * 10
    assert carried["dropped"] == 0

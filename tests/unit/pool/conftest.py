"""What tests of more than one file share."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import pytest

from engine.pool.file_lock import lock

FREE_WITHIN_S = 300.0
LOOK_S = 0.05


@pytest.fixture(scope="module")
def alone_on_mdns_port():
    """Have the one port of mDNS for this file's tests: another file may run beside them."""
    with Path(tempfile.gettempdir(), "daisy-tests-mdns-port.lock").open("wb") as file:
        lock_in_time(file)
        yield


def lock_in_time(file):
    give_up_s = time.monotonic() + FREE_WITHIN_S
    while True:
        try:
            return lock(file)
        except OSError:
            if time.monotonic() > give_up_s:
                raise
        time.sleep(LOOK_S)

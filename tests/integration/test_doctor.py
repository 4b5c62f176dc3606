"""``daisy doctor`` on hosts with a network of their own: what it hears, and what it can't."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from tests.integration.namespaces import eventually, local_network
from tests.integration.network_faults import deafen
from tests.integration.pool_hosts import PoolNode

pytestmark = [pytest.mark.processes, pytest.mark.together]

WITHIN_S = 30.0


@pytest.fixture
def alone(tmp_path):
    with local_network(1) as network:
        node = PoolNode(network.hosts[0], tmp_path / "pc", "Anna").start()
        yield node
        node.end()


def doctor(node):
    (event,) = [line for line in node.daisy("doctor", within_s=120) if line["event"] == "doctor"]
    return event


def test_a_pc_hears_itself_and_its_devices_compute_while_its_node_goes_on(alone):
    eventually(lambda: alone.status()["coordinator"] is not None, WITHIN_S)
    first = doctor(alone)

    (adapter,) = first["network"]["adapters"]
    assert (adapter["name"], adapter["address"]) == ("eth0", alone.host.address)
    assert adapter["heard_ms"] is not None
    assert first["network"]["port"] == alone.port
    (cpu,) = [device for device in first["devices"] if device["name"] == "CPU"]
    assert cpu["trouble"] is None
    assert cpu["token_ms"] > 0
    assert {one["code"] for one in first["findings"]} == {"alone_but_heard", "this_pc_well"}
    # What others send does not come in any more; what it sends itself still does.
    deafen(alone.host)
    assert doctor(alone)["network"]["adapters"][0]["heard_ms"] is not None


def test_while_devices_are_tried_the_node_answers_and_a_program_that_leaves_ends_it(alone):
    command = [sys.executable, "-m", "engine.cli.main", "doctor", "--data", str(alone.folder)]
    asking = alone.host.start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    eventually(lambda: len(alone.processes()) > 1, WITHIN_S)  # something is tried in a process
    began_s = time.monotonic()
    assert alone.status()["nodes"]
    took_s = time.monotonic() - began_s
    asking.kill()
    asking.communicate()

    assert took_s < WITHIN_S
    eventually(lambda: len(alone.processes()) == 1, WITHIN_S)

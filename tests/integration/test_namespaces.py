"""The network of namespaces does what the tests on it take for granted."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time

import pytest

from tests.integration import namespaces
from tests.integration.namespaces import PREFIX, eventually, local_network, run_command
from tests.integration.network_faults import limit, lose_packets_to, reach_again

RECEIVE = """
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("", 9000))
while True:
    print(s.recv(99).decode(), flush=True)
"""
SEND = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.sendto(sys.argv[2].encode(), (sys.argv[1], 9000))
"""
SERVE_BYTES = """
import socket
with socket.create_server(("", 9001)) as server:
    print("ready", flush=True)
    connection, _ = server.accept()
    connection.sendall(bytes(1_000_000))
    connection.close()
"""
TAKE_BYTES = """
import socket, sys, time
began = time.monotonic()
s = socket.create_connection((sys.argv[1], 9001))
num = 0
while data := s.recv(65536):
    num += len(data)
print(num / (time.monotonic() - began))
"""


def python(source: str, *words: object) -> list[str]:
    return [sys.executable, "-c", source, *map(str, words)]


def test_packets_are_lost_one_way_only():
    with local_network(2) as network:
        a, b = network.hosts
        at_a, at_b = (h.start(python(RECEIVE), stdout=subprocess.PIPE, text=True) for h in (a, b))
        time.sleep(0.3)
        lose_packets_to(a, b)
        a.run(python(SEND, b.address, "lost"))
        b.run(python(SEND, a.address, "arrives"))
        assert at_a.stdout.readline() == "arrives\n"
        reach_again(a, b)
        a.run(python(SEND, b.address, "found"))
        assert at_b.stdout.readline() == "found\n"


def test_a_link_is_as_slow_as_it_is_told():
    with local_network(2) as network:
        a, b = network.hosts
        limit(a, "20mbit")
        serving = a.start(python(SERVE_BYTES), stdout=subprocess.PIPE, text=True)
        assert serving.stdout.readline() == "ready\n"
        bytes_per_s = float(b.run(python(TAKE_BYTES, a.address)))
        assert 1.0e6 < bytes_per_s < 3.2e6  # 2.5e6, and what the bucket holds


class OwnError(Exception):
    pass


def fail_on_a_network(seen: list) -> None:
    with local_network(1) as network:
        (host,) = network.hosts
        seen.extend((host.name, host.start(["sleep", 60])))
        raise OwnError


def test_nothing_is_left_after_a_failure():
    seen = []
    with pytest.raises(OwnError):
        fail_on_a_network(seen)
    name, process = seen
    assert process.returncode == -9
    assert name not in run_command("ip", "netns", "list")


def test_what_a_dead_run_left_is_removed_and_what_a_living_one_has_is_not():
    if (reason := namespaces.why_not()) is not None:
        pytest.skip(reason)
    dead = f"{PREFIX}-{2**22 + 1}-1-10"  # above the largest process id there can be
    run_command("ip", "netns", "add", dead)
    ip = shutil.which("ip")
    left = subprocess.Popen([ip, "netns", "exec", dead, "sleep", "60"])
    eventually(lambda: run_command("ip", "netns", "pids", dead).split(), 5.0)
    with local_network(1) as network:
        names = run_command("ip", "netns", "list")
        assert dead not in names
        assert network.hosts[0].name in names
        namespaces.remove_leftovers()
        assert network.hosts[0].name in run_command("ip", "netns", "list")
    assert left.wait(5.0) == -9

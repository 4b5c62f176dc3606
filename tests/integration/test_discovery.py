"""PCs find each other: real processes, real mDNS, real cables, in network namespaces.

``DISCOVERY_ROUNDS`` in the environment makes the long form of the first.
"""

from __future__ import annotations

import getpass
import os
import statistics
import subprocess
import sys
import time
from itertools import permutations
from typing import TYPE_CHECKING

import pytest

from tests.integration.discovery_nodes import (
    QUICK,
    START_S,
    Node,
    all_see_all,
    discovering,
    sees,
)
from tests.integration.namespaces import eventually, local_network
from tests.integration.network_faults import (
    change_address,
    deafen,
    hear_again,
    pull_cable,
    put_cable_back,
    switch_off,
    switch_on,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = [pytest.mark.processes, pytest.mark.together]

SOON_S = 8.0  # on a busy machine; before everything is announced once more anyway
ROUNDS = int(os.environ.get("DISCOVERY_ROUNDS", "1"))
MDNS_CAPTURE = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
s.bind(("", 5353))
group = socket.inet_aton("224.0.0.251") + socket.inet_aton(sys.argv[1])
s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group)
s.settimeout(0.2)
while True:
    try:
        print(s.recv(9000).hex(), flush=True)
    except TimeoutError:
        pass
"""


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., Node]]:
    with discovering(tmp_path) as start:
        yield start


def seen_after_s(node: Node, other: Node) -> float:
    """How long after both had started one first saw the other."""
    first = next(e for e in node.of("appeared") if e["node"] == other.node_id)
    return first["at_s"] - max(node.started_at_s, other.started_at_s)


@pytest.mark.alone
def test_three_nodes_see_each_other_within_three_seconds(started, record_testsuite_property):
    took_s: list[float] = []
    for number in range(ROUNDS):
        with local_network(3) as network:
            nodes = [started(host, f"n{number}-{host.number}") for host in network.hosts]
            eventually(lambda nodes=nodes: all_see_all(nodes), START_S)
            for node in nodes:
                node.end()
        took_s += [seen_after_s(a, b) for a, b in permutations(nodes, 2)]
    p50, p95 = statistics.median(took_s), statistics.quantiles(took_s, n=20)[-1]
    record_testsuite_property(
        "discovery_s", {"p50": p50, "p95": p95, "max": max(took_s), "n": len(took_s)}
    )
    assert max(took_s) < 3.0


@pytest.mark.alone
def test_a_newcomer_sees_and_is_seen_within_three_seconds(started, record_testsuite_property):
    with local_network(2) as network:
        old = started(network.hosts[0], "old")
        eventually(lambda: old.of("adapters"), START_S)
        time.sleep(1.5)  # past its first announcements
        newcomer = started(network.hosts[1], "newcomer")
        eventually(lambda: sees(old, newcomer) and sees(newcomer, old), START_S)
        seen_s = old.last("appeared", "newcomer") - newcomer.started_at_s
        sees_s = newcomer.last("appeared", "old") - newcomer.started_at_s
        record_testsuite_property("newcomer_s", {"is seen": seen_s, "sees": sees_s})
        assert max(seen_s, sees_s) < 3.0


def test_pcs_of_one_name_are_told_apart_and_no_name_is_on_the_wire(started):
    with local_network(3) as network:
        capture = [sys.executable, "-c", MDNS_CAPTURE, "10.83.0.1"]
        capturing = network.hosts[0].start(capture, stdout=subprocess.PIPE)
        nodes = [
            started(host, f"id{host.number}", "--host-name", "DESKTOP-1", start=("unshare", "-u"))
            for host in network.hosts
        ]
        eventually(lambda: all_see_all(nodes), START_S)
        capturing.terminate()  # what made them see each other is among it
        captured = bytes.fromhex(capturing.communicate(timeout=10)[0].decode().replace("\n", ""))
    assert b"id2" in captured
    for name in {"DESKTOP-1", os.uname().nodename, getpass.getuser()}:
        assert name.lower().encode() not in captured.lower()


def test_a_cable_that_was_pulled_and_put_back(started, record_testsuite_property):
    with local_network(2) as network:
        a, b = (
            started(host, f"n{host.number}", "--ttl", 3, "--announce-every", 1)
            for host in network.hosts
        )
        eventually(lambda: all_see_all([a, b]), START_S)
        pull_cable(network.hosts[0])
        eventually(lambda: not a.peers and not b.peers, SOON_S)
        put_cable_back(network.hosts[0])
        began = time.monotonic()
        eventually(lambda: all_see_all([a, b]), START_S)
        again_s = max(a.last("appeared", "n2"), b.last("appeared", "n1")) - began
        record_testsuite_property("seen_again_s", again_s)


def test_a_blip_shorter_than_an_announcement_holds_is_no_news(started):
    with local_network(2) as network:
        a, b = (started(host, f"n{host.number}", "--adapters-every", 0.3) for host in network.hosts)
        eventually(lambda: all_see_all([a, b]), START_S)
        switch_off(network.hosts[0])
        eventually(lambda: not a.of("adapters")[-1]["used"], SOON_S)
        switch_on(network.hosts[0])
        eventually(lambda: a.of("adapters")[-1]["used"], SOON_S)
        time.sleep(0.7)
        assert not a.of("vanished")
        assert not b.of("vanished")


def test_a_changed_address_is_announced_and_the_old_one_forgotten(started):
    with local_network(2) as network:
        a, b = (started(host, f"n{host.number}") for host in network.hosts)
        eventually(lambda: all_see_all([a, b]), START_S)
        change_address(network.hosts[0], "10.83.9.9")
        eventually(lambda: sees(b, a, "10.83.9.9"), SOON_S)
        assert not b.of("vanished")


def test_a_pc_on_two_networks_is_one_pc_and_stays_one_when_one_ends(started):
    with local_network(2) as network:
        network.hosts[0].plug_in("wlan0", "10.83.0.30")
        a, b = (started(host, f"n{host.number}", *QUICK) for host in network.hosts)
        eventually(lambda: sees(b, a, "10.83.0.1", "10.83.0.30"), START_S)
        assert list(a.of("adapters")[-1]["used"]) == ["eth0", "wlan0"]  # the cable first
        pull_cable(network.hosts[0], "eth0")
        eventually(lambda: sees(b, a, "10.83.0.30"), SOON_S)
        num = len(b.of("appeared"))
        time.sleep(1.6)  # the address that was cut does not come and go
        assert len(b.of("appeared")) == num
        assert not b.of("vanished")


def test_a_node_without_any_network_works_alone_until_one_comes(started):
    with local_network(2, is_plugged_in=False) as network:
        alone, other = network.hosts
        options = ("--peer", "10.83.0.2:7420", "--adapters-every", 0.3)
        other.plug_in("eth0", "10.83.0.2")
        a, b = (started(host, f"n{host.number}", *options) for host in (alone, other))
        eventually(lambda: a.of("candidate") and b.of("candidate"), START_S)
        assert a.usage()["used"] == {}
        assert a.usage()["problem"] is None
        alone.plug_in("eth0")
        switch_off(alone)
        alone.ip("addr", "add", "10.83.0.1/16", "dev", "eth0")  # down, and has an address
        eventually(lambda: a.usage()["ignored"].get("eth0") == "It has no link.", SOON_S)
        alone.interfaces["eth0"] = "10.83.0.1"
        switch_on(alone)
        eventually(lambda: sees(a, b) and sees(b, a), START_S)


@pytest.mark.alone
def test_who_leaves_is_gone_at_once_and_who_is_killed_when_his_word_ends(
    started, record_testsuite_property
):
    with local_network(3) as network:
        leaving, killed, staying = (started(h, f"n{h.number}", *QUICK) for h in network.hosts)
        eventually(lambda: all_see_all([leaving, killed, staying]), START_S)
        began = time.monotonic()
        leaving.end()
        eventually(lambda: "n1" not in staying.peers, 2.0)
        goodbye_s = staying.last("vanished", "n1") - began
        killed.kill()
        began = time.monotonic()
        eventually(lambda: not staying.peers, 3 + 1.5)
        ttl_s = staying.last("vanished", "n2") - began
        record_testsuite_property("vanished_s", {"goodbye": goodbye_s, "ttl of 3 s": ttl_s})


def test_after_sleep_it_is_announced_again_at_once(started):
    with local_network(2) as network:
        options = ("--ttl", 3, "--announce-every", 60, "--slept-after", 2.0)
        a = started(network.hosts[0], "n1", *options)
        b = started(network.hosts[1], "n2", *QUICK)
        eventually(lambda: sees(b, a), START_S)
        network.hosts[0].sleep()
        eventually(lambda: not b.peers, SOON_S)
        network.hosts[0].wake_up()
        eventually(lambda: sees(b, a) and sees(a, b), SOON_S)


def test_a_host_that_hears_nothing_is_seen_and_sees_nobody(started):
    with local_network(2) as network:
        deafen(network.hosts[0])
        a, b = (started(host, f"n{host.number}", *QUICK) for host in network.hosts)
        eventually(lambda: sees(b, a), START_S)
        time.sleep(1.0)
        assert not a.peers
        hear_again(network.hosts[0])
        eventually(lambda: sees(a, b), SOON_S)


def test_nodes_of_one_pc_see_each_other_over_the_loopback_when_it_is_chosen(started):
    with local_network(1, is_plugged_in=False) as network:
        nodes = [
            started(network.hosts[0], f"n{i}", "--interface", "lo", "--port", 7000 + i, *QUICK)
            for i in range(3)
        ]
        eventually(lambda: all_see_all(nodes), START_S)
        assert nodes[0].peers == {"n1": ["127.0.0.1"], "n2": ["127.0.0.1"]}
        assert {e["port"] for e in nodes[0].of("appeared")} == {7001, 7002}


def test_what_is_announced_can_be_changed(started):
    with local_network(2) as network:
        a, b = (started(host, f"n{host.number}", *QUICK) for host in network.hosts)
        eventually(lambda: all_see_all([a, b]), START_S)
        a.say("joinable")
        eventually(lambda: b.of("appeared")[-1]["flags"] == ["joinable"], SOON_S)
        a.say("busy")
        eventually(lambda: b.of("appeared")[-1]["flags"] == ["busy"], SOON_S)
        a.say("joinable")  # once more what it was a moment ago
        eventually(lambda: b.of("appeared")[-1]["flags"] == ["joinable"], SOON_S)
        assert not b.of("vanished")


def test_a_peer_given_by_hand_is_tried_unless_mdns_sees_it(started):
    with local_network(2) as network:
        peers = ("--adapters-every", 0.3, "--peer", "10.83.0.2:7420", "--peer", "nobody.example:1")
        a, b = (started(h, f"n{h.number}", *peers) for h in network.hosts)
        eventually(lambda: all_see_all([a, b]), START_S)
        tried = [e["address"] for e in a.of("candidate")]
        assert tried == ["10.83.0.2:7420", "nobody.example:1"]
        change_address(network.hosts[0], "10.83.0.9")  # another network: try again
        eventually(lambda: len(a.of("candidate")) == 3, 5.0)
        assert a.of("candidate")[2]["address"] == "nobody.example:1"

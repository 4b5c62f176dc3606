"""PCs find each other: real processes, real mDNS, real cables, in network namespaces.

``DISCOVERY_ROUNDS`` and ``STORM_ROUNDS`` in the environment make the long forms.
"""

from __future__ import annotations

import getpass
import json
import os
import statistics
import subprocess
import sys
import time
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.namespaces import Host, eventually, local_network
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
    from collections.abc import Iterator

pytestmark = pytest.mark.processes

ROUNDS = int(os.environ.get("DISCOVERY_ROUNDS", "2"))
STORM_ROUNDS = int(os.environ.get("STORM_ROUNDS", "5"))
ROUND_S = 0.2 if STORM_ROUNDS == 5 else 1.2  # the long form takes two seconds a round
CHECKOUT = Path(__file__).parents[2]
QUICK = ("--adapters-every", 0.3, "--announce-every", 0.6, "--ttl", 2)
START_S = 10.0  # importing on a machine that does other things
MDNS_CAPTURE = """
import socket, struct, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
s.bind(("", 5353))
group = socket.inet_aton("224.0.0.251") + socket.inet_aton(sys.argv[1])
s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group)
s.settimeout(0.2)
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    try:
        print(s.recv(9000).hex(), flush=True)
    except TimeoutError:
        pass
"""
HOSTILE = """
import asyncio
from zeroconf.asyncio import AsyncZeroconf, AsyncServiceInfo
TYPE = "_daisy._tcp.local."
def text(*entries):
    return b"".join(bytes([len(e)]) + e for e in entries)
GOOD = [b"v=1", b"f=1", b"run=r", b"p=7420"]
BAD = {
    "empty": b"", "long": text(*GOOD, b"id=long", *[b"x=" + b"y" * 200] * 5),
    "cut": b"\\xff" + b"abc", "binary": bytes(range(1, 200)), "other": text(*GOOD, b"id=somebody"),
    "noport": text(b"v=1", b"f=1", b"run=r", b"id=noport"),
    "port0": text(b"v=1", b"f=1", b"run=r", b"id=port0", b"p=0"),
    "loop": text(*GOOD, b"id=loop"), "Kitchen PC <b>": text(*GOOD, b"id=kitchen"),
}
async def main():
    zeroconf = AsyncZeroconf(interfaces=["10.83.0.2"])
    await zeroconf.zeroconf.async_wait_for_start()
    names = {**BAD, **{f"flood{i}": text(*GOOD, b"id=elsewhere") for i in range(100)}}
    for name, said in names.items():
        address = "127.0.0.1" if name == "loop" else "10.83.0.2"
        info = AsyncServiceInfo(TYPE, f"{name}.{TYPE}", port=1, properties=said, server="x.local.",
                                parsed_addresses=[address])
        if name == "loop":
            info.server = "loop.local."
            info.server_key = info.server
        zeroconf.zeroconf.async_send(zeroconf.zeroconf.generate_service_broadcast(info, None))
        await asyncio.sleep(0.002)
    await zeroconf.async_close()
asyncio.run(main())
"""


class Node:
    """A discovery in a process on a host."""

    def __init__(
        self, host: Host, folder: Path, node_id: str, *options: object, start: object = ()
    ) -> None:
        self.node_id = node_id
        self.host = host
        self._out = folder / f"{node_id}-{time.monotonic_ns()}.jsonl"
        self.err = self._out.with_suffix(".err")
        command = [sys.executable, "-m", "tests.integration.discovering", node_id, *options]
        with self._out.open("wb") as out, self.err.open("wb") as err:
            self.process = host.start(
                [*start, *command], cwd=CHECKOUT, stdin=subprocess.PIPE, stdout=out, stderr=err
            )

    @property
    def events(self) -> list[dict[str, Any]]:
        text = self._out.read_text()
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    def of(self, event: str) -> list[dict[str, Any]]:
        return [said for said in self.events if said["event"] == event]

    @property
    def started_at_s(self) -> float:
        return eventually(lambda: self.of("started"), START_S)[0]["at_s"]

    @property
    def peers(self) -> dict[str, list[str]]:
        """Who is there by what was told so far, and at which addresses."""
        there: dict[str, list[str]] = {}
        for said in self.events:
            if said["event"] == "appeared":
                there[said["node"]] = said["addresses"]
            elif said["event"] == "vanished":
                del there[said["node"]]
        return there

    def last(self, event: str, node_id: str) -> float:
        """When a node was last told to appear or to vanish."""
        return [said["at_s"] for said in self.of(event) if said["node"] == node_id][-1]

    def usage(self) -> dict[str, Any]:
        num = len(self.of("usage"))
        self.say("usage")
        return eventually(lambda: self.of("usage")[num:], 5.0)[0]

    def say(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n".encode())
        self.process.stdin.flush()

    def end(self) -> None:
        """End in order, with a goodbye."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(10.0) == 0
        assert self.of("ended")[0]["tasks"] == 1

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10.0)

    def check(self) -> None:
        """Nothing went unhandled, and nothing was printed for a person to wonder about."""
        assert self.process.poll() in {None, 0}
        assert not self.of("unhandled")
        assert not self.err.read_text()


def all_see_all(nodes: list[Node]) -> bool:
    """Every node sees every other one."""
    return all(node.peers.keys() == {n.node_id for n in nodes} - {node.node_id} for node in nodes)


def sees(node: Node, other: Node, *addresses: str) -> bool:
    return node.peers.get(other.node_id) == sorted(addresses or other.host.interfaces.values())


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Any]:
    """Start nodes; at the end none may have had anything unhandled.

    Yields:
        What starts one, with a host, an id, and options.
    """
    nodes: list[Node] = []

    def start(host: Host, node_id: str, *options: object, **more: Any) -> Node:
        nodes.append(Node(host, tmp_path, node_id, *options, **more))
        return nodes[-1]

    yield start
    for node in nodes:
        if node.process.returncode != -9:
            node.check()


def seen_after_s(node: Node, other: Node) -> float:
    """How long after both had started one first saw the other."""
    first = next(e for e in node.of("appeared") if e["node"] == other.node_id)
    return first["at_s"] - max(node.started_at_s, other.started_at_s)


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
        capture = [sys.executable, "-c", MDNS_CAPTURE, "10.83.0.1", 2.0]
        capturing = network.hosts[0].start(capture, stdout=subprocess.PIPE)
        nodes = [
            started(host, f"id{host.number}", "--host-name", "DESKTOP-1", start=("unshare", "-u"))
            for host in network.hosts
        ]
        eventually(lambda: all_see_all(nodes), START_S)
        captured = bytes.fromhex(capturing.communicate(timeout=10)[0].decode().replace("\n", ""))
    assert b"id2" in captured
    for name in {"DESKTOP-1", os.uname().nodename, getpass.getuser()}:
        assert name.lower().encode() not in captured.lower()


def test_a_cable_that_was_pulled_and_put_back(started, record_testsuite_property):
    with local_network(2) as network:
        a, b = (
            started(h, f"n{h.number}", "--ttl", 2, "--announce-every", 0.6) for h in network.hosts
        )
        eventually(lambda: all_see_all([a, b]), START_S)
        pull_cable(network.hosts[0])
        eventually(lambda: not a.peers and not b.peers, 2 + 2 + 1)
        put_cable_back(network.hosts[0])
        began = time.monotonic()
        eventually(lambda: all_see_all([a, b]), 10.0)
        again_s = max(a.last("appeared", "n2"), b.last("appeared", "n1")) - began
        record_testsuite_property("seen_again_s", again_s)


def test_a_blip_shorter_than_an_announcement_holds_is_no_news(started):
    with local_network(2) as network:
        a, b = (started(host, f"n{host.number}", "--adapters-every", 0.3) for host in network.hosts)
        eventually(lambda: all_see_all([a, b]), START_S)
        switch_off(network.hosts[0])
        eventually(lambda: not a.of("adapters")[-1]["used"], 5.0)
        switch_on(network.hosts[0])
        eventually(lambda: a.of("adapters")[-1]["used"], 5.0)
        time.sleep(0.7)
        assert not a.of("vanished")
        assert not b.of("vanished")


def test_a_changed_address_is_announced_and_the_old_one_forgotten(started):
    with local_network(2) as network:
        a, b = (started(host, f"n{host.number}") for host in network.hosts)
        eventually(lambda: all_see_all([a, b]), START_S)
        change_address(network.hosts[0], "10.83.9.9")
        eventually(lambda: sees(b, a, "10.83.9.9"), 6.0)
        assert not b.of("vanished")


def test_a_pc_on_two_networks_is_one_pc_and_stays_one_when_one_ends(started):
    with local_network(2) as network:
        network.hosts[0].plug_in("wlan0", "10.83.0.30")
        a, b = (started(host, f"n{host.number}", *QUICK) for host in network.hosts)
        eventually(lambda: sees(b, a, "10.83.0.1", "10.83.0.30"), START_S)
        assert list(a.of("adapters")[-1]["used"]) == ["eth0", "wlan0"]  # the cable first
        pull_cable(network.hosts[0], "eth0")
        eventually(lambda: sees(b, a, "10.83.0.30"), 5.0)
        num = len(b.of("appeared"))
        time.sleep(1.6)  # the address that was cut does not come and go
        assert len(b.of("appeared")) == num
        assert not b.of("vanished")


def add_what_no_peer_can_reach(host: Host) -> None:
    """Add what a PC has that runs containers and a VPN; both are up, and have addresses."""
    host.ip("link", "add", "docker0", "type", "bridge")
    host.ip("link", "add", "veth12ab", "type", "veth", "peer", "name", "inside")
    host.ip("link", "set", "veth12ab", "master", "docker0", "up")
    host.ip("link", "set", "inside", "up")
    host.ip("addr", "add", "172.17.0.1/16", "dev", "docker0")
    host.ip("link", "set", "docker0", "up")
    host.ip("tuntap", "add", "tun0", "mode", "tun")
    host.ip("addr", "add", "10.8.0.6/24", "dev", "tun0")
    host.ip("link", "set", "tun0", "up")


def remove_what_no_peer_can_reach(host: Host) -> None:
    for name in ("veth12ab", "docker0", "tun0"):
        host.ip("link", "del", name)


def test_addresses_no_peer_can_reach_are_not_announced(started):
    with local_network(2) as network:
        add_what_no_peer_can_reach(network.hosts[0])
        network.hosts[0].ip("link", "set", "inside", "name", "br-0123456789ab")
        a, b = (started(host, f"n{host.number}", *QUICK) for host in network.hosts)
        eventually(lambda: all_see_all([a, b]), START_S)
        assert sees(b, a, "10.83.0.1")
        used = a.usage()
        assert used["used"] == {"eth0": ["10.83.0.1"]}
        assert used["ignored"] == {
            "lo": "It reaches this PC only.",
            "docker0": "It belongs to containers.",
            "veth12ab": "It belongs to containers.",
            "br-0123456789ab": "It belongs to containers.",
            "tun0": "It is a VPN.",
        }


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
        time.sleep(0.8)
        assert a.usage()["ignored"]["eth0"] == "It has no link."
        alone.interfaces["eth0"] = "10.83.0.1"
        switch_on(alone)
        eventually(lambda: sees(a, b) and sees(b, a), 10.0)


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
        eventually(lambda: not staying.peers, 2 + 1.5)
        ttl_s = staying.last("vanished", "n2") - began
        record_testsuite_property("vanished_s", {"goodbye": goodbye_s, "ttl of 2 s": ttl_s})


def test_after_sleep_it_is_announced_again_at_once(started):
    with local_network(2) as network:
        options = ("--ttl", 2, "--announce-every", 60, "--slept-after", 2.0)
        a = started(network.hosts[0], "n1", *options)
        b = started(network.hosts[1], "n2", *QUICK)
        eventually(lambda: sees(b, a), START_S)
        network.hosts[0].sleep()
        eventually(lambda: not b.peers, 6.0)
        network.hosts[0].wake_up()
        eventually(lambda: sees(b, a) and sees(a, b), 3.0)


def test_a_host_that_hears_nothing_is_seen_and_sees_nobody(started):
    with local_network(2) as network:
        deafen(network.hosts[0])
        a, b = (started(host, f"n{host.number}", *QUICK) for host in network.hosts)
        eventually(lambda: sees(b, a), START_S)
        time.sleep(1.0)
        assert not a.peers
        hear_again(network.hosts[0])
        eventually(lambda: sees(a, b), 3.0)


def test_a_clone_of_the_id_is_noticed_by_both(started):
    with local_network(2) as network:
        a, b = (started(host, "same", *QUICK) for host in network.hosts)
        eventually(lambda: a.of("clone") and b.of("clone"), START_S)
        assert not a.peers
        assert not b.peers


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
        eventually(lambda: b.of("appeared")[-1]["flags"] == ["joinable"], 3.0)
        a.say("busy")
        eventually(lambda: b.of("appeared")[-1]["flags"] == ["busy"], 3.0)
        a.say("joinable")  # once more what it was a moment ago
        eventually(lambda: b.of("appeared")[-1]["flags"] == ["joinable"], 3.0)
        time.sleep(1.6)
        assert b.of("appeared")[-1]["flags"] == ["joinable"]
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


def test_hostile_announcements_are_ignored_with_a_reason(started):
    with local_network(3) as network:
        a = started(network.hosts[0], "n1", *QUICK)
        c = started(network.hosts[2], "n3", *QUICK)
        eventually(lambda: all_see_all([a, c]), START_S)
        for _ in range(2):
            network.hosts[1].run([sys.executable, "-c", HOSTILE])
        time.sleep(0.5)
        used = a.usage()
        assert used["services_ignored"]
        assert len(used["services_ignored"]) <= 64
        assert used["tasks"] <= 3 + 8
        c.end()  # a goodbye still gets through
        eventually(lambda: not a.peers, 3.0)
        network.hosts[1].close()


def settled(node: Node) -> dict[str, Any]:
    """What is in use once nothing is being sent: the main task, and one each to run and to tell."""
    return eventually(lambda: (usage := node.usage())["tasks"] == 3 and usage, 3.0, 0.2)


def storm_round(host: Host, number: int) -> None:
    """Do to one PC what docks, routers, containers and VPNs do."""
    pull_cable(host)
    add_what_no_peer_can_reach(host)
    time.sleep(0.2)
    put_cable_back(host)
    change_address(host, f"10.83.{number % 200 + 1}.1")
    time.sleep(0.2)
    remove_what_no_peer_can_reach(host)
    switch_off(host)
    switch_on(host)
    if number % 2:
        address = host.address
        host.remove("eth0")
        host.plug_in("eth0", address)
    time.sleep(ROUND_S)


def test_a_storm_of_changes_leaves_nothing_behind(started, record_testsuite_property):
    with local_network(2) as network:
        stormy, calm = network.hosts
        # One looks as often as it does for people, the other so often that it meets every change.
        a, c = (
            started(stormy, "n1"),
            started(stormy, "n3", "--adapters-every", 0.05, "--port", 7421),
        )
        b = started(calm, "n2")
        eventually(lambda: sees(b, a) and sees(b, c), START_S)
        storm_round(stormy, 0)  # what is made once is made now
        eventually(lambda: sees(b, a) and sees(b, c), 10.0)
        before = [settled(node)["fds"] for node in (a, b, c)]
        for number in range(1, STORM_ROUNDS + 1):
            storm_round(stormy, number)
        up_at_s = time.monotonic()
        eventually(lambda: sees(b, a) and sees(b, c) and sees(a, b) and sees(c, b), 10.0)
        seen_s = time.monotonic() - up_at_s
        assert [settled(node)["fds"] for node in (a, b, c)] == before
        record_testsuite_property("storm", {"rounds": STORM_ROUNDS, "seen_s": seen_s})
        for node in (a, c):
            assert {name for e in node.of("adapters") for name in e["used"]} <= {"eth0"}
        announced = {address for e in b.of("appeared") for address in e["addresses"]}
        assert all(address.startswith("10.83.") for address in announced)

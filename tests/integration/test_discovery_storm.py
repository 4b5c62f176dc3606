"""What no peer can reach, hostile announcements, and changes one after the other.

``STORM_ROUNDS`` in the environment makes the long form.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

import pytest

from tests.integration.discovery_nodes import (
    QUICK,
    START_S,
    Node,
    all_see_all,
    discovering,
    sees,
    settled,
)
from tests.integration.namespaces import Host, eventually, local_network
from tests.integration.network_faults import (
    change_address,
    pull_cable,
    put_cable_back,
    switch_off,
    switch_on,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = [pytest.mark.processes, pytest.mark.together]

STORM_ROUNDS = int(os.environ.get("STORM_ROUNDS", "5"))
ROUND_S = 0.2 if STORM_ROUNDS == 5 else 1.2  # the long form takes two seconds a round
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


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., Node]]:
    with discovering(tmp_path) as start:
        yield start


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


@pytest.mark.alone
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
        eventually(lambda: sees(b, a) and sees(b, c), 20.0)
        before = [settled(node)["fds"] for node in (a, b, c)]
        for number in range(1, STORM_ROUNDS + 1):
            storm_round(stormy, number)
        up_at_s = time.monotonic()
        eventually(lambda: sees(b, a) and sees(b, c) and sees(a, b) and sees(c, b), 20.0)
        seen_s = time.monotonic() - up_at_s
        assert [settled(node)["fds"] for node in (a, b, c)] == before
        record_testsuite_property("storm", {"rounds": STORM_ROUNDS, "seen_s": seen_s})
        for node in (a, c):
            assert {name for e in node.of("adapters") for name in e["used"]} <= {"eth0"}
        announced = {address for e in b.of("appeared") for address in e["addresses"]}
        assert all(address.startswith("10.83.") for address in announced)

"""What goes wrong on a network of namespaces: cables, addresses, one-way losses, slow links.

The kernel may have neither netfilter nor netem. A one-way loss is made of what it has: a
neighbour entry that leads nowhere (unicast from one host to another, lost without a word), or a
port of the bridge that floods nothing and learns nothing (whatever is sent *to* one host).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.integration.namespaces import run_command, run_ip

if TYPE_CHECKING:
    from tests.integration.namespaces import Host

NOBODY = "02:00:00:00:00:ff"  # no host has this MAC


def pull_cable(host: Host, interface: str = "eth0") -> None:
    """Take the link away, at the switch's end: the PC sees that it has no carrier."""
    run_ip(host.switch, "link", "set", host.port(interface), "down")


def put_cable_back(host: Host, interface: str = "eth0") -> None:
    """Undo ``pull_cable``."""
    run_ip(host.switch, "link", "set", host.port(interface), "up")


def switch_off(host: Host, interface: str = "eth0") -> None:
    """Set the PC's own end down, as a person or a driver does."""
    host.ip("link", "set", interface, "down")


def switch_on(host: Host, interface: str = "eth0") -> None:
    """Undo ``switch_off``."""
    host.ip("link", "set", interface, "up")


def change_address(host: Host, address: str, interface: str = "eth0") -> None:
    """Give an interface another address, as a router that was restarted does."""
    host.ip("addr", "flush", "dev", interface, "scope", "global")
    host.ip("addr", "add", f"{address}/16", "broadcast", "+", "dev", interface)
    host.interfaces[interface] = address


def lose_packets_to(host: Host, other: Host) -> None:
    """Let unicast from this host to another be lost on the way; the other way goes on."""
    for address in other.interfaces.values():
        for interface in host.interfaces:
            host.ip("neigh", "replace", address, "lladdr", NOBODY, "nud", "permanent",
                    "dev", interface)  # fmt: skip


def reach_again(host: Host, other: Host) -> None:
    """Undo ``lose_packets_to``."""
    for address in other.interfaces.values():
        for interface in host.interfaces:
            host.ip("neigh", "del", address, "dev", interface)


def deafen(host: Host, interface: str = "eth0") -> None:
    """Let everything sent to this host be lost, multicast too; what it sends arrives."""
    _flood(host, interface, is_on=False)


def hear_again(host: Host, interface: str = "eth0") -> None:
    """Undo ``deafen``."""
    _flood(host, interface, is_on=True)


def limit(host: Host, rate: str, interface: str = "eth0") -> None:
    """Bound what the host sends and receives.

    Args:
        rate: As ``tc`` takes it, such as ``20mbit``.
    """
    for namespace, device in ((host.name, interface), (host.switch, host.port(interface))):
        run_command("tc", "-netns", namespace, "qdisc", "replace", "dev", device, "root",
                    "tbf", "rate", rate, "burst", "64k", "latency", "100ms")  # fmt: skip


def _flood(host: Host, interface: str, *, is_on: bool) -> None:
    state = "on" if is_on else "off"
    words = [w for kind in ("flood", "mcast_flood", "bcast_flood", "learning")
             for w in (kind, state)]  # fmt: skip
    port = host.port(interface)
    run_command("bridge", "-netns", host.switch, "link", "set", "dev", port, *words)
    if not is_on:  # else what was learnt of it before is still sent there
        run_ip(host.switch, "link", "set", port, "type", "bridge_slave", "fdb_flush")

"""Asks the system for its network interfaces."""

from __future__ import annotations

import ipaddress
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from engine.pool.adapters import Interface

if TYPE_CHECKING:
    from collections.abc import Mapping

_SYS_CLASS_NET = Path("/sys/class/net")  # Linux only


def system_interfaces() -> tuple[Interface, ...]:
    """Ask the system for its interfaces; takes about a millisecond, tens on Windows.

    Raises:
        OSError: The system did not say.
    """
    stats = psutil.net_if_stats()
    indexes = {name: index for index, name in socket.if_nameindex()}
    ipv4: dict[str, list[str]] = {name: [] for name in stats}
    macs: dict[str, str] = {}
    for label, addresses in psutil.net_if_addrs().items():
        # A second address may stand under a label of its own: eth0:1 is eth0.
        name = label if label in stats else label.partition(":")[0]
        for address in addresses:
            if address.family == socket.AF_INET:
                ipv4.setdefault(name, []).append(address.address)
            elif address.family == psutil.AF_LINK:
                macs[name] = address.address.lower().replace("-", ":")
    return tuple(
        _interface(name, tuple(ipv4[name]), macs.get(name, ""), indexes.get(name, 0), stats)
        for name in sorted(ipv4)
        if name in stats  # else it went away between two questions
    )


def _interface(
    name: str,
    addresses: tuple[str, ...],
    mac: str,
    index: int,
    stats: Mapping[str, Any],
) -> Interface:
    said = stats[name]
    flags = set(said.flags.split(","))  # empty on Windows
    is_loopback = "loopback" in flags or any(
        ipaddress.ip_address(address).is_loopback for address in addresses
    )
    return Interface(
        name=name,
        addresses=addresses,
        mac=mac,
        is_up=said.isup,
        is_loopback=is_loopback,
        is_point_to_point="pointopoint" in flags,
        index=index,
        speed_mbps=said.speed,
        is_wireless=_is_wireless(name),
    )


def _is_wireless(name: str) -> bool | None:
    """Return what Linux says of an interface; None for one without hardware, or elsewhere."""
    folder = _SYS_CLASS_NET / name
    if (folder / "wireless").exists() or (folder / "phy80211").exists():
        return True
    return False if (folder / "device").exists() else None

"""Which network adapters the pool uses, and why not the others.

Pure. An adapter is judged by what it is for: one that carries containers, virtual machines or a
VPN has an address that no other PC in the room can reach, and announcing it makes others try in
vain.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Literal

Link = Literal["wired", "wireless", "unknown", "loopback"]

_LINK_ORDER: dict[Link, int] = {"wired": 0, "unknown": 1, "wireless": 2, "loopback": 3}

# First match wins. Linux names come first in each pattern, then Windows names.
_NOT_FOR_THE_POOL: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), reason)
    for pattern, reason in (
        (r"vEthernet \(WSL", "It belongs to WSL."),
        (
            r"docker|br-[0-9a-f]{12}$|veth(?!ernet)|cni|podman|flannel|cali|cilium|weave|kube"
            r"|lxc|lxd|incus|nerdctl|.*\b(docker|podman)\b",
            "It belongs to containers.",
        ),
        (
            r"virbr|vnet\d|vmnet|vboxnet|vEthernet|.*\b(VirtualBox|VMware|Hyper-V|VMnet\d+)\b",
            "It belongs to virtual machines.",
        ),
        (
            r"(tun|tap|wg|utun|ppp|ipsec|zt|ham|gpd|cscotun)[0-9a-z]*$|vpn|vti|xfrm|tailscale"
            r"|nordlynx|proton|mullvad|wireguard|zerotier"
            r"|.*(VPN|\bTAP\b|WireGuard|Tailscale|ZeroTier|AnyConnect|NordLynx|Wintun|PANGP)",
            "It is a VPN.",
        ),
        (r"bnep|pan\d|.*Bluetooth", "It is a Bluetooth network."),
        (r"wwan|wwp|rmnet|.*\b(Mobile|Cellular)\b|手机网络", "It is a mobile network."),
        (
            r"dummy|ifb|sit\d|gre|gretap|erspan|ip6tnl|tunl\d|teql|nlmon|awdl|llw|p2p-"
            r"|.*\* \d+$|Loopback Pseudo-Interface|.*\b(Npcap|Teredo|isatap|KM-TEST)\b",
            "It is not a network of PCs.",
        ),
    )
)
_HOST_SIDE_OF = {  # MAC prefixes of adapters whose names say nothing, as on Windows
    "0a:00:27": "It belongs to virtual machines.",
    "00:50:56:c0": "It belongs to virtual machines.",
    "00:ff": "It is a VPN.",
    "02:00:4c:4f:4f:50": "It is not a network of PCs.",
}
_LINK_LOCAL_ONLY = "It gave itself an address (169.254.…), because nobody on its network did."
_WIRELESS = re.compile(r"wl|wi-?fi|ath\d|ra\d|wireless|drahtlos|无线|無線", re.IGNORECASE)
_WIRED = re.compile(r"en|eth|em\d|p\d+p\d|lan\b|local area|以太网|乙太網路|本地连接", re.IGNORECASE)


@dataclass(frozen=True)
class Interface:
    """What the system says of one interface.

    Attributes:
        name: As the system shows it.
        addresses: IPv4, in the system's order.
        mac: Lower case with colons; empty where there is none.
        is_up: Switched on, and a cable or a network is there.
        index: The system's number for it, another one after it was made again; 0 if not known.
        speed_mbps: Mbit/s; 0 if not known.
        is_wireless: None if not known.
    """

    name: str
    addresses: tuple[str, ...] = ()
    mac: str = ""
    is_up: bool = True
    is_loopback: bool = False
    is_point_to_point: bool = False
    index: int = 0
    speed_mbps: int = 0
    is_wireless: bool | None = None


@dataclass(frozen=True)
class Adapter:
    """An interface the pool uses.

    Attributes:
        addresses: IPv4, at least one; those that others may be told.
    """

    name: str
    addresses: tuple[str, ...]
    link: Link
    index: int = 0


@dataclass(frozen=True)
class IgnoredAdapter:
    """An interface the pool leaves alone.

    Attributes:
        reason: One sentence.
    """

    name: str
    addresses: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class RankedAdapters:
    """Every interface of this PC, each once.

    Attributes:
        used: Best first.
        ignored: By name.
        missing: What was asked for by name or address and is not there.
    """

    used: tuple[Adapter, ...] = ()
    ignored: tuple[IgnoredAdapter, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def addresses(self) -> tuple[str, ...]:
        """Every address that is used, best adapter first, each once."""
        return tuple(dict.fromkeys(a for adapter in self.used for a in adapter.addresses))


def rank_adapters(
    interfaces: tuple[Interface, ...], chosen: tuple[str, ...] = ()
) -> RankedAdapters:
    """Divide interfaces into those the pool uses, best first, and those it leaves alone.

    Left to itself it takes real adapters only: wired before unknown before wireless, faster
    before slower. A choice overrides every judgement but the facts: what has no link or no
    address can't be used, chosen or not.

    Args:
        interfaces: As the system has them now.
        chosen: Names (in any case) or IPv4 addresses of the only interfaces to use, in order of
            preference; a link-local address, a VPN or the loopback are used when chosen.
    """
    used: list[tuple[tuple[int, int, str], Adapter]] = []
    ignored: list[IgnoredAdapter] = []
    matched: set[str] = set()
    for interface in interfaces:
        choice = _choice_of(interface, chosen)
        if choice is not None:
            matched.add(choice)
        addresses, reason = _judge(interface, choice, is_choice_made=bool(chosen))
        if reason is not None:
            ignored.append(IgnoredAdapter(interface.name, interface.addresses, reason))
            continue
        link = _link_of(interface)
        rank = chosen.index(choice) if choice is not None else _LINK_ORDER[link]
        adapter = Adapter(interface.name, addresses, link, interface.index)
        used.append(((rank, -interface.speed_mbps, interface.name), adapter))
    return RankedAdapters(
        used=tuple(adapter for _, adapter in sorted(used, key=lambda pair: pair[0])),
        ignored=tuple(sorted(ignored, key=lambda adapter: adapter.name)),
        missing=tuple(choice for choice in chosen if choice not in matched),
    )


def _choice_of(interface: Interface, chosen: tuple[str, ...]) -> str | None:
    for choice in chosen:
        if choice.casefold() == interface.name.casefold() or choice in interface.addresses:
            return choice
    return None


def _judge(
    interface: Interface, choice: str | None, *, is_choice_made: bool
) -> tuple[tuple[str, ...], str | None]:
    """Return the addresses to use, or why there is none."""
    if choice is None:
        reason = "Another one was chosen." if is_choice_made else _reason_against(interface)
        if reason is not None:
            return (), reason
    if not interface.is_up:
        return (), "It has no link."
    if not interface.addresses:
        return (), "It has no IPv4 address."
    if choice is not None:
        return ((choice,) if choice in interface.addresses else interface.addresses), None
    reachable = tuple(a for a in interface.addresses if not ipaddress.ip_address(a).is_link_local)
    return reachable, None if reachable else _LINK_LOCAL_ONLY


def _reason_against(interface: Interface) -> str | None:
    """Return why an interface is of no use to a pool, whatever its state; None if it is."""
    if interface.is_loopback:
        return "It reaches this PC only."
    for pattern, reason in _NOT_FOR_THE_POOL:
        if pattern.match(interface.name):
            return reason
    for prefix, reason in _HOST_SIDE_OF.items():
        if interface.mac.startswith(prefix):
            return reason
    return "It is a VPN." if interface.is_point_to_point else None


def _link_of(interface: Interface) -> Link:
    if interface.is_loopback:
        return "loopback"
    if interface.is_wireless is not None:
        return "wireless" if interface.is_wireless else "wired"
    if _WIRELESS.match(interface.name):
        return "wireless"
    return "wired" if _WIRED.match(interface.name) else "unknown"

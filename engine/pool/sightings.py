"""What discovery tells, and how what is seen becomes news.

Pure. Discovery compares what it sees with what it has told, so a reader that is slow misses
steps in between and never the present state.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from engine.pool.announcement import Unreadable, decode_announcement, run_id_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from engine.pool.adapters import RankedAdapters
    from engine.pool.announcement import Announcement
    from engine.pool.peer_address import PeerAddress

MAX_ADDRESSES = 8


@dataclass(frozen=True)
class Appeared:
    """A node announces itself, or announces something else than before.

    Attributes:
        announcement: What it says; nobody vouches for it.
        addresses: IPv4, all ways to this one node, in the order of their numbers.
    """

    announcement: Announcement
    addresses: tuple[str, ...]

    @property
    def run_id(self) -> str:
        """Which start of a node announces it."""
        return self.announcement.run_id

    @property
    def port(self) -> int:
        """Where it listens, on every address."""
        return self.announcement.port


@dataclass(frozen=True)
class Vanished:
    """A node said goodbye, or was not heard for the time its announcement holds."""

    run_id: str


@dataclass(frozen=True)
class AdaptersChanged:
    """This PC's adapters are others than before, or have other addresses."""

    adapters: RankedAdapters


@dataclass(frozen=True)
class Candidate:
    """An address worth trying, because a person gave it or a peer was there before."""

    address: PeerAddress
    source: Literal["manual", "known"]


DiscoveryEvent: TypeAlias = "Appeared | Vanished | AdaptersChanged | Candidate"


def read_sighting(
    name: str, text: bytes, addresses: Iterable[str], *, is_loopback_used: bool
) -> Appeared | Unreadable:
    """Make sense of one service as it was seen; whatever is in it, nothing is raised.

    Args:
        name: The full name of the service.
        text: Its TXT record's data.
        addresses: IPv4, as they came.
        is_loopback_used: Whether a loopback address leads to a peer, which it does only for nodes
            that share one PC.
    """
    said = decode_announcement(text)
    if isinstance(said, Unreadable):
        return said
    if said.run_id != run_id_of(name):
        return Unreadable("Its name is not made of its id.")
    usable = [a for a in map(ipaddress.IPv4Address, addresses) if _may_be_a_peer(a)]
    if not is_loopback_used:
        usable = [address for address in usable if not address.is_loopback]
    if not usable:
        return Unreadable("It has no address that can lead to it.")
    return Appeared(said, tuple(str(a) for a in sorted(set(usable))[:MAX_ADDRESSES]))


def news(told: Mapping[str, Appeared], seen: Mapping[str, Appeared]) -> list[Appeared | Vanished]:
    """Return what has to be told so that what was told is what is seen; vanished nodes first."""
    gone: list[Appeared | Vanished] = [Vanished(run) for run in told if run not in seen]
    return gone + [sight for run, sight in seen.items() if told.get(run) != sight]


def _may_be_a_peer(address: ipaddress.IPv4Address) -> bool:
    is_no_host = address.is_multicast or address.is_unspecified or address.is_reserved
    return not is_no_host

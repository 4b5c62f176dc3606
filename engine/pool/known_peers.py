"""Where other nodes were reached before, so that a network without multicast is no obstacle.

Pure.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

import msgspec

from engine.domain import NodeId
from engine.errors import UsageError
from engine.pool.peer_address import parse_peer_address

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engine.messages.pool import NodeReport
    from engine.pool.peer_address import PeerAddress

MAX_KNOWN = 32
MAX_HINTS = 16  # of one report: as many as a pool has nodes
MAX_KNOWN_OF_ONE = 2  # a PC on cable and on air at once


class KnownPeer(msgspec.Struct, frozen=True):
    """An address a node was reached at.

    Attributes:
        node_id: Whose.
        address: As ``PeerAddress`` is written.
    """

    node_id: NodeId
    address: str

    def parsed(self) -> PeerAddress | None:
        """Return the address; None if it is none, in a file somebody changed."""
        try:
            return parse_peer_address(self.address)
        except UsageError:
            return None


KnownPeers = tuple[KnownPeer, ...]


def remembered(known: KnownPeers, node_id: NodeId, address: PeerAddress) -> KnownPeers:
    """Return what is known after a node was reached; the same object if that is no news.

    Args:
        known: Before, the newest first.
        node_id: Whose address it is. A node that moved has its older ones replaced.
        address: Where it listens.
    """
    peer = KnownPeer(node_id, str(address))
    if peer in known:
        return known
    # An address belongs to the last node that was reached there.
    others = [one for one in known if one.address != peer.address]
    of_others = [one for one in others if one.node_id != node_id]
    of_it = [one for one in others if one.node_id == node_id][: MAX_KNOWN_OF_ONE - 1]
    return (peer, *of_it, *of_others)[:MAX_KNOWN]


def readable(known: Iterable[KnownPeer]) -> KnownPeers:
    """Return the peers of a file whose addresses are addresses, as many as are kept."""
    return tuple(one for one in known if one.parsed() is not None)[:MAX_KNOWN]


def hints(report: NodeReport, sender: PeerAddress) -> list[tuple[NodeId, PeerAddress]]:
    """Return where a report says that other nodes are, as far as that may lead to them from here.

    Args:
        report: Of a node there is a session with.
        sender: Its end of the session. Only on this same PC does its loopback lead anywhere.
    """
    told = (KnownPeer(one.node_id, one.address) for one in report.neighbours[:MAX_HINTS])
    parsed = ((peer.node_id, peer.parsed()) for peer in told)
    return [
        (node_id, address)
        for node_id, address in parsed
        if address is not None and (_is_loopback(sender) or not _is_loopback(address))
    ]


def _is_loopback(address: PeerAddress) -> bool:
    try:
        return ipaddress.ip_address(address.host.partition("%")[0]).is_loopback
    except ValueError:
        return address.host == "localhost"

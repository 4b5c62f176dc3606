"""The membership as a person is shown it: who is there, who hears whom, and what is wrong.

Made when somebody asks. Decides nothing.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import msgspec

from engine.domain import NodeId
from engine.messages.pool import Heartbeat
from engine.pool.heartbeat import LEASE_S
from engine.pool.membership import Double, Lease, Stranger, Way, alive

if TYPE_CHECKING:
    from engine.messages.pool import Versions
    from engine.pool.membership import Member, Membership


_NAMES = {  # as a person reads them
    "product": "version of Daisy",
    "protocol": "protocol version",
    "shard_format": "shard format",
}


class Mismatch(msgspec.Struct, frozen=True):
    """A version that differs, with both values."""

    what: str
    ours: str
    theirs: str


class OneWayLink(msgspec.Struct, frozen=True):
    """``hearer`` hears ``unhearing``, which doesn't hear it: its firewall, as a rule."""

    hearer: NodeId
    unhearing: NodeId


class NodeView(msgspec.Struct, frozen=True):
    """One other node."""

    heartbeat: Heartbeat  # the newest; what it says of itself
    lease: Lease
    heard_ago_s: float
    hears_us: bool
    ways: tuple[Way, ...]  # all addresses of this one node
    mismatches: tuple[Mismatch, ...]
    clones: tuple[int, ...]  # incarnations of other PCs that run with its identity


class StrangerView(msgspec.Struct, frozen=True):
    """A node that can't take part."""

    node_id: NodeId
    stranger: Stranger
    mismatches: tuple[Mismatch, ...]  # none: the pool is full


class PoolView(msgspec.Struct, frozen=True):
    """Everything that is known, at one moment."""

    nodes: tuple[NodeView, ...]  # by id
    hears: dict[NodeId, tuple[NodeId, ...]]  # row: who hears; of those that are alive, and us
    one_way: tuple[OneWayLink, ...]
    no_link: tuple[tuple[NodeId, NodeId], ...]  # pairs of which neither hears the other
    strangers: tuple[StrangerView, ...]
    double: Double | None  # another PC with this PC's identity


def mismatches(ours: Versions, theirs: Versions) -> tuple[Mismatch, ...]:
    """Name every version that differs, as far as the other told; the product's may be empty."""
    return tuple(
        Mismatch(_NAMES[name], str(getattr(ours, name)), str(getattr(theirs, name)))
        for name in ours.__struct_fields__
        if getattr(theirs, name) not in {getattr(ours, name), ""}
    )


def view(membership: Membership, now_s: float) -> PoolView:
    """Return what is known now.

    Links are named between nodes that have been there for a lease; before that, one side has
    simply heard first.

    Args:
        membership: As folded so far.
        now_s: Not before its last fold.
    """
    lives = alive(membership, now_s)
    own = membership.node_id
    hears = {own: tuple(life.heartbeat.node_id for life in lives)}
    hears |= {life.heartbeat.node_id: life.heartbeat.hears for life in lives}
    since = {own: membership.started_s}
    since |= {life.heartbeat.node_id: life.first_s for life in lives}
    settled = sorted(node_id for node_id, first_s in since.items() if now_s - first_s > LEASE_S)
    one_way, no_link = _faulty_links(settled, hears)
    strangers = sorted(membership.strangers.items())
    return PoolView(
        nodes=tuple(
            _node_view(membership, member, now_s)
            for _, member in sorted(membership.members.items())
        ),
        hears=hears,
        one_way=one_way,
        no_link=no_link,
        strangers=tuple(
            StrangerView(node_id, one, mismatches(membership.versions, one.versions))
            for node_id, one in strangers
        ),
        double=membership.double,
    )


def _node_view(membership: Membership, member: Member, now_s: float) -> NodeView:
    life = member.life
    return NodeView(
        heartbeat=life.heartbeat,
        lease=life.lease(now_s),
        heard_ago_s=now_s - life.heard_s,
        hears_us=life.is_alive(now_s) and membership.node_id in life.heartbeat.hears,
        ways=member.ways,
        mismatches=mismatches(membership.versions, life.heartbeat.versions),
        clones=tuple(clone.heartbeat.incarnation for clone in member.clones(now_s)),
    )


def _faulty_links(
    nodes: list[NodeId], hears: dict[NodeId, tuple[NodeId, ...]]
) -> tuple[tuple[OneWayLink, ...], tuple[tuple[NodeId, NodeId], ...]]:
    one_way = []
    no_link = []
    for one, other in combinations(nodes, 2):
        match other in hears[one], one in hears[other]:
            case True, False:
                one_way.append(OneWayLink(one, other))
            case False, True:
                one_way.append(OneWayLink(other, one))
            case False, False:
                no_link.append((one, other))
    return tuple(one_way), tuple(no_link)

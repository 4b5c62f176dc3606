"""Who is in the pool: what was heard, folded into one immutable record.

A node is its id. However many ways lead to it and however often it restarts, it is one member
here; it is gone at its goodbye, offline when its lease has run out, and forgotten after a named
time, so nothing lingers. Who should decide is not known here.

Time is the caller's monotonic clock. Where it leaps, this PC slept: nothing could be heard
meanwhile, so the leap hardly counts against anybody's lease.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

import msgspec
from msgspec.structs import replace

from engine.domain import NodeId
from engine.messages.pool import Heartbeat, Versions
from engine.pool.heartbeat import LEASE_S, MAX_NODES
from engine.pool.peer_address import PeerAddress

if TYPE_CHECKING:
    from collections.abc import Callable

SILENT_AFTER_S = 1.5  # one heartbeat missed
CLONE_AFTER_S = 2.0  # two starts of one node that overlap for longer are no restart
STALL_S = 1.0  # the fold is called twice a second; a longer pause means that we were stopped
STALL_COUNTS_S = 0.25  # as much of it counts, so that leases end however slow the PC is
FORGET_AFTER_S = 600.0  # an offline PC is shown as long, then no more
FORGET_GONE_AFTER_S = 60.0  # one that said goodbye
FORGET_WAY_AFTER_S = 60.0  # an address nothing came from
MAX_STRANGERS = 32  # remembered; more are somebody's game
MAX_LIVES = 4  # starts remembered of one node
MAX_WAYS = 8  # addresses remembered of one node


class Lease(Enum):
    """What a member's lease says of it."""

    ONLINE = "online"
    SILENT = "silent"  # a heartbeat is missing; nothing is concluded yet
    OFFLINE = "offline"  # three are
    GONE = "gone"  # it said goodbye


class Life(msgspec.Struct, frozen=True):
    """One start of a node's engine, as far as it was heard. Times are ours, in seconds."""

    heartbeat: Heartbeat  # the newest
    first_s: float
    heard_s: float
    left_s: float | None = None  # when it said goodbye

    def lease(self, now_s: float) -> Lease:
        """Return what its lease says now."""
        if self.left_s is not None:
            return Lease.GONE
        silence_s = now_s - self.heard_s
        if silence_s > LEASE_S:
            return Lease.OFFLINE
        return Lease.SILENT if silence_s > SILENT_AFTER_S else Lease.ONLINE

    def is_alive(self, now_s: float) -> bool:
        """Return whether it has a lease."""
        return self.left_s is None and now_s - self.heard_s <= LEASE_S

    def overlap_s(self, other: Life) -> float:
        """Return how long both were heard at the same time; negative where one followed."""
        return min(self.heard_s, other.heard_s) - max(self.first_s, other.first_s)


class Way(msgspec.Struct, frozen=True):
    """An address a node was heard from."""

    address: PeerAddress
    heard_s: float


class Member(msgspec.Struct, frozen=True):
    """Another node."""

    life: Life  # the one that counts
    others: tuple[Life, ...] = ()  # earlier starts, and clones; the latest known first
    ways: tuple[Way, ...] = ()  # the last heard first

    @property
    def node_id(self) -> NodeId:
        """Its id."""
        return self.life.heartbeat.node_id

    def clones(self, now_s: float) -> tuple[Life, ...]:
        """Return the lives that run beside the one that counts: other PCs with its identity."""
        return tuple(
            other
            for other in self.others
            if other.is_alive(now_s)
            and self.life.is_alive(now_s)
            and other.overlap_s(self.life) >= CLONE_AFTER_S
        )


class Stranger(msgspec.Struct, frozen=True):
    """A node that can't take part: of other versions, or one too many."""

    versions: Versions
    address: PeerAddress
    seen_s: float


class Double(msgspec.Struct, frozen=True):
    """Another PC that runs with this PC's own identity."""

    incarnation: int
    address: PeerAddress
    heard_s: float


class Membership(msgspec.Struct, frozen=True):
    """Everything this node knows of the others; changed by ``fold`` only."""

    node_id: NodeId
    incarnation: int
    versions: Versions
    started_s: float
    last_s: float
    members: dict[NodeId, Member] = {}  # never changed in place
    strangers: dict[NodeId, Stranger] = {}
    double: Double | None = None


class Heard(msgspec.Struct, frozen=True):
    """A heartbeat came."""

    heartbeat: Heartbeat
    address: PeerAddress  # where from


class Left(msgspec.Struct, frozen=True):
    """A goodbye came."""

    node_id: NodeId
    incarnation: int


class Refused(msgspec.Struct, frozen=True):
    """A session could not be opened, because the versions differ."""

    node_id: NodeId
    versions: Versions
    address: PeerAddress


class Ticked(msgspec.Struct, frozen=True):
    """Time has passed."""


Event: TypeAlias = Heard | Left | Refused | Ticked


def fold(membership: Membership, event: Event, now_s: float) -> Membership:
    """Return the membership after an event.

    Args:
        membership: As it was.
        event: What happened. A heartbeat that was overtaken, doubled, or sent before its
            sender's goodbye changes nothing.
        now_s: Monotonic; at least as late as at the fold before.
    """
    pause_s = now_s - membership.last_s
    if pause_s > STALL_S:
        membership = _later(membership, pause_s - STALL_COUNTS_S)
    membership = replace(membership, last_s=now_s)
    match event:
        case Heard():
            return _heard(membership, event, now_s)
        case Left():
            return _left(membership, event, now_s)
        case Refused():
            return _refused(membership, event, now_s)
        case _:
            return _forgotten(membership, now_s)


def alive(membership: Membership, now_s: float) -> tuple[Life, ...]:
    """Return those that have a lease now, by id."""
    members = sorted(membership.members.items())
    return tuple(member.life for _, member in members if member.life.is_alive(now_s))


def gone(membership: Membership) -> frozenset[NodeId]:
    """Return those that said goodbye and were not heard of since."""
    members = membership.members.items()
    return frozenset(node_id for node_id, member in members if member.life.left_s is not None)


# ---- one event at a time ---------------------------------------------------------------------


def _heard(membership: Membership, event: Heard, now_s: float) -> Membership:
    beat = event.heartbeat
    if beat.node_id == membership.node_id:
        if beat.incarnation == membership.incarnation:
            return membership
        double = Double(beat.incarnation, event.address, now_s)
        return replace(membership, double=double)
    life = Life(beat, now_s, now_s)
    known = membership.members.get(beat.node_id)
    if known is None:
        return _admitted(membership, Member(life, (), (Way(event.address, now_s),)), now_s)
    member = _with_life(known, life, now_s)
    if member is known and beat != known.life.heartbeat:
        return membership  # overtaken; the same over another way says that this way leads there
    member = replace(member, ways=_with_way(member.ways, event.address, now_s))
    return replace(membership, members=membership.members | {beat.node_id: member})


def _with_life(member: Member, life: Life, now_s: float) -> Member:
    """Enter a heartbeat under the start it belongs to; the same member if it says nothing new.

    An unknown start is a restart and counts at once. A known one that was replaced counts again
    when the one that replaced it falls silent: then that one was a late heartbeat of an earlier
    start, or a clone that was closed.
    """
    incarnation = life.heartbeat.incarnation
    if incarnation == member.life.heartbeat.incarnation:
        newer = _continued(member.life, life)
        return member if newer is None else replace(member, life=newer)
    known = next((o for o in member.others if o.heartbeat.incarnation == incarnation), None)
    if known is None:
        others = (member.life, *member.others)
        return replace(member, life=life, others=others[: MAX_LIVES - 1])
    newer = _continued(known, life)
    if newer is None:
        return member
    others = tuple(other for other in member.others if other is not known)
    if member.life.lease(now_s) is Lease.ONLINE:
        return replace(member, others=(newer, *others))
    return replace(member, life=newer, others=(member.life, *others))


def _continued(known: Life, heard: Life) -> Life | None:
    """Join a heartbeat to the earlier ones of its start; None if it was overtaken or is over."""
    if known.left_s is not None or heard.heartbeat.number <= known.heartbeat.number:
        return None
    return replace(heard, first_s=known.first_s)


def _with_way(ways: tuple[Way, ...], address: PeerAddress, now_s: float) -> tuple[Way, ...]:
    others = [
        way for way in ways if way.address != address and now_s - way.heard_s <= FORGET_WAY_AFTER_S
    ]
    return (Way(address, now_s), *others[: MAX_WAYS - 1])


def _admitted(membership: Membership, member: Member, now_s: float) -> Membership:
    """Take a new member in; in the place of one that is not there, if the pool is full."""
    members = dict(membership.members)
    beat = member.life.heartbeat
    if len(members) >= MAX_NODES - 1:
        absent = [known for known in members.values() if not known.life.is_alive(now_s)]
        if not absent:
            stranger = Stranger(beat.versions, member.ways[0].address, now_s)
            return _with_stranger(membership, beat.node_id, stranger)
        del members[min(absent, key=lambda known: known.life.heard_s).node_id]
    members[beat.node_id] = member
    strangers = {key: one for key, one in membership.strangers.items() if key != beat.node_id}
    return replace(membership, members=members, strangers=strangers)


def _refused(membership: Membership, event: Refused, now_s: float) -> Membership:
    """Note a stranger, unless a session says that it is none: announcements can be forged."""
    member = membership.members.get(event.node_id)
    if event.node_id == membership.node_id or (member is not None and member.life.is_alive(now_s)):
        return membership
    stranger = Stranger(event.versions, event.address, now_s)
    return _with_stranger(membership, event.node_id, stranger)


def _with_stranger(membership: Membership, node_id: NodeId, stranger: Stranger) -> Membership:
    strangers = membership.strangers | {node_id: stranger}
    if len(strangers) > MAX_STRANGERS:
        del strangers[min(strangers, key=lambda key: strangers[key].seen_s)]
    return replace(membership, strangers=strangers)


def _left(membership: Membership, event: Left, now_s: float) -> Membership:
    member = membership.members.get(event.node_id)
    if member is None:
        return membership

    def closed(life: Life) -> Life:
        is_meant = life.heartbeat.incarnation == event.incarnation and life.left_s is None
        return replace(life, left_s=now_s) if is_meant else life

    member = _with_lives(member, closed)
    return replace(membership, members=membership.members | {event.node_id: member})


def _forgotten(membership: Membership, now_s: float) -> Membership:
    """Drop what is no longer worth showing."""

    def is_worth(life: Life) -> bool:
        if life.left_s is not None:
            return now_s - life.left_s <= FORGET_GONE_AFTER_S
        return now_s - life.heard_s <= FORGET_AFTER_S

    double = membership.double
    members = {key: one for key, one in membership.members.items() if is_worth(one.life)}
    strangers = {
        key: one
        for key, one in membership.strangers.items()
        if now_s - one.seen_s <= FORGET_AFTER_S
    }
    is_double_there = double is not None and now_s - double.heard_s <= LEASE_S
    return replace(
        membership,
        members=members,
        strangers=strangers,
        double=double if is_double_there else None,
    )


# ---- all of them -----------------------------------------------------------------------------


def _with_lives(member: Member, change: Callable[[Life], Life]) -> Member:
    others = tuple(change(life) for life in member.others)
    return replace(member, life=change(member.life), others=others)


def _later(membership: Membership, pause_s: float) -> Membership:
    """Move every time on by a pause in which nothing could be heard."""

    def moved(life: Life) -> Life:
        return replace(
            life,
            first_s=life.first_s + pause_s,
            heard_s=life.heard_s + pause_s,
            left_s=None if life.left_s is None else life.left_s + pause_s,
        )

    members = {key: _with_lives(one, moved) for key, one in membership.members.items()}
    return replace(membership, members=members)

"""Who is in office and who should be, as the heartbeats of a moment say it.

Judgements only: they remember nothing, and two nodes that know the same judge the same.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from engine.domain import NodeId
from engine.messages.pool import Heartbeat, Preference, Term
from engine.pool.heartbeat import Rank, rank


class Observed(msgspec.Struct, frozen=True):
    """What the membership holds now; given to the election on every heartbeat, goodbye, tick."""

    mutual: tuple[Heartbeat, ...]  # newest of each node that is heard and hears us
    preference: Preference  # our own
    gone: frozenset[NodeId] = frozenset()  # said goodbye


Leaders: TypeAlias = dict[NodeId, Term]
Standing: TypeAlias = tuple[int, Rank]


def leaders_seen(node_id: NodeId, seen: Observed) -> Leaders:
    """Return who else is in office: those who say so themselves, and those vouched for.

    A vouch is the word of a node that hears its coordinator and is heard by it, so nobody is
    kept in office by two that only repeat each other. What a node says of itself counts for more.

    Args:
        node_id: Our own; what others say of us is known better here.
        seen: What the membership holds.
    """
    leaders = {
        beat.node_id: beat.term
        for beat in seen.mutual
        if beat.coordinates and beat.term is not None
    }
    known = {beat.node_id for beat in seen.mutual} | {node_id} | seen.gone
    for beat in seen.mutual:
        leader, term = beat.coordinator, beat.term
        if leader is None or term is None or leader in known or not beat.vouches:
            continue
        leaders[leader] = max(term, leaders.get(leader, term))
    return leaders


def num_followers(node_id: NodeId, seen: Observed) -> int:
    """Return how many say that a node is their coordinator."""
    return sum(beat.coordinator == node_id for beat in seen.mutual)


def num_preferred(node_id: NodeId, seen: Observed) -> int:
    """Return how many would serve better than we: our place in the order of claims."""
    own = rank(seen.preference, node_id)
    return sum(rank(beat.preference, beat.node_id) < own for beat in seen.mutual)


def newest_counter(floor: Term | None, seen: Observed) -> int:
    """Return the highest counter of any term heard of, or of our own; 0 for none."""
    terms = [floor, *(beat.term for beat in seen.mutual)]
    return max((term.counter for term in terms if term is not None), default=0)


def standing(followers: int, preference: Preference, node_id: NodeId) -> Standing:
    """Return what sorts coordinators that meet: the smallest stays in office.

    More followers come first, because fewer nodes then have to change; then preference.
    """
    return -followers, rank(preference, node_id)


def standing_of(beat: Heartbeat) -> Standing:
    """Return the standing of a heartbeat's sender."""
    return standing(beat.followers, beat.preference, beat.node_id)

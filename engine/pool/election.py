"""The election: one node's part in agreeing on a coordinator.

Two rules. Everything that changes a node's standing in the election is in this file. Nothing in
it reads a clock, a disk or a socket: what was heard, what was written and the time come in as
arguments; what to write and what to announce go out.

There is no vote and no majority, because a pool of two must survive the loss of either. A node
claims a term that nobody can claim again (``terms``), writes it to disk, and is in office; the
others follow because its heartbeat says so. What keeps it to one coordinator:

- A node claims only when it has no coordinator that it hears both ways, and nobody it hears both
  ways vouches for one. It then waits by its rank, so that the preferred node comes first.
- A follower stays with its coordinator as long as that is there, whoever else claims.
- Two coordinators that meet compare: more followers first, then preference. The better one, if
  its term is the older, claims a newer one; the other follows. So a PC that slept or was cut off
  alone never deposes the pool it comes back to, though its term is newer.
- Terms only go up. Where a node holds a newer term than the coordinator, that claims anew.

Safety rests on the fence alone; the rules above make the pool quiet. ADR 9 says why.
"""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from engine.domain import NodeId
from engine.errors import LocalProtocolError
from engine.messages.pool import Term
from engine.pool.actions import (
    Action,
    Announce,
    BecameCoordinator,
    CoordinatorLost,
    Following,
    Persist,
    SteppedDown,
)
from engine.pool.heartbeat import LEASE_S
from engine.pool.office import (
    Leaders,
    Observed,
    leaders_seen,
    newest_counter,
    num_followers,
    num_preferred,
    standing,
    standing_of,
)
from engine.pool.terms import is_older

LISTEN_S = 2.0  # after a start or a pause: discovery takes up to 1.2 s
STAGGER_S = 1.0  # between one rank's claim and the next one's
STAND_BACK_S = 5.0  # after resigning or a failed write: somebody else may claim meanwhile


class State(Enum):
    """Where a node stands."""

    LISTENING = "listening"  # no coordinator is known
    ADOPTING = "adopting"  # a coordinator's term is being written
    FOLLOWING = "following"
    CLAIMING = "claiming"  # an own term is being written
    COORDINATING = "coordinating"


class Input(Enum):
    """What can happen to it."""

    LEADER_SEEN = "coordinator seen"  # one whose term may be accepted
    LEADER_LOST = "coordinator lost"
    CLAIM_DUE = "wait is over"
    OUTRANKED = "better coordinator met"
    CHALLENGED = "newer term met"
    WRITTEN = "term written"
    WRITE_FAILED = "writing failed"
    PAUSED = "clock leapt"
    RESIGN = "asked to resign"


TRANSITIONS: dict[tuple[State, Input], State] = {
    (State.LISTENING, Input.LEADER_SEEN): State.ADOPTING,
    (State.LISTENING, Input.CLAIM_DUE): State.CLAIMING,
    (State.LISTENING, Input.PAUSED): State.LISTENING,
    (State.LISTENING, Input.RESIGN): State.LISTENING,
    (State.ADOPTING, Input.LEADER_SEEN): State.ADOPTING,
    (State.ADOPTING, Input.LEADER_LOST): State.LISTENING,
    (State.ADOPTING, Input.WRITTEN): State.FOLLOWING,
    (State.ADOPTING, Input.WRITE_FAILED): State.LISTENING,
    (State.ADOPTING, Input.PAUSED): State.LISTENING,
    (State.ADOPTING, Input.RESIGN): State.ADOPTING,  # it is leaving the office already
    (State.FOLLOWING, Input.LEADER_SEEN): State.ADOPTING,
    (State.FOLLOWING, Input.LEADER_LOST): State.LISTENING,
    (State.FOLLOWING, Input.PAUSED): State.FOLLOWING,
    (State.CLAIMING, Input.LEADER_SEEN): State.ADOPTING,
    (State.CLAIMING, Input.WRITTEN): State.COORDINATING,
    (State.CLAIMING, Input.WRITE_FAILED): State.LISTENING,
    (State.CLAIMING, Input.PAUSED): State.LISTENING,
    (State.CLAIMING, Input.RESIGN): State.LISTENING,
    (State.COORDINATING, Input.OUTRANKED): State.ADOPTING,
    (State.COORDINATING, Input.CHALLENGED): State.CLAIMING,
    (State.COORDINATING, Input.PAUSED): State.LISTENING,
    (State.COORDINATING, Input.RESIGN): State.LISTENING,
}


class Election(msgspec.Struct, frozen=True, kw_only=True):
    """One node's standing; changed by ``step`` only. Times in seconds, on the caller's clock."""

    node_id: NodeId
    incarnation: int
    last_s: float
    claim_after_s: float  # LISTENING: when the most preferred node claims
    state: State = State.LISTENING
    accepted: Term | None = None  # the highest written; never goes back
    coordinator: NodeId | None = None  # in office by ``accepted``, as far as we know
    vouches: bool = False  # we are it, or it and we hear each other
    followers: int = 0  # nodes that say we are it
    unwritten: tuple[Term, ...] = ()  # asked to be written, oldest first

    @property
    def is_in_office(self) -> bool:
        """Whether this node is the coordinator."""
        return self.coordinator == self.node_id

    @property
    def floor(self) -> Term | None:
        """The highest term that is or may be on disk: nothing below it is accepted."""
        return self.unwritten[-1] if self.unwritten else self.accepted


class Written(msgspec.Struct, frozen=True):
    """A term is on disk, and all that were asked for before it are or never will be."""

    term: Term


class WriteFailed(msgspec.Struct, frozen=True):
    """A term could not be written, after whatever retries make sense."""

    term: Term


class Resign(msgspec.Struct, frozen=True):
    """This node is asked to leave the office to somebody else; not while it follows one."""


Happened: TypeAlias = Observed | Written | WriteFailed | Resign


def begin(node_id: NodeId, incarnation: int, accepted: Term | None, now_s: float) -> Election:
    """Return the standing of a node that has just started.

    Args:
        node_id: Its id.
        incarnation: Drawn at random for this start.
        accepted: As read from disk; None for never.
        now_s: Monotonic.
    """
    return Election(
        node_id=node_id,
        incarnation=incarnation,
        accepted=accepted,
        last_s=now_s,
        claim_after_s=now_s + LISTEN_S,
    )


def step(election: Election, happened: Happened, now_s: float) -> tuple[Election, list[Action]]:
    """Return the standing after something happened, and what is to be done, in this order.

    Args:
        election: As it was.
        happened: What happened.
        now_s: Monotonic; at least as late as at the step before. Steps come at least twice a
            second, or it is taken that we were stopped.

    Raises:
        LocalProtocolError: That can't happen in this state: a bug of the caller's.
    """
    before = election
    pause_s = now_s - election.last_s
    election = replace(election, last_s=now_s)
    if pause_s > LEASE_S:
        election = _moved(election, Input.PAUSED, now_s)
    match happened:
        case Observed():
            election = _observed(election, happened, now_s)
        case Written():
            election = _written(election, happened.term, now_s)
        case WriteFailed():
            election = _write_failed(election, happened.term, now_s)
        case _:
            election = _moved(election, Input.RESIGN, now_s)
    return election, _actions(before, election)


# ---- what the membership means ---------------------------------------------------------------


def _observed(election: Election, seen: Observed, now_s: float) -> Election:
    leaders = leaders_seen(election.node_id, seen)
    happened: Input | None = None
    target: Term | None = None
    match election.state:
        case State.LISTENING:
            happened, target = _while_listening(election, seen, leaders, now_s)
        case State.ADOPTING | State.FOLLOWING:
            happened, target = _while_led(election, leaders)
        case State.CLAIMING if not election.is_in_office:
            target = _acceptable(election, leaders)
            happened = None if target is None else Input.LEADER_SEEN
        case State.COORDINATING:
            happened, target = _while_in_office(election, seen, leaders)
    if happened in {Input.CLAIM_DUE, Input.CHALLENGED}:
        newest = newest_counter(election.floor, seen)
        target = Term(newest + 1, election.node_id, election.incarnation)
    if happened is not None:
        election = _moved(election, happened, now_s, target)
    return _informed(election, seen)


def _acceptable(election: Election, leaders: Leaders) -> Term | None:
    """Return the newest term in office that is no step back."""
    newest = max(leaders.values(), default=None)
    return None if is_older(newest, than=election.floor) else newest


def _while_listening(
    election: Election, seen: Observed, leaders: Leaders, now_s: float
) -> tuple[Input | None, Term | None]:
    newest = _acceptable(election, leaders)
    if newest is not None:
        return Input.LEADER_SEEN, newest
    if any(beat.coordinates for beat in seen.mutual):
        return None, None  # its term is older than ours: it hears that, and claims anew
    wait_s = STAGGER_S * num_preferred(election.node_id, seen)
    is_due = now_s >= election.claim_after_s + wait_s
    return (Input.CLAIM_DUE if is_due else None), None


def _while_led(election: Election, leaders: Leaders) -> tuple[Input | None, Term | None]:
    held = election.floor
    theirs = None if held is None else leaders.get(held.claimant)
    if theirs is not None and not is_older(held, than=theirs):
        return None, None  # its own, or an older one from somebody who has not heard yet
    target = theirs if theirs is not None else _acceptable(election, leaders)
    return (Input.LEADER_LOST if target is None else Input.LEADER_SEEN), target


def _while_in_office(
    election: Election, seen: Observed, leaders: Leaders
) -> tuple[Input | None, Term | None]:
    newer = [beat for beat in seen.mutual if is_older(election.accepted, than=beat.term)]
    followers = num_followers(election.node_id, seen)
    own = standing(followers, seen.preference, election.node_id)
    better = [beat.node_id for beat in newer if beat.coordinates and standing_of(beat) < own]
    if followers == 0:  # whoever is vouched for has one
        in_person = {beat.node_id for beat in seen.mutual}
        better += [
            leader
            for leader, term in leaders.items()
            if leader not in in_person and is_older(election.accepted, than=term)
        ]
    if better:
        return Input.OUTRANKED, max(leaders[leader] for leader in better)
    mine = (None, election.node_id)
    is_challenged = any(beat.coordinates or beat.coordinator in mine for beat in newer)
    return (Input.CHALLENGED if is_challenged else None), None


def _informed(election: Election, seen: Observed) -> Election:
    """Bring up to date what our heartbeat says of others."""
    hears_coordinator = any(
        beat.node_id == election.coordinator and beat.coordinates for beat in seen.mutual
    )
    return replace(
        election,
        followers=num_followers(election.node_id, seen) if election.is_in_office else 0,
        vouches=election.is_in_office or hears_coordinator,
    )


# ---- what the disk means ---------------------------------------------------------------------


def _written(election: Election, term: Term, now_s: float) -> Election:
    keeps = term.claimant == election.coordinator
    election = replace(
        election,
        accepted=term,
        unwritten=_unwritten_after(election, term),
        coordinator=election.coordinator if keeps else None,
        vouches=election.vouches and keeps,
        followers=election.followers if keeps else 0,
    )
    return _answered(election, Input.WRITTEN, now_s)


def _write_failed(election: Election, term: Term, now_s: float) -> Election:
    election = replace(election, unwritten=_unwritten_after(election, term))
    return _answered(election, Input.WRITE_FAILED, now_s)


def _answered(election: Election, happened: Input, now_s: float) -> Election:
    """Move on, if that was the write this state waits for."""
    waits = election.state in {State.ADOPTING, State.CLAIMING} and not election.unwritten
    return _moved(election, happened, now_s) if waits else election


def _unwritten_after(election: Election, term: Term) -> tuple[Term, ...]:
    if term not in election.unwritten:
        raise LocalProtocolError(f"Term {term} was reported written or not, and never asked for.")
    return election.unwritten[election.unwritten.index(term) + 1 :]


# ---- one transition --------------------------------------------------------------------------


def _moved(
    election: Election, happened: Input, now_s: float, target: Term | None = None
) -> Election:
    """Apply the table, and what entering a state means.

    Raises:
        LocalProtocolError: The pair is not in the table.
    """
    after = TRANSITIONS.get((election.state, happened))
    if after is None:
        raise LocalProtocolError(
            f"'{happened.value}' can't happen to a node that is {election.state.value}."
        )
    moved = replace(election, state=after)
    if after is State.LISTENING:
        wait_s = _WAITS_S[happened]
        return replace(
            moved, coordinator=None, vouches=False, followers=0, claim_after_s=now_s + wait_s
        )
    if target is not None:
        is_asked = target in election.unwritten  # then it is the last: nothing older is accepted
        return moved if is_asked else replace(moved, unwritten=(*election.unwritten, target))
    if happened is Input.WRITTEN and election.accepted is not None:
        in_office = after is State.COORDINATING
        return replace(
            moved,
            coordinator=election.accepted.claimant,
            vouches=election.vouches or in_office,
        )
    return moved


_WAITS_S = {
    Input.LEADER_LOST: 0.0,
    Input.PAUSED: LISTEN_S,
    Input.RESIGN: STAND_BACK_S,
    Input.WRITE_FAILED: STAND_BACK_S,
}


def _actions(before: Election, after: Election) -> list[Action]:
    """Return what follows from a change, in the order it is to be done."""
    actions: list[Action] = []
    if after.unwritten and after.unwritten[-1] not in before.unwritten:
        actions.append(Persist(after.unwritten[-1]))
    old = (before.coordinator, before.accepted)
    new = (after.coordinator, after.accepted)
    if new != old and before.is_in_office and before.accepted is not None:
        actions.append(SteppedDown(before.accepted))
    if before.coordinator is not None and not before.is_in_office and after.coordinator is None:
        actions.append(CoordinatorLost(before.coordinator))
    if new != old and after.coordinator is not None and after.accepted is not None:
        actions.append(
            BecameCoordinator(after.accepted)
            if after.is_in_office
            else Following(after.coordinator, after.accepted)
        )
    said = (before.vouches, before.followers)
    if new != old or said != (after.vouches, after.followers):
        actions.append(Announce())
    return actions

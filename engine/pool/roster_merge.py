"""Rosters that meet: who may sign, which one counts, and what must not be lost; pure.

Every PC keeps one roster and the set of everyone it ever saw removed. Of two rosters the one with
the higher ``(version, digest)`` counts, whoever brings it, provided that its signer may sign: an
owner by the roster this PC has, or one whose appointment leads back to such an owner. A removal
counts also where its roster doesn't, and nothing ever undoes it. Two owners who changed the pool
without knowing of each other lose nothing: an owner that sees both signs a roster with all of it.
Until one does, the roster that proves a removal is kept and told beside the one that counts: a
plain member may be the only one left that heard of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from engine.domain import NodeId
from engine.errors import NotTrustedError, RemoteProtocolError
from engine.pool.roster import MemberEntry, Roster, decode_roster, is_appointed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

    from engine.pool.roster import Member

# Nobody changes a pool a million times while a PC sleeps; an owner gone bad must not use up the
# numbers there are.
MAX_LEAP = 1 << 20
MAX_PROOFS = 8  # rosters kept for their removals; the newest ones


@dataclass(frozen=True, slots=True)
class KnownRoster:
    """What one PC knows of its pool.

    Attributes:
        roster: The one that counts.
        removed: Everyone ever seen removed, in this roster or another.
        proofs: Rosters that say who was removed where the one that counts doesn't, the newest
            first.
    """

    roster: Roster
    removed: frozenset[NodeId]
    proofs: tuple[Roster, ...] = ()

    @property
    def all_signed(self) -> tuple[bytes, ...]:
        """What others must be told to know as much: the roster that counts comes last."""
        return tuple(roster.signed for roster in (*self.proofs, self.roster))

    @property
    def members(self) -> tuple[Member, ...]:
        """Who is trusted now."""
        return tuple(m for m in self.roster.members if m.node_id not in self.removed)

    def member(self, node_id: NodeId) -> Member | None:
        """Return a member that is trusted now; None for anybody else."""
        return None if node_id in self.removed else self.roster.member(node_id)


@dataclass(frozen=True, slots=True)
class Learned:
    """What came of a roster that was brought.

    Attributes:
        known: What this PC knows from now on.
        is_news: Whether that is more than before: to be written to disk, and told to the others.
        unsaid: Entries of the other roster that the one that counts lacks.
    """

    known: KnownRoster
    is_news: bool
    unsaid: tuple[Member, ...]

    @property
    def is_incomplete(self) -> bool:
        """Whether an owner should sign a roster with all that is known now."""
        return bool(self.unsaid) or bool(self.known.removed - self.known.roster.removed)


def known_from(roster: Roster) -> KnownRoster:
    """Return what is known from one roster: the first of a pool, or the one of a welcome."""
    return KnownRoster(roster, roster.removed)


def learn(known: KnownRoster, offered: Roster) -> Learned:
    """Take a roster that a member brought.

    Args:
        known: What this PC knows.
        offered: Read; its signature is its signer's.

    Raises:
        NotTrustedError: It is another pool's, or its signer may not sign.
    """
    held = known.roster
    if offered.content.pool_id != held.content.pool_id:
        raise NotTrustedError("A roster of another pool was brought.")
    if offered.digest == held.digest:
        return Learned(known, is_news=False, unsaid=())
    if offered.content.version > held.content.version + MAX_LEAP:
        raise NotTrustedError(
            f"A roster of version {offered.content.version} was brought, far beyond "
            f"{held.content.version}."
        )
    if not _may_sign(known, offered):
        raise NotTrustedError(
            f"A roster was brought that {offered.content.signer} signed, who is no owner here."
        )
    older, newer = sorted((held, offered), key=lambda roster: roster.order)
    removed = known.removed | offered.removed
    proofs = _proofs(removed - newer.removed, (older, *known.proofs))
    after = KnownRoster(newer, removed, proofs)
    is_news = newer is offered or removed != known.removed
    return Learned(after, is_news, _unsaid(newer, older, removed))


def _proofs(unsaid: frozenset[NodeId], rosters: Iterable[Roster]) -> tuple[Roster, ...]:
    """Return as few of these as say that those were removed."""
    kept = []
    for roster in sorted(rosters, key=lambda one: one.order, reverse=True):
        if roster.removed & unsaid:
            kept.append(roster)
            unsaid -= roster.removed
    return tuple(kept[:MAX_PROOFS])


def _rank(entry: MemberEntry) -> tuple[bool, int, bytes]:
    """Return what tells which of two entries of the same PC counts."""
    # An owner never becomes a plain member again. The secret is the roster's, not the entry's.
    plain = msgspec.structs.replace(entry, wrapped_secret=b"")
    return (entry.role == "owner", entry.version, msgspec.msgpack.encode(plain))


def _unsaid(newer: Roster, older: Roster, removed: frozenset[NodeId]) -> tuple[Member, ...]:
    def is_unsaid(member: Member) -> bool:
        said = newer.member(member.node_id)
        return said is None or _rank(member.entry) > _rank(said.entry)

    return tuple(m for m in older.members if m.node_id not in removed and is_unsaid(m))


def _may_sign(known: KnownRoster, offered: Roster) -> bool:
    """Return whether a roster's signer is an owner, by what this PC knows.

    What a removed owner signs counts for nothing, here and in the chain of appointments, whenever
    it says it did: there is no telling when a signature was made.
    """
    trusted: dict[NodeId, EllipticCurvePublicKey] = {
        member.node_id: member.certificate.public_key for member in known.members if member.is_owner
    }
    candidates = [o for o in offered.owners if o.node_id not in known.removed | trusted.keys()]
    while True:
        found = {
            owner.node_id: owner.public_key
            for owner in candidates
            if (by := trusted.get(NodeId(owner.entry.by))) is not None
            and is_appointed(owner, offered.content.pool_id, by)
        }
        if not found:
            break
        trusted |= found
        candidates = [owner for owner in candidates if owner.node_id not in trusted]
    return offered.content.signer in trusted


# ---- on disk -------------------------------------------------------------------------------------


class _Stored(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    roster: bytes
    removed: tuple[str, ...]
    proofs: tuple[bytes, ...] = ()


def encode_known(known: KnownRoster) -> bytes:
    """Return what is known as bytes, for this PC's own disk."""
    *proofs, roster = known.all_signed
    return msgspec.msgpack.encode(_Stored(roster, tuple(sorted(known.removed)), tuple(proofs)))


def decode_known(data: bytes) -> KnownRoster:
    """Read what this PC wrote.

    Args:
        data: As ``encode_known`` made it.

    Raises:
        RemoteProtocolError: It is damaged.
    """
    try:
        stored = msgspec.msgpack.decode(data, type=_Stored)
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError) as exc:
        raise RemoteProtocolError("What this PC knew of its pool is damaged.") from exc
    roster = decode_roster(stored.roster)
    proofs = tuple(map(decode_roster, stored.proofs))
    return KnownRoster(roster, roster.removed | _ids(stored.removed), proofs)


def _ids(texts: Iterable[str]) -> frozenset[NodeId]:
    return frozenset(map(NodeId, texts))

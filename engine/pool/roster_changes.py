"""What an owner does to a pool: found it, add, rename, appoint, remove, and say all that is known.

Each gives a new roster with a higher version, signed by the owner. Whoever is added gets the
pool's secret wrapped; where somebody is removed a new secret is drawn, and wrapped for the rest.
Pure: random numbers are an argument (but for those in signatures, which are the library's).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from engine.errors import NotTrustedError, UsageError
from engine.pool.announcement import clean_shown_name
from engine.pool.pool_secret import POOL_SECRET_BYTES, WRAPPED_BYTES, wrapped
from engine.pool.roster import (
    MAX_APPOINTMENTS,
    MAX_MEMBERS,
    MAX_REMOVED,
    ROSTER_FORMAT,
    MemberEntry,
    Removal,
    RosterContent,
    appoint,
    sign_roster,
)
from engine.pool.roster_merge import KnownRoster, known_from
from engine.transport.certificates import node_id_of_key, parse_certificate, point_of, public_key_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.domain import NodeId
    from engine.pool.roster import Appointment, Role
    from engine.pool.roster_merge import Learned
    from engine.transport.certificates import Certificate
    from engine.transport.identity import Identity

    Entropy = Callable[[int], bytes]
    Entries = dict[NodeId, MemberEntry]

_NOT_WRAPPED = bytes(WRAPPED_BYTES)
_NEW_POOL = "Found a new pool: run daisy leave on each PC, then daisy invite on one of them."


def found_pool(identity: Identity, name: str, pool_id: str, entropy: Entropy) -> KnownRoster:
    """Return a pool of one, of which this PC is the owner.

    Args:
        identity: This PC's.
        name: What its user calls it.
        pool_id: Drawn at random.
        entropy: Gives as many random bytes as it is asked for.
    """
    entries = {identity.node_id: _entry(identity.certificate, name, "owner", 1)}
    appointments = [appoint(_point(identity.certificate), pool_id, identity)]
    secret = entropy(POOL_SECRET_BYTES)
    ready = {
        node_id: _wrapped_again(entry, pool_id, secret, entropy)
        for node_id, entry in entries.items()
    }
    content = _content(pool_id, 1, identity, ready, (), appointments)
    return known_from(sign_roster(content, identity))


def add_member(
    known: KnownRoster,
    identity: Identity,
    newcomer: Certificate,
    name: str,
    role: Role,
    entropy: Entropy,
) -> KnownRoster:
    """Return the pool with one more PC; as it was where the PC is a member already.

    Args:
        known: The pool.
        identity: Of an owner.
        newcomer: Who has proved to have the key of it.
        name: What it calls itself.
        role: What it may do.
        entropy: Gives as many random bytes as it is asked for.

    Raises:
        NotTrustedError: This PC is no owner, or the newcomer was removed before.
        UsageError: The pool is full.
    """
    change = _Change(known, identity)
    node_id = newcomer.node_id
    if node_id in known.removed:
        raise NotTrustedError(
            f"{node_id} was removed from this pool, and its key with it.",
            "Run daisy join there again: it gets a new key.",
        )
    if known.member(node_id) is not None:
        return known
    if len(change.entries) >= MAX_MEMBERS:
        raise UsageError(f"A pool has {MAX_MEMBERS} PCs at most.", "Remove one first.")
    change.entries[node_id] = _entry(newcomer, name, role, change.version)
    if role == "owner":
        change.appoint(newcomer)
    return change.signed(entropy)


def rename_member(
    known: KnownRoster, identity: Identity, node_id: NodeId, name: str, entropy: Entropy
) -> KnownRoster:
    """Return the pool with another name for one PC.

    Args:
        known: The pool.
        identity: Of an owner.
        node_id: Of the PC.
        name: Cleaned before it is written down.
        entropy: Gives as many random bytes as it is asked for.

    Raises:
        NotTrustedError: This PC is no owner.
        UsageError: There is no such PC.
    """
    change = _Change(known, identity)
    entry = change.entry_of(node_id)
    change.entries[node_id] = msgspec.structs.replace(
        entry, name=clean_shown_name(name, node_id), version=change.version
    )
    return change.signed(entropy)


def appoint_owner(
    known: KnownRoster, identity: Identity, node_id: NodeId, entropy: Entropy
) -> KnownRoster:
    """Return the pool with one more owner; for good, or until it is removed.

    Args:
        known: The pool.
        identity: Of an owner.
        node_id: Of a member.
        entropy: Gives as many random bytes as it is asked for.

    Raises:
        NotTrustedError: This PC is no owner.
        UsageError: There is no such PC, or there were too many owners.
    """
    change = _Change(known, identity)
    entry = change.entry_of(node_id)
    if entry.role == "owner":
        return known
    change.entries[node_id] = msgspec.structs.replace(entry, role="owner", version=change.version)
    change.appoint(parse_certificate(entry.certificate))
    return change.signed(entropy)


def remove_member(
    known: KnownRoster, identity: Identity, node_id: NodeId, entropy: Entropy
) -> KnownRoster:
    """Return the pool without one PC, and with a secret that it does not know.

    Args:
        known: The pool.
        identity: Of an owner; it can't remove itself, because nobody could sign it.
        node_id: Of the PC.
        entropy: Gives as many random bytes as it is asked for.

    Raises:
        NotTrustedError: This PC is no owner.
        UsageError: There is no such PC, it is this one, or too many were removed before.
    """
    change = _Change(known, identity)
    if node_id == identity.node_id:
        raise UsageError("This PC can't remove itself.", "Run daisy remove on another owner's PC.")
    change.entry_of(node_id)
    if len(change.removed) >= MAX_REMOVED:
        raise UsageError(f"{MAX_REMOVED} PCs were removed from this pool.", _NEW_POOL)
    change.remove(node_id)
    return change.signed(entropy)


def sign_all_known(learned: Learned, identity: Identity, entropy: Entropy) -> KnownRoster:
    """Return a roster that says everything this PC knows, so that nothing of two is lost.

    Args:
        learned: What came of the last one that was brought.
        identity: Of an owner.
        entropy: Gives as many random bytes as it is asked for.

    Raises:
        NotTrustedError: This PC is no owner.
        UsageError: All of it is more than a roster holds.
    """
    change = _Change(learned.known, identity)
    for member in learned.unsaid:
        entry = msgspec.structs.replace(member.entry, wrapped_secret=_NOT_WRAPPED)
        change.entries[member.node_id] = entry
        if member.is_owner:
            change.appoint(member.certificate)
    if len(change.entries) > MAX_MEMBERS:
        raise UsageError(f"A pool has {MAX_MEMBERS} PCs at most.", "Remove one first.")
    return change.signed(entropy)


class _Change:
    """A roster that is being made out of another one."""

    def __init__(self, known: KnownRoster, identity: Identity) -> None:
        own = known.member(identity.node_id)
        if own is None or not own.is_owner:
            owners = " or ".join(m.name for m in known.members if m.is_owner)
            raise NotTrustedError(
                "This PC is no owner of the pool.", f"Do it on a PC that is: {owners or 'none is'}."
            )
        self._known = known
        self._identity = identity
        self._pool_id = known.roster.content.pool_id
        self.version = known.roster.content.version + 1
        self.entries: Entries = {m.node_id: m.entry for m in known.members}
        self.removed = {r.node_id: r for r in known.roster.content.removed}
        for node_id in known.removed:
            self.remove(node_id)
        self._appointments = {o.node_id: o.entry for o in known.roster.owners}

    def entry_of(self, node_id: NodeId) -> MemberEntry:
        if node_id not in self.entries:
            raise UsageError(f"There is no PC {node_id} in this pool.", "daisy pcs lists them.")
        return self.entries[node_id]

    def remove(self, node_id: NodeId) -> None:
        self.entries.pop(node_id, None)
        self.removed.setdefault(node_id, Removal(node_id=node_id, version=self.version))

    def appoint(self, certificate: Certificate) -> None:
        if certificate.node_id in self._appointments:
            return
        if len(self._appointments) >= MAX_APPOINTMENTS:
            raise UsageError(f"This pool had {MAX_APPOINTMENTS} owners.", _NEW_POOL)
        made = appoint(_point(certificate), self._pool_id, self._identity)
        self._appointments[certificate.node_id] = made

    def signed(self, entropy: Entropy) -> KnownRoster:
        before = self._known.roster
        # Whoever was removed knows the secret that was.
        is_kept = self.removed.keys() == before.removed
        secret = before.secret_for(self._identity) if is_kept else entropy(POOL_SECRET_BYTES)
        ready = {
            node_id: entry
            if is_kept and entry.wrapped_secret != _NOT_WRAPPED
            else _wrapped_again(entry, self._pool_id, secret, entropy)
            for node_id, entry in self.entries.items()
        }
        content = _content(
            self._pool_id,
            self.version,
            self._identity,
            ready,
            tuple(self.removed[node_id] for node_id in sorted(self.removed)),
            list(self._appointments.values()),
        )
        roster = sign_roster(content, self._identity)
        return KnownRoster(roster, roster.removed)


def _entry(certificate: Certificate, name: str, role: Role, version: int) -> MemberEntry:
    return MemberEntry(
        certificate=certificate.der,
        name=clean_shown_name(name, certificate.node_id),
        role=role,
        version=version,
        wrapped_secret=_NOT_WRAPPED,
    )


def _wrapped_again(
    entry: MemberEntry, pool_id: str, secret: bytes, entropy: Entropy
) -> MemberEntry:
    key = parse_certificate(entry.certificate).public_key
    return msgspec.structs.replace(entry, wrapped_secret=wrapped(secret, pool_id, key, entropy))


def _point(certificate: Certificate) -> bytes:
    return point_of(certificate.public_key)


def _content(
    pool_id: str,
    version: int,
    identity: Identity,
    entries: Entries,
    removed: tuple[Removal, ...],
    appointments: list[Appointment],
) -> RosterContent:
    return RosterContent(
        format=ROSTER_FORMAT,
        pool_id=pool_id,
        version=version,
        signer=identity.node_id,
        members=tuple(entries[node_id] for node_id in sorted(entries)),
        removed=removed,
        appointments=tuple(
            sorted(appointments, key=lambda a: node_id_of_key(public_key_of(a.point)))
        ),
    )

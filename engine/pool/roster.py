"""The roster: who is in the pool, signed by an owner, the same bytes on every PC; pure.

A roster names every member with its certificate, and everyone who was ever removed. It is never
changed: an owner signs a new one with a higher version. Removal is for good: a PC that comes back
comes with a new key. Owners are appointed by owners, and never become plain members again, so the
appointments, which stay in the roster, prove to a PC that slept through them who may sign.
"""

from __future__ import annotations

import hashlib
import itertools
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias, TypeVar

import msgspec
from cryptography.exceptions import InvalidSignature

from engine.domain import NodeId
from engine.errors import NotTrustedError, RemoteProtocolError
from engine.messages.limits import MAX_COUNTER, MAX_ROSTER_BYTES
from engine.pool.announcement import MAX_NAME_BYTES, clean_shown_name
from engine.pool.pool_secret import WRAPPED_BYTES, unwrapped
from engine.transport.certificates import (
    MAX_CERTIFICATE_BYTES,
    NODE_ID_LENGTH,
    POINT_BYTES,
    SIGNATURE,
    Certificate,
    node_id_of_key,
    parse_certificate,
    public_key_of,
)

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

    from engine.messages.codec import Received
    from engine.transport.identity import Identity

ROSTER_FORMAT = 1
MAX_MEMBERS = 64
MAX_REMOVED = 512  # in the life of a pool; after that, a new pool
MAX_APPOINTMENTS = 128
MAX_SIGNATURE_BYTES = 80  # ECDSA in DER has 72 at most

_SIGNED = b"daisy roster 1\0"
_APPOINTED = b"daisy owner 1\0"

Role = Literal["owner", "member"]
Version: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=MAX_COUNTER)]
PoolId: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-z]{8,32}\Z")]
NodeIdText: TypeAlias = Annotated[str, msgspec.Meta(pattern=rf"\A[a-z2-7]{{{NODE_ID_LENGTH}}}\Z")]
Signature: TypeAlias = Annotated[bytes, msgspec.Meta(max_length=MAX_SIGNATURE_BYTES)]


class _Plain(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Plain data with one way to write it."""


P = TypeVar("P", bound=_Plain)


class MemberEntry(_Plain, frozen=True):
    """A member, as it is written down; its id follows from its certificate."""

    certificate: Annotated[bytes, msgspec.Meta(max_length=MAX_CERTIFICATE_BYTES)]
    name: Annotated[str, msgspec.Meta(max_length=MAX_NAME_BYTES)]
    role: Role
    version: Version  # of the roster in which this entry was last changed
    wrapped_secret: Annotated[
        bytes, msgspec.Meta(min_length=WRAPPED_BYTES, max_length=WRAPPED_BYTES)
    ]


class Removal(_Plain, frozen=True):
    """Somebody who was removed, for good."""

    node_id: NodeIdText
    version: Version  # of the roster in which it was removed


class Appointment(_Plain, frozen=True):
    """An owner's word that somebody is an owner; stays when either of them is removed."""

    point: Annotated[bytes, msgspec.Meta(min_length=POINT_BYTES, max_length=POINT_BYTES)]
    by: NodeIdText
    signature: Signature


class RosterContent(_Plain, frozen=True):
    """What is signed. Members, removals and appointments are in the order of their ids."""

    format: int
    pool_id: PoolId
    version: Version
    signer: NodeIdText
    members: Annotated[tuple[MemberEntry, ...], msgspec.Meta(max_length=MAX_MEMBERS)]
    removed: Annotated[tuple[Removal, ...], msgspec.Meta(max_length=MAX_REMOVED)]
    appointments: Annotated[tuple[Appointment, ...], msgspec.Meta(max_length=MAX_APPOINTMENTS)]


class _SignedRoster(_Plain, frozen=True):
    content: bytes
    signature: Signature


@dataclass(frozen=True, slots=True)
class Member:
    """A member that was read.

    Attributes:
        certificate: The one that TLS must show.
        entry: As it is written down.
    """

    certificate: Certificate
    entry: MemberEntry

    @property
    def node_id(self) -> NodeId:
        """Of the certificate's key."""
        return self.certificate.node_id

    @property
    def name(self) -> str:
        """What people call it: as it is written down, less what an owner gone bad put in."""
        return clean_shown_name(self.entry.name, self.node_id)

    @property
    def is_owner(self) -> bool:
        """Whether it may sign rosters."""
        return self.entry.role == "owner"


@dataclass(frozen=True, slots=True)
class Owner:
    """Somebody who was appointed, and may have been removed since.

    Attributes:
        public_key: Of its certificate.
        entry: As it is written down.
    """

    public_key: EllipticCurvePublicKey
    entry: Appointment

    @property
    def node_id(self) -> NodeId:
        """Of the key."""
        return node_id_of_key(self.public_key)


@dataclass(frozen=True, eq=False)
class Roster:
    """A roster whose signature is its signer's, and that does not contradict itself.

    Whether its signer *may* sign is another question: ``roster_merge.learn`` answers it.

    Attributes:
        signed: Its bytes, as they are stored and sent.
        content: What was signed.
        members: In the order of their ids.
        owners: Everyone who was ever appointed, in the order of their ids.
    """

    signed: bytes
    content: RosterContent
    members: tuple[Member, ...]
    owners: tuple[Owner, ...]

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of its bytes."""
        return hashlib.sha256(self.signed).digest()

    @property
    def order(self) -> tuple[int, bytes]:
        """What tells the newer of two rosters."""
        return (self.content.version, self.digest)

    @cached_property
    def removed(self) -> frozenset[NodeId]:
        """Who was removed, by this roster and those before it."""
        return frozenset(NodeId(removal.node_id) for removal in self.content.removed)

    def member(self, node_id: NodeId) -> Member | None:
        """Return a member; None for somebody else."""
        return next((member for member in self.members if member.node_id == node_id), None)

    def secret_for(self, identity: Identity) -> bytes:
        """Return the pool's secret.

        Args:
            identity: This PC's.

        Raises:
            NotTrustedError: This PC is no member.
            RemoteProtocolError: What is wrapped for it can't be opened: an owner made a mistake.
        """
        own = self.member(identity.node_id)
        if own is None or own.certificate != identity.certificate:
            raise NotTrustedError("This PC is no member of the pool.")
        return unwrapped(own.entry.wrapped_secret, self.content.pool_id, identity.key)


def decode_roster(data: Received) -> Roster:
    """Read a roster that may come from anywhere.

    Args:
        data: As ``Roster.signed``.

    Raises:
        RemoteProtocolError: It is none, contradicts itself, or was not signed by its signer.
    """
    if len(data) > MAX_ROSTER_BYTES:
        raise RemoteProtocolError(
            f"A roster has {len(data)} bytes; {MAX_ROSTER_BYTES} is the most."
        )
    raw = bytes(data)
    signed = _read(raw, _SignedRoster)
    content = _read(signed.content, RosterContent)
    if content.format != ROSTER_FORMAT:
        raise RemoteProtocolError(
            f"A roster has format {content.format}; this version reads {ROSTER_FORMAT}."
        )
    members = tuple(Member(parse_certificate(e.certificate), e) for e in content.members)
    owners = tuple(Owner(_key(a.point), a) for a in content.appointments)
    roster = Roster(raw, content, members, owners)
    _check_order(roster)
    _check_people(roster)
    signer = roster.member(NodeId(content.signer))
    if signer is None or not signer.is_owner:
        raise RemoteProtocolError("A roster was signed by somebody who is no owner in it.")
    if not _is_signed(signed.signature, _SIGNED + signed.content, signer.certificate.public_key):
        raise RemoteProtocolError("A roster's signature is not its signer's.")
    return roster


def sign_roster(content: RosterContent, identity: Identity) -> Roster:
    """Sign a roster; it is read once on the way, as everybody else will.

    Args:
        content: All of it.
        identity: Of the owner who signs.

    Raises:
        RemoteProtocolError: It breaks a rule that every reader checks.
    """
    data = msgspec.msgpack.encode(content)
    signature = identity.sign(_SIGNED + data)
    return decode_roster(msgspec.msgpack.encode(_SignedRoster(content=data, signature=signature)))


def appoint(point: bytes, pool_id: str, identity: Identity) -> Appointment:
    """Return an owner's word that somebody is an owner.

    Args:
        point: Of the key of whom is appointed.
        pool_id: Of the pool.
        identity: Of the owner who appoints.
    """
    said = _APPOINTED + pool_id.encode() + b"\0" + point
    return Appointment(point=point, by=identity.node_id, signature=identity.sign(said))


def is_appointed(owner: Owner, pool_id: str, by: EllipticCurvePublicKey) -> bool:
    """Return whether an appointment was signed by a key.

    Args:
        owner: Who was appointed.
        pool_id: Of the pool.
        by: Of the owner who is said to have done it.
    """
    said = _APPOINTED + pool_id.encode() + b"\0" + owner.entry.point
    return _is_signed(owner.entry.signature, said, by)


def _read(data: bytes, kind: type[P]) -> P:
    try:
        read = msgspec.msgpack.decode(data, type=kind)
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError) as exc:
        raise RemoteProtocolError("A roster can't be read.") from exc
    if msgspec.msgpack.encode(read) != data:
        raise RemoteProtocolError("A roster is written in another way than the one there is.")
    return read


def _key(point: bytes) -> EllipticCurvePublicKey:
    try:
        return public_key_of(point)
    except ValueError as exc:
        raise RemoteProtocolError("A roster appoints somebody without a key.") from exc


def _is_signed(signature: bytes, said: bytes, key: EllipticCurvePublicKey) -> bool:
    try:
        key.verify(signature, said, SIGNATURE)
    except InvalidSignature:
        return False
    return True


def _check_order(roster: Roster) -> None:
    """Check that there is one way to write the same roster.

    Raises:
        RemoteProtocolError: A list is out of order, or names somebody twice.
    """
    for ids in (
        [member.node_id for member in roster.members],
        [removal.node_id for removal in roster.content.removed],
        [owner.node_id for owner in roster.owners],
    ):
        if any(a >= b for a, b in itertools.pairwise(ids)):
            raise RemoteProtocolError("A roster is out of order, or names somebody twice.")


def _check_people(roster: Roster) -> None:
    """Check that what a roster says of each PC fits together.

    Raises:
        RemoteProtocolError: It doesn't.
    """
    appointed = {owner.node_id for owner in roster.owners}
    for member in roster.members:
        if member.node_id in roster.removed:
            raise RemoteProtocolError(f"A roster has {member.node_id} as member and as removed.")
        if member.is_owner != (member.node_id in appointed):
            raise RemoteProtocolError(f"A roster has an owner {member.node_id} nobody appointed.")
        if len(member.entry.name.encode()) > MAX_NAME_BYTES:
            raise RemoteProtocolError(f"A roster gives {member.node_id} too long a name.")
        if member.entry.version > roster.content.version:
            raise RemoteProtocolError(f"A roster has an entry of a later one: {member.node_id}.")
    if any(removal.version > roster.content.version for removal in roster.content.removed):
        raise RemoteProtocolError("A roster has a removal of a later one.")

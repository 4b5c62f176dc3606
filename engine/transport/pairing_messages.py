"""What two PCs say to each other while they pair: four messages, or a refusal; pure.

They have a codec of their own: who is not paired yet reaches none of the pool's messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias, TypeVar

import msgspec

from engine.errors import RemoteProtocolError
from engine.messages.limits import MAX_ROSTER_BYTES
from engine.transport.certificates import MAX_CERTIFICATE_BYTES
from engine.transport.code_exchange import SHARE_BYTES

if TYPE_CHECKING:
    from engine.messages.codec import Received

PAIRING_VERSION = 1
CONFIRMATION_BYTES = 32
MAX_NAME_BYTES = 256
MAX_FROM_JOINER_BYTES = 1 << 10  # who has not proved to know the code gets no more room
MAX_FROM_HOST_BYTES = MAX_ROSTER_BYTES + (1 << 10)

Refusal = Literal["closed", "wrong", "late", "version", "stopped"]
Id: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-z]{8,32}\Z")]
Share: TypeAlias = Annotated[bytes, msgspec.Meta(min_length=SHARE_BYTES, max_length=SHARE_BYTES)]
Confirmation: TypeAlias = Annotated[
    bytes, msgspec.Meta(min_length=CONFIRMATION_BYTES, max_length=CONFIRMATION_BYTES)
]
Small: TypeAlias = Annotated[bytes, msgspec.Meta(max_length=MAX_CERTIFICATE_BYTES)]
Sealed: TypeAlias = Annotated[bytes, msgspec.Meta(min_length=16, max_length=MAX_FROM_HOST_BYTES)]
M = TypeVar("M", bound="PairingMessage")


class PairingMessage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Plain data, no behaviour."""


class JoinerGreets(PairingMessage, frozen=True, tag="greets"):
    """First: who would like to join, and its half of the exchange."""

    version: int
    invitation: Id | None  # of a link; None for a code that was typed
    share: Share
    certificate: Small


class HostAnswers(PairingMessage, frozen=True, tag="answers"):
    """Second: which pool this is, and the other half."""

    pool_id: Id
    share: Share


class JoinerConfirms(PairingMessage, frozen=True, tag="confirms"):
    """Third: the joiner knows the code, has the key of its certificate, and is called so."""

    confirmation: Confirmation
    proof: Small  # its certificate's key, over the transcript
    sealed: Small  # ``Introduction``


class HostWelcomes(PairingMessage, frozen=True, tag="welcomes"):
    """Fourth: the host knows the code as well; what a member has to know."""

    confirmation: Confirmation
    sealed: Sealed  # ``Membership``


class Refused(PairingMessage, frozen=True, tag="refused"):
    """Instead of any of the host's: no, and why."""

    why: Refusal


class Introduction(PairingMessage, frozen=True):
    """What the joiner says under the new key."""

    name: Annotated[str, msgspec.Meta(max_length=MAX_NAME_BYTES)]


class Membership(PairingMessage, frozen=True):
    """What the host says under the new key; the roster holds the pool's secret, wrapped."""

    pool_id: Id
    roster: Annotated[bytes, msgspec.Meta(max_length=MAX_ROSTER_BYTES)]


_ENCODER = msgspec.msgpack.Encoder()


def encode_pairing(message: PairingMessage) -> bytes:
    """Return the bytes of a message, always the same for the same content."""
    return _ENCODER.encode(message)


def decode_pairing(data: Received, kind: type[M], max_bytes: int) -> M:
    """Read the message that is due.

    Args:
        data: msgpack.
        kind: Which one is due.
        max_bytes: More is not looked at.

    Raises:
        RemoteProtocolError: It is another one, or none.
    """
    if len(data) > max_bytes:
        raise RemoteProtocolError(
            f"A message of pairing has {len(data)} bytes; {max_bytes} is the most here."
        )
    try:
        message = msgspec.msgpack.decode(data, type=kind)
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError) as exc:
        raise RemoteProtocolError(
            f"The other side sent something else where {kind.__name__} was due."
        ) from exc
    if encode_pairing(message) != bytes(data):
        # A field twice, or no tag: there is one way to write a message.
        raise RemoteProtocolError(f"The other side wrote {kind.__name__} in another way.")
    return message


def refusal_in(data: Received) -> Refusal | None:
    """Return why the host refuses, if that is what a message says; None for anything else."""
    try:
        return decode_pairing(data, Refused, MAX_FROM_JOINER_BYTES).why
    except RemoteProtocolError:
        return None

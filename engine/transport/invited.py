"""What a PC that joins was given by the one that lets it in: a code, or a link; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from engine.transport.pairing_door import password_of_code, password_of_link

if TYPE_CHECKING:
    from engine.transport.invite_link import InviteLink


class Invited(NamedTuple):
    """What a joiner was given.

    Attributes:
        password: What both sides of the exchange must know.
        link_id: Of a link; None for a code.
        certificate_sha256: Of the host, where a link tells it; None for a code.
    """

    password: bytes
    link_id: str | None = None
    certificate_sha256: bytes | None = None


def invited_by_code(code: str) -> Invited:
    """Return what a code gives to whoever typed it.

    Args:
        code: As ``checked_code`` gives it.
    """
    return Invited(password_of_code(code))


def invited_by_link(link: InviteLink) -> Invited:
    """Return what a link gives."""
    return Invited(password_of_link(link.secret), link.link_id, link.certificate_sha256)

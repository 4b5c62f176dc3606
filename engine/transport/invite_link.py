"""An invite link: all that a PC without a screen needs to join, in one line of text; pure.

    daisy://join?pool=P&at=HOST:PORT&at=…&cert=SHA256&link=ID&secret=S&until=SECONDS

Whoever has the line can join once, so it is a secret. The certificate's hash in it tells the
right PC from any other one at the first byte; the secret of 128 bits makes guessing pointless.
"""

from __future__ import annotations

import base64
import ipaddress
import re
from dataclasses import dataclass, field
from urllib.parse import parse_qsl

from engine.errors import InviteLinkError
from engine.messages.limits import MAX_LINK_LENGTH
from engine.transport.pairing_door import LINK_SECRET_BYTES

MAX_ADDRESSES = 8

_BEGIN = "daisy://join?"
_SHA256_BYTES = 32
_KEYS = ("pool", "at", "cert", "link", "secret", "until")
_ID = re.compile(r"[0-9a-z]{8,32}")
_SECONDS = re.compile(r"[1-9][0-9]{0,10}")
_PORT = re.compile(r"[1-9][0-9]{0,4}")
_HOST_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
_CHARACTERS = re.compile(r"[A-Za-z0-9:/?&=.\[\]_-]+")
_ADVICE = "Copy the whole line that daisy invite --link printed."


@dataclass(frozen=True, slots=True)
class InviteLink:
    """What an invite link says.

    Attributes:
        pool_id: Of the pool to join.
        addresses: Where the PC that made it may be reached, ``host:port``; 1 to 8.
        certificate_sha256: Of that PC, 32 bytes.
        link_id: Names the invitation there.
        secret: 16 bytes.
        until_s: Seconds since 1970 by that PC's clock. It decides when the link ends; a PC that
            joins has a clock of its own and only tells people about it.
    """

    pool_id: str
    addresses: tuple[str, ...]
    certificate_sha256: bytes
    link_id: str
    secret: bytes = field(repr=False)
    until_s: int

    def __str__(self) -> str:
        """Return the line that is handed over; a secret."""
        fields = [
            ("pool", self.pool_id),
            *(("at", address) for address in self.addresses),
            ("cert", _text(self.certificate_sha256)),
            ("link", self.link_id),
            ("secret", _text(self.secret)),
            ("until", str(self.until_s)),
        ]
        return _BEGIN + "&".join(f"{key}={value}" for key, value in fields)


def parse_invite_link(text: str) -> InviteLink:
    """Read a link that a person pasted.

    Args:
        text: The line; blanks around it do not count.

    Raises:
        InviteLinkError: It is no invite link, or only a part of one.
    """
    line = text[: MAX_LINK_LENGTH + 64].strip()
    if len(line) > MAX_LINK_LENGTH or not line.startswith(_BEGIN):
        raise InviteLinkError(f"An invite link begins with {_BEGIN} and is one line.", _ADVICE)
    if _CHARACTERS.fullmatch(line) is None:
        raise InviteLinkError("The invite link has a character that no link has.", _ADVICE)
    values = _values(line.removeprefix(_BEGIN))
    for key in _KEYS:
        most = MAX_ADDRESSES if key == "at" else 1
        if not 1 <= len(values[key]) <= most:
            raise InviteLinkError(f"The invite link says {len(values[key])} times {key}.", _ADVICE)
    return InviteLink(
        pool_id=_matching("pool", values, _ID),
        addresses=tuple(map(_address, values["at"])),
        certificate_sha256=_bytes("cert", values, _SHA256_BYTES),
        link_id=_matching("link", values, _ID),
        secret=_bytes("secret", values, LINK_SECRET_BYTES),
        until_s=int(_matching("until", values, _SECONDS)),
    )


def _values(query: str) -> dict[str, list[str]]:
    values: dict[str, list[str]] = {key: [] for key in _KEYS}
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True, max_num_fields=16)
    except ValueError as exc:
        raise InviteLinkError("The invite link is damaged.", _ADVICE) from exc
    for key, value in pairs:
        if key not in values:
            raise InviteLinkError(
                f"The invite link has a part {key[:16]} of another version.", _ADVICE
            )
        values[key].append(value)
    return values


def _matching(key: str, values: dict[str, list[str]], form: re.Pattern[str]) -> str:
    (value,) = values[key]
    if form.fullmatch(value) is None:
        raise InviteLinkError(f"The invite link has no {key} that can be read.", _ADVICE)
    return value


def _bytes(key: str, values: dict[str, list[str]], num_bytes: int) -> bytes:
    (value,) = values[key]
    try:
        content = base64.b32decode(value.upper() + "=" * (-len(value) % 8))
    except ValueError:
        content = b""
    if len(content) != num_bytes or _text(content) != value:
        raise InviteLinkError(f"The invite link has no {key} that can be read.", _ADVICE)
    return content


def _address(text: str) -> str:
    host, _, port = text.rpartition(":")
    is_port = _PORT.fullmatch(port) is not None and int(port) <= 65535
    if not is_port or not _is_host(host):
        raise InviteLinkError("The invite link has an address that is none.", _ADVICE)
    return text


def _is_host(host: str) -> bool:
    if host.startswith("[") and host.endswith("]"):
        try:
            return "%" not in host and ipaddress.IPv6Address(host[1:-1]) is not None
        except ValueError:
            return False
    return _HOST_NAME.fullmatch(host) is not None


def _text(content: bytes) -> str:
    return base64.b32encode(content).decode().rstrip("=").lower()

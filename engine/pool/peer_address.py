"""Where a peer may be reached: what a person types, and what was seen before."""

from __future__ import annotations

import re
from dataclasses import dataclass

from engine.errors import UsageError

MAX_HOST_LENGTH = 253  # of a name in DNS

_HOST = re.compile(r"[0-9A-Za-z_](?:[0-9A-Za-z._-]*[0-9A-Za-z_.])?")
_IPV6 = re.compile(r"[0-9A-Fa-f:.]+(?:%[0-9A-Za-z._-]+)?")
_PORT = re.compile(r"[0-9]{1,5}")


@dataclass(frozen=True, order=True)
class PeerAddress:
    """A host and a TCP port.

    Attributes:
        host: A name, an IPv4 address, or an IPv6 address without brackets.
    """

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_peer_address(text: str) -> PeerAddress:
    """Read ``HOST:PORT`` as a person types it; an IPv6 address stands in brackets.

    Raises:
        UsageError: It is not of that form.
    """
    host, _, port = text.strip().rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    name = host[1:-1] if is_bracketed else host
    pattern = _IPV6 if is_bracketed else _HOST
    is_place = len(name) <= MAX_HOST_LENGTH and pattern.fullmatch(name)
    if not is_place or not _PORT.fullmatch(port) or not 1 <= int(port) <= 65535:
        raise UsageError(
            f"{text[:80]} is no address of a PC.", "Write HOST:PORT, such as 192.168.1.20:7420."
        )
    return PeerAddress(name, int(port))

"""How members know each other in announcements that say nothing to anybody else; pure.

An announcement is read by everyone on the network. It carries a number drawn at the start of the
engine and a token: an HMAC by the pool's secret over that number, the port, and the id of the
node. Only who has the secret can tell whose token it is, and a node that starts again can't be
told from another one. A token proves nothing: it is a hint whom to dial, and TLS decides.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engine.domain import NodeId

TOKEN_BYTES = 8  # one in 2^64 / 64 for a stranger to be taken for a member, and then TLS refuses it
TOKEN_LENGTH = 13  # base32 letters

_CONTEXT = b"daisy here 1\0"


def recognition_token(secret: bytes, node_id: NodeId, run_id: str, port: int) -> str:
    """Return what a node announces itself by.

    Args:
        secret: Of its pool.
        node_id: Its own; not to be announced.
        run_id: Drawn at random at its start, and announced.
        port: Where it listens, and announced.

    Returns:
        13 letters and digits.
    """
    said = f"{run_id}\0{port}\0{node_id}".encode()
    token = hmac.new(secret, _CONTEXT + said, hashlib.sha256).digest()[:TOKEN_BYTES]
    return base64.b32encode(token).decode().rstrip("=").lower()


def recognised(
    token: str, run_id: str, port: int, secrets: Iterable[bytes], members: Iterable[NodeId]
) -> NodeId | None:
    """Return which member announces itself; None for a stranger.

    Args:
        token: As announced.
        run_id: As announced.
        port: As announced.
        secrets: The pool's secret, and those before it: a PC that was off while the secret
            changed still has an older one, and must be found to be told.
        members: Of the pool.
    """
    known = list(members)
    said = token.encode()
    for secret in secrets:
        for node_id in known:
            if hmac.compare_digest(recognition_token(secret, node_id, run_id, port).encode(), said):
                return node_id
    return None

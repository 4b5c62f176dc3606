"""The pool's secret, and how it reaches each member: wrapped for its key alone; pure.

A wrapped secret is an ephemeral public key of P-256 and the secret under a key that only it and
the member's own key give (ECDH, HKDF-SHA256, ChaCha20-Poly1305). It lies in the roster, so whoever
is in the newest roster has the newest secret, and whoever was removed has not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from engine.errors import RemoteProtocolError
from engine.transport.certificates import (
    CURVE,
    POINT_BYTES,
    node_id_of_key,
    point_of,
    public_key_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

POOL_SECRET_BYTES = 32
WRAPPED_BYTES = POINT_BYTES + POOL_SECRET_BYTES + 16

_CONTEXT = b"daisy pool secret 1\0"
_NONCE = bytes(12)  # each ephemeral key wraps once
# Of P-256 (FIPS 186-5); 16 bytes more than it has make the remainder even to 2^-128.
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_SCALAR_BYTES = 48


def wrapped(
    secret: bytes, pool_id: str, member: ec.EllipticCurvePublicKey, entropy: Callable[[int], bytes]
) -> bytes:
    """Return a secret that one member can read.

    Args:
        secret: 32 bytes.
        pool_id: Of the pool; a wrapped secret means nothing in another one.
        member: The key of its certificate.
        entropy: Gives as many random bytes as it is asked for.

    Returns:
        113 bytes.
    """
    number = int.from_bytes(entropy(_SCALAR_BYTES), "big") % (_ORDER - 1) + 1
    ephemeral = ec.derive_private_key(number, CURVE)
    point = point_of(ephemeral.public_key())
    key = _key(ephemeral.exchange(ec.ECDH(), member), pool_id, point, member)
    return point + ChaCha20Poly1305(key).encrypt(_NONCE, secret, None)


def unwrapped(content: bytes, pool_id: str, own: ec.EllipticCurvePrivateKey) -> bytes:
    """Return the secret that was wrapped for this PC.

    Args:
        content: As ``wrapped`` made it.
        pool_id: Of the pool.
        own: The key of this PC's certificate.

    Returns:
        32 bytes.

    Raises:
        RemoteProtocolError: It was wrapped for another PC or pool, or is damaged.
    """
    point = content[:POINT_BYTES]
    try:
        shared = own.exchange(ec.ECDH(), public_key_of(point))
        key = _key(shared, pool_id, point, own.public_key())
        secret = ChaCha20Poly1305(key).decrypt(_NONCE, content[POINT_BYTES:], None)
    except (ValueError, InvalidTag) as exc:
        raise RemoteProtocolError("The pool's secret is not wrapped for this PC.") from exc
    if len(secret) != POOL_SECRET_BYTES:
        raise RemoteProtocolError(f"A pool's secret has {len(secret)} bytes.")
    return secret


def _key(shared: bytes, pool_id: str, point: bytes, member: ec.EllipticCurvePublicKey) -> bytes:
    info = _CONTEXT + pool_id.encode() + b"\0" + node_id_of_key(member).encode() + b"\0" + point
    return HKDF(hashes.SHA256(), 32, salt=None, info=info).derive(shared)

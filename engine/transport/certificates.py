"""A PC's certificate: made once, its own authority, and the source of the PC's id.

Nobody vouches for a certificate; a pool's roster holds it byte for byte, and that is all the trust
there is. Apart from its signature it is a function of the key: no name, no date, no choice. So
one that comes from elsewhere is not parsed: what it must be is written anew from its 65 bytes of
key and compared. Pure, but for the library's own randomness in a signature.
"""

from __future__ import annotations

import base64
import datetime
import functools
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from engine.domain import NodeId
from engine.errors import RemoteProtocolError

if TYPE_CHECKING:
    from engine.messages.codec import Received

MAX_CERTIFICATE_BYTES = 400  # ours have 360 to 364: the signature is two numbers in DER
NODE_ID_LENGTH = 20  # base32 letters: 100 bits, out of reach for a second key with the same id
POINT_BYTES = 65
CURVE = ec.SECP256R1()
SIGNATURE = ec.ECDSA(hashes.SHA256())

_COMMON_NAME = "Daisy"  # of all alike: a stranger who asks a port learns no name
# Both ends lie beyond the life of any PC, and are not looked at anyway: clocks are wrong.
_NOT_BEFORE = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)
_NOT_AFTER = datetime.datetime(2099, 12, 31, tzinfo=datetime.UTC)
_USAGES = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
_ECDSA_WITH_SHA256 = bytes.fromhex("300a06082a8648ce3d040302")
_FRAME_BYTES = 4  # of the outermost sequence: tag, and a length of two bytes


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate that was read and is one of ours.

    Attributes:
        der: Its bytes; two certificates are the same if these are.
        node_id: Of the PC; 20 letters of the base32 of the SHA-256 of the public key.
        public_key: P-256.
    """

    der: bytes
    node_id: NodeId
    public_key: ec.EllipticCurvePublicKey

    @property
    def sha256(self) -> bytes:
        """SHA-256 of its bytes; what pairing is bound to."""
        return hashlib.sha256(self.der).digest()


def make_certificate(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a certificate for a key, signed by it, as DER.

    Args:
        key: P-256.
    """
    return _made(key).public_bytes(serialization.Encoding.DER)


def parse_certificate(data: Received) -> Certificate:
    """Read a certificate that may come from anywhere.

    Args:
        data: DER.

    Raises:
        RemoteProtocolError: It is none of ours, or not signed by its own key.
    """
    der = bytes(data[: MAX_CERTIFICATE_BYTES + 1])
    if len(der) > MAX_CERTIFICATE_BYTES:
        raise RemoteProtocolError(
            f"A certificate has {len(data)} bytes; {MAX_CERTIFICATE_BYTES} is the most."
        )
    return _parsed(der)


def public_key_of(point: bytes) -> ec.EllipticCurvePublicKey:
    """Return the public key of a point.

    Args:
        point: 65 bytes, uncompressed.

    Raises:
        ValueError: It is no point of the curve, or written otherwise.
    """
    if len(point) != POINT_BYTES:
        raise ValueError(f"a point has {POINT_BYTES} bytes, and this {len(point)}")
    return ec.EllipticCurvePublicKey.from_encoded_point(CURVE, point)


def point_of(key: ec.EllipticCurvePublicKey) -> bytes:
    """Return the 65 bytes of a public key of P-256."""
    return key.public_bytes(
        serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint
    )


def node_id_of_key(key: ec.EllipticCurvePublicKey) -> NodeId:
    """Return the id of the PC that has a key: whoever shows the id has to prove the key.

    Args:
        key: P-256.
    """
    return NodeId(base64.b32encode(_digest(key)).decode().lower()[:NODE_ID_LENGTH])


@functools.lru_cache(maxsize=256)  # the same few members come with every roster and connection
def _parsed(der: bytes) -> Certificate:
    begin = _FRAME_BYTES + _Form.of_every_certificate().point_at
    try:
        key = public_key_of(der[begin : begin + POINT_BYTES])
    except ValueError as exc:
        raise RemoteProtocolError(f"A certificate of {len(der)} bytes is none of Daisy's.") from exc
    unsigned = _Form.of_every_certificate().filled(key)
    signature = der[_FRAME_BYTES + len(unsigned) + len(_ECDSA_WITH_SHA256) + 3 :]
    if _signed(unsigned, signature) != der:
        raise RemoteProtocolError(f"A certificate of {len(der)} bytes is none of Daisy's.")
    try:
        key.verify(signature, unsigned, SIGNATURE)
    except InvalidSignature as exc:
        raise RemoteProtocolError("A certificate is not signed by its own key.") from exc
    return Certificate(der, node_id_of_key(key), key)


@dataclass(frozen=True, slots=True)
class _Form:
    """The part of a certificate that is signed, with three places to be filled in."""

    unsigned: bytes
    serial_at: int
    point_at: int
    key_id_at: int

    @staticmethod
    @functools.cache
    def of_every_certificate() -> _Form:
        key = ec.derive_private_key(1, CURVE)
        unsigned, public = _made(key).tbs_certificate_bytes, key.public_key()
        places = (_serial(public), point_of(public), _key_id(public))
        return _Form(unsigned, *(unsigned.index(place) for place in places))

    def filled(self, key: ec.EllipticCurvePublicKey) -> bytes:
        unsigned = bytearray(self.unsigned)
        for at, content in (
            (self.serial_at, _serial(key)),
            (self.point_at, point_of(key)),
            (self.key_id_at, _key_id(key)),
        ):
            unsigned[at : at + len(content)] = content
        return bytes(unsigned)


def _made(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    public = key.public_key()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _COMMON_NAME)])
    serial = int.from_bytes(_serial(public), "big")
    builder = x509.CertificateBuilder(name, name, public, serial, _NOT_BEFORE, _NOT_AFTER)
    builder = builder.add_extension(x509.BasicConstraints(False, None), critical=True)
    builder = builder.add_extension(_USAGES, critical=False)
    builder = builder.add_extension(x509.SubjectKeyIdentifier(_key_id(public)), critical=False)
    return builder.sign(key, SIGNATURE.algorithm)  # type: ignore[arg-type]  # SHA-256


def _signed(unsigned: bytes, signature: bytes) -> bytes:
    """Return a whole certificate: the signed part, the kind of signature, the signature."""
    bits = b"\x00" + signature
    body = unsigned + _ECDSA_WITH_SHA256 + b"\x03" + len(bits).to_bytes(1, "big") + bits
    return b"\x30\x82" + len(body).to_bytes(2, "big") + body


def _digest(key: ec.EllipticCurvePublicKey) -> bytes:
    spki = key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return hashlib.sha256(spki).digest()


def _key_id(key: ec.EllipticCurvePublicKey) -> bytes:
    return _digest(key)[:20]  # RFC 7093, 2


def _serial(key: ec.EllipticCurvePublicKey) -> bytes:
    number = _digest(key)[20:28]
    return bytes([number[0] & 0x3F | 0x40]) + number[1:]  # positive, and always 8 bytes long

"""The keys of one pairing, all bound to one transcript: confirmations, and what is sealed; pure."""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING, NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from engine.errors import RemoteProtocolError

if TYPE_CHECKING:
    from engine.transport.certificates import Certificate

KEY_BYTES = 32

_CONTEXT = b"daisy pairing 1"
_NONCE = bytes(12)  # each key seals one message


def transcript_of(joiner: Certificate, host: Certificate, *said: bytes) -> bytes:
    """Return the SHA-256 of everything that both sides must have seen alike.

    Args:
        joiner: As it was sent.
        host: As TLS showed it.
        said: The bytes of both halves, as they were sent.
    """
    whole = hashlib.sha256(_CONTEXT)
    for part in (joiner.sha256, host.sha256, *said):
        whole.update(len(part).to_bytes(4, "big") + part)
    return whole.digest()


class OneWay(NamedTuple):
    """What one side uses to prove itself and to seal one message.

    Attributes:
        confirming: Key of an HMAC.
        sealing: Key of ChaCha20-Poly1305.
        transcript: What both hang on.
    """

    confirming: bytes
    sealing: bytes
    transcript: bytes

    def confirmation(self, *said: bytes) -> bytes:
        """Return the proof that this side has the key, over what it says with it."""
        proof = hmac.new(self.confirming, self.transcript, hashlib.sha256)
        for part in said:
            proof.update(len(part).to_bytes(4, "big") + part)
        return proof.digest()

    def confirms(self, confirmation: bytes, *said: bytes) -> bool:
        """Return whether a proof is right; takes the same time for every wrong one."""
        return hmac.compare_digest(self.confirmation(*said), confirmation)

    def seal(self, content: bytes) -> bytes:
        """Return a message that only the other side can read; once for each key."""
        return ChaCha20Poly1305(self.sealing).encrypt(_NONCE, content, self.transcript)

    def opened(self, sealed: bytes) -> bytes:
        """Return what was sealed.

        Raises:
            RemoteProtocolError: It was sealed with another key, or changed since.
        """
        try:
            return ChaCha20Poly1305(self.sealing).decrypt(_NONCE, sealed, self.transcript)
        except InvalidTag as exc:
            raise RemoteProtocolError("What the other side sealed can't be opened.") from exc


class PairingKeys(NamedTuple):
    """Both ways."""

    joiner: OneWay
    host: OneWay


def keys_of(exchanged: bytes, transcript: bytes) -> PairingKeys:
    """Return the keys of one pairing.

    Args:
        exchanged: 32 bytes, what the exchange of the code gave.
        transcript: 32 bytes.
    """
    derived = HKDF(hashes.SHA256(), 4 * KEY_BYTES, salt=transcript, info=_CONTEXT).derive(exchanged)
    a, b, c, d = (derived[at : at + KEY_BYTES] for at in range(0, 4 * KEY_BYTES, KEY_BYTES))
    return PairingKeys(OneWay(a, b, transcript), OneWay(c, d, transcript))

"""SPAKE2: a short code becomes a strong key, if both sides know the code; pure.

The only file that knows the library. Whoever does not know the code learns nothing about it from
what is sent, and gets one guess for each time it takes part. Not constant in time: whoever
answers over a network waits a fixed time first (``pairing.REPLY_AFTER_S``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import spake2  # type: ignore[import-untyped]
from spake2.ed25519_basic import NotOnCurve  # type: ignore[import-untyped]
from spake2.spake2 import SPAKEError  # type: ignore[import-untyped]

from engine.errors import RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable

SHARE_BYTES = 33  # the side's letter, and a point of the curve
KEY_BYTES = 32

_SIDES = {"joiner": spake2.SPAKE2_A, "host": spake2.SPAKE2_B}


class CodeExchange:
    """One side of one exchange.

    Attributes:
        share: To be sent to the other side, 33 bytes.
    """

    def __init__(
        self,
        side: Literal["joiner", "host"],
        password: bytes,
        joiner_id: bytes,
        host_id: bytes,
        entropy: Callable[[int], bytes],
    ) -> None:
        """Begin; takes some milliseconds of arithmetic.

        Args:
            side: Which one this is.
            password: What both must know.
            joiner_id: Who the joiner is, as this side sees it; another view gives another key.
            host_id: The same of the host.
            entropy: Gives as many random bytes as it is asked for.
        """
        self._exchange = _SIDES[side](password, joiner_id, host_id, entropy_f=entropy)
        self.share: bytes = self._exchange.start()

    def key(self, share: bytes) -> bytes:
        """Return the key; may be asked for once.

        Args:
            share: The other side's.

        Returns:
            32 bytes, known to nobody else. The other side has the same ones only if it used the
            same password and saw the same ids.

        Raises:
            RemoteProtocolError: It is no share, or our own sent back.
        """
        if len(share) != SHARE_BYTES:
            raise RemoteProtocolError(f"A share has {SHARE_BYTES} bytes, and this {len(share)}.")
        try:
            key: bytes = self._exchange.finish(share)
        except (SPAKEError, NotOnCurve, ValueError) as exc:
            raise RemoteProtocolError("The other side's share is none that may be used.") from exc
        return key

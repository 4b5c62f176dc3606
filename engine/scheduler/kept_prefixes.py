"""Which ended sequences' caches are kept, and which of them a new prompt begins like.

A sequence is known by the hashes of its whole blocks, each chained to the one before it: two that
have a hash in common have everything up to it in common. Pure.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from engine.domain import SequenceId

_HASH_BYTES = 16  # two prompts of one hash are as likely as a meteorite


def chained_hash(before: bytes, token_ids: NDArray[np.int32]) -> bytes:
    """Return the hash of a block and of everything before it.

    Args:
        before: Of the block before it; empty for the first.
        token_ids: Of the block, int32.
    """
    content = before + token_ids.astype("<i4").tobytes()
    return hashlib.blake2b(content, digest_size=_HASH_BYTES).digest()


class FoundPrefix(NamedTuple):
    """An ended sequence, and how many whole blocks of it a prompt begins with."""

    sequence_id: SequenceId
    num_blocks: int


class KeptPrefixes:
    """Ended sequences whose caches are kept, in order of use."""

    def __init__(self) -> None:
        """Begin with none."""
        self._hashes: dict[SequenceId, tuple[bytes, ...]] = {}  # used longest ago first
        self._having: dict[bytes, set[SequenceId]] = {}

    def __len__(self) -> int:
        return len(self._hashes)

    def __contains__(self, sequence_id: object) -> bool:
        return sequence_id in self._hashes

    def keep(self, sequence_id: SequenceId, hashes: Sequence[bytes]) -> None:
        """Note that a sequence's caches are kept; it counts as used last.

        Args:
            sequence_id: Of one that is not kept.
            hashes: Of its whole blocks, at least one.
        """
        self._hashes[sequence_id] = tuple(hashes)
        for each in hashes:
            self._having.setdefault(each, set()).add(sequence_id)

    def forget(self, sequence_id: SequenceId) -> bool:
        """Keep a sequence no longer; return whether it was kept."""
        hashes = self._hashes.pop(sequence_id, None)
        for each in hashes or ():
            self._having[each].discard(sequence_id)
            if not self._having[each]:
                del self._having[each]
        return hashes is not None

    def use(self, sequence_id: SequenceId) -> None:
        """Note that a kept sequence is used now."""
        self._hashes[sequence_id] = self._hashes.pop(sequence_id)

    def ids(self) -> tuple[SequenceId, ...]:
        """Return the kept sequences, the one used longest ago first."""
        return tuple(self._hashes)

    def longest(
        self, hashes: Sequence[bytes], is_usable: Callable[[SequenceId], bool]
    ) -> FoundPrefix | None:
        """Find what begins with as many of these blocks as any.

        Args:
            hashes: Of the whole blocks of a prompt that may be reused.
            is_usable: Says whether a kept sequence may be used now.

        Returns:
            Of several, the one with the least behind them; None where none begins so.
        """
        # Whoever has a block has all before it: there is one place where having ends.
        num_blocks = bisect_left(hashes, True, key=lambda each: not self._usable(each, is_usable))
        if not num_blocks:
            return None
        usable = self._usable(hashes[num_blocks - 1], is_usable)
        return FoundPrefix(min(usable, key=lambda i: (len(self._hashes[i]), -i)), num_blocks)

    def _usable(
        self, block_hash: bytes, is_usable: Callable[[SequenceId], bool]
    ) -> list[SequenceId]:
        return [i for i in self._having.get(block_hash, ()) if is_usable(i)]

    def covering(self, hashes: Sequence[bytes]) -> SequenceId | None:
        """Return a kept sequence that has all of these blocks, if there is one."""
        return min(self._having.get(hashes[-1], ()), default=None)

    def covered_by(self, hashes: Sequence[bytes]) -> tuple[SequenceId, ...]:
        """Return the kept sequences all of whose blocks are among these."""
        among = set(hashes)
        return tuple(i for i, own in self._hashes.items() if own[-1] in among)

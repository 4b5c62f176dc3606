"""Where a sequence's tokens lie in a cache that can only be appended to.

A rewind leaves the dropped tokens in the cache and masks their slots; the tokens that come next
take new slots behind them. So the cache is longer than the sequence, until it is compacted. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FIRST_CAPACITY = 256


class CacheSlots:
    """The slots of one sequence.

    Attributes:
        num_tokens: Tokens of the sequence that are cached.
        num_slots: Slots the cache has, masked ones too; never fewer than ``num_tokens``.
    """

    def __init__(self) -> None:
        """Begin with an empty cache."""
        self.num_tokens = 0
        self.num_slots = 0
        self._mask = np.zeros(_FIRST_CAPACITY, np.int64)
        self._slot_of = np.empty(_FIRST_CAPACITY, np.int64)  # by position

    def stale_after(self, past_len: int) -> int:
        """Return how many slots would be masked after a rewind by mask to ``past_len``."""
        return self.num_slots - past_len

    def rewind(self, past_len: int) -> None:
        """Mask the slots of every token at ``past_len`` and behind it.

        Args:
            past_len: Tokens that stay, at most ``num_tokens``.
        """
        self._mask[self._slot_of[past_len : self.num_tokens]] = 0
        self.num_tokens = past_len

    def kept_slots(self, past_len: int) -> NDArray[np.int64]:
        """Return the slots of the first tokens, int64 ``[past_len]``, rising."""
        return self._slot_of[:past_len]

    def compact(self, past_len: int) -> None:
        """Take note that the cache now holds the first tokens and nothing else."""
        self._mask[:past_len] = 1
        self._slot_of[:past_len] = np.arange(past_len)
        self.num_tokens = self.num_slots = past_len

    def extend(self, num_new: int) -> NDArray[np.int64]:
        """Append tokens.

        Args:
            num_new: Tokens that are about to run, at least 1.

        Returns:
            The attention mask over the whole cache, int64 ``[1, num_slots]``; a view, valid until
            the next call of any method.
        """
        end = self.num_slots + num_new
        if end > len(self._mask):
            self._grow(end)
        self._mask[self.num_slots : end] = 1
        slots = np.arange(self.num_slots, end)
        self._slot_of[self.num_tokens : self.num_tokens + num_new] = slots
        self.num_slots = end
        self.num_tokens += num_new
        return self._mask[None, :end]

    def _grow(self, needed: int) -> None:
        # A new array, because the infer request may still look at the old one.
        more = max(needed, 2 * len(self._mask)) - len(self._mask)
        self._mask = np.concatenate([self._mask, np.zeros(more, np.int64)])
        self._slot_of = np.concatenate([self._slot_of, np.empty(more, np.int64)])

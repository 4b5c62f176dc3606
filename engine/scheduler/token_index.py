"""Where a run of tokens occurred before, in a text that grows at its end.

Hash chains, as LZ77 compressors keep them: the last few tokens choose a bucket, the bucket knows
its newest position, and each position knows the one before it in the same bucket. Adding a token
touches two numbers and taking it back two, so guesses can be added and withdrawn; a full index
overwrites its oldest tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

_NONE = -1
_FIRST_CAPACITY = 1024
_HASH_MULTIPLIER = 0x9E3779B97F4A7C15  # 2^64 over the golden ratio
_MASK_64 = 2**64 - 1
_BULK_TOKENS = 64  # from here numpy is faster than one at a time


class Match(NamedTuple):
    """A place where the end of a sequence occurred before.

    Attributes:
        end: Position right behind the run; what stands there came next.
        length: Tokens that agree, as far as was looked.
    """

    end: int
    length: int


class TokenIndex:
    """Tokens, and where each run of ``run_tokens`` of them ends. For one thread.

    Tokens of -1 agree with nothing: they separate texts.
    """

    def __init__(self, run_tokens: int, max_tokens: int) -> None:
        """Begin empty.

        Args:
            run_tokens: Shortest run that is found, 1 or more.
            max_tokens: Kept at most; a power of two, as its slots are.
        """
        self._run_tokens = run_tokens
        self._max_tokens = max_tokens
        self._length = 0
        self._allocate(min(_FIRST_CAPACITY, max_tokens))

    def __len__(self) -> int:
        """Tokens added so far, those that were overwritten included."""
        return self._length

    @property
    def num_bytes(self) -> int:
        """Memory it takes."""
        return self._array.nbytes + self._before_array.nbytes + self._newest_array.nbytes

    def token(self, position: int) -> int:
        """Return the token at a position that is still kept."""
        return self._tokens[position & self._slot_mask]

    def tail(self, start: int) -> NDArray[np.int32]:
        """Return the tokens from a position that is still kept to the end, int32, a copy."""
        slots = np.arange(start, self._length) & self._slot_mask
        tail: NDArray[np.int32] = self._array[slots]
        return tail

    def append(self, token_ids: NDArray[np.int32]) -> None:
        """Add tokens at the end.

        Args:
            token_ids: int32 ``[num_tokens]``.
        """
        num_skipped = max(0, len(token_ids) - self._max_tokens)
        self._make_room(self._length + len(token_ids))
        self._length += num_skipped
        token_ids = token_ids[num_skipped:]
        if len(token_ids) >= _BULK_TOKENS:
            self._append_many(token_ids)
            return
        for token_id in token_ids.tolist():
            slot = self._length & self._slot_mask
            self._tokens[slot] = token_id
            self._length += 1
            if self._length >= self._run_tokens:
                bucket = self._bucket_before(self._length)
                self._before[slot] = self._newest[bucket]
                self._newest[bucket] = self._length - 1

    def truncate(self, length: int) -> None:
        """Take back the newest tokens, so that ``length`` are left."""
        while self._length > length:
            if self._length >= self._run_tokens:
                bucket = self._bucket_before(self._length)
                self._newest[bucket] = self._before[(self._length - 1) & self._slot_mask]
            self._length -= 1

    def matches(self, suffix: Sequence[int], max_candidates: int) -> Iterator[Match]:
        """Find where a sequence's end occurred before, newest first.

        The end of the text itself is no occurrence: nothing stands behind it.

        Args:
            suffix: The last tokens of the sequence, ``run_tokens`` or more; further ones say how
                far back an occurrence agrees.
            max_candidates: How many occurrences of its bucket are looked at.

        Yields:
            Matches of ``run_tokens`` or more.
        """
        oldest = max(self._length - self._capacity, 0)
        position = self._newest[self._hash(suffix[-self._run_tokens :])]
        for _ in range(max_candidates + 1):
            if position < oldest:
                return
            if position + 1 < self._length:
                length = self._agreement(suffix, position, oldest)
                if length >= self._run_tokens:
                    yield Match(position + 1, length)
            position = self._before[position & self._slot_mask]

    def _agreement(self, suffix: Sequence[int], position: int, oldest: int) -> int:
        """Return how many tokens up to ``position`` agree with the end of ``suffix``."""
        tokens, mask = self._tokens, self._slot_mask
        length = 0
        for wanted in reversed(suffix):
            if position < oldest or tokens[position & mask] != wanted:
                break
            position -= 1
            length += 1
        return length

    # ---- buckets -------------------------------------------------------------------------------

    def _hash(self, run: Sequence[int]) -> int:
        value = 0
        for token_id in run:
            value = ((value + token_id + 1) * _HASH_MULTIPLIER) & _MASK_64
        return value >> self._hash_shift

    def _bucket_before(self, end: int) -> int:
        mask = self._slot_mask
        return self._hash([self._tokens[i & mask] for i in range(end - self._run_tokens, end)])

    def _append_many(self, token_ids: NDArray[np.int32]) -> None:
        """As ``append``, for many: the chains are linked by sorting positions by bucket."""
        first = self._length
        self._length += len(token_ids)
        positions = np.arange(first, self._length)
        self._array[positions & self._slot_mask] = token_ids
        start = max(first, self._run_tokens - 1)
        self._link(np.arange(start, self._length))

    def _link(self, ends: NDArray[np.int64]) -> None:
        """Enter the runs that end at ascending positions into their buckets."""
        if not ends.size:
            return
        values = np.zeros(ends.size, np.uint64)
        for back in range(self._run_tokens - 1, -1, -1):
            tokens = self._array[(ends - back) & self._slot_mask].astype(np.int64) + 1
            values = (values + tokens.astype(np.uint64)) * np.uint64(_HASH_MULTIPLIER)
        buckets = (values >> np.uint64(self._hash_shift)).astype(np.int64)
        order = np.argsort(buckets, kind="stable")
        grouped, sorted_ends = buckets[order], ends[order]
        is_first = np.r_[True, grouped[1:] != grouped[:-1]]
        before = np.r_[_NONE, sorted_ends[:-1]]
        before[is_first] = self._newest_array[grouped[is_first]]
        self._before_array[sorted_ends & self._slot_mask] = before
        is_last = np.r_[is_first[1:], True]
        self._newest_array[grouped[is_last]] = sorted_ends[is_last]

    # ---- room ----------------------------------------------------------------------------------

    def _make_room(self, num_tokens: int) -> None:
        """Double until that many fit or no more may be kept."""
        capacity = self._capacity
        while capacity < min(num_tokens, self._max_tokens):
            capacity *= 2
        if capacity == self._capacity:
            return
        kept = self._array[: self._length].copy()
        self._allocate(capacity)
        self._array[: self._length] = kept
        self._link(np.arange(self._run_tokens - 1, self._length))

    def _allocate(self, capacity: int) -> None:
        self._capacity = capacity
        self._slot_mask = capacity - 1
        self._array = np.zeros(capacity, np.int32)
        self._before_array = np.full(capacity, _NONE, np.int64)
        self._newest_array = np.full(2 * capacity, _NONE, np.int64)
        self._hash_shift = 64 - (2 * capacity - 1).bit_length()
        # An item of a memoryview is a plain int, and several times as fast as one of an array.
        self._tokens = self._array.data
        self._before = self._before_array.data
        self._newest = self._newest_array.data

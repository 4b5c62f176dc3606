"""The drafter without a model: what followed the last time the text ended like this.

It looks for the longest end of the sequence that occurred before, in its own prompt and answer or
in what this head answered earlier, and proposes what came next there. Text that is repeated,
quoted, edited or asked for again is guessed well; where nothing agrees far enough it says nothing,
which costs nothing.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from engine.scheduler.token_index import Match, TokenIndex

if TYPE_CHECKING:
    from collections.abc import Sequence as OrderedItems

    from numpy.typing import NDArray

    from engine.domain import SequenceId
    from engine.scheduler.drafting import DraftRequest

MIN_MATCH_TOKENS = 3
DRAFTS_PER_MATCH = 0.5  # a match of n tokens is trusted for so many times n, one at least
_MAX_MATCH_TOKENS = 32  # beyond it a longer match says no more
_MAX_CANDIDATES = 8  # occurrences looked at, newest first
_SEPARATOR = np.array([-1], np.int32)
_ARCHIVE_TOKENS = 2**18  # of earlier chats; 7 MB
_SEQUENCE_TOKENS = 2**17  # of one sequence; a longer one forgets its beginning
_MAX_IN_FLIGHT_TOKENS = 512  # as far back a guess may have been wrong


class _Found(NamedTuple):
    match: Match
    source: TokenIndex


class SuffixDrafter:
    """Guesses by the longest match of a sequence's end.

    Memory is bounded: earlier chats share a ring in which the newest overwrite the oldest. What
    was of use is written again by the answer that used it, and so stays.

    Attributes:
        gate_tokens: Nothing is proposed where fewer tokens agree; the shortest run that is looked
            for, or more.
    """

    def __init__(
        self,
        *,
        min_match_tokens: int = MIN_MATCH_TOKENS,
        drafts_per_match: float = DRAFTS_PER_MATCH,
        archive_tokens: int = _ARCHIVE_TOKENS,
    ) -> None:
        """Begin with nothing to remember.

        Args:
            min_match_tokens: The shortest run that is looked for, 1 or more.
            drafts_per_match: At most so many tokens are proposed for each that agrees.
            archive_tokens: Of earlier chats, kept at most; a power of two.
        """
        self.gate_tokens = min_match_tokens
        self._min_match_tokens = min_match_tokens
        self._drafts_per_match = drafts_per_match
        self._archive = TokenIndex(min_match_tokens, archive_tokens)
        self._archive_tokens = archive_tokens
        self._sequences: dict[SequenceId, TokenIndex] = {}

    async def draft(self, requests: OrderedItems[DraftRequest]) -> list[tuple[int, ...]]:
        """Guess the next tokens of each sequence; see ``Drafter.draft``. Never waits."""
        return [self.guess(request) for request in requests]

    async def close(self, sequence_id: SequenceId) -> None:
        """Take a sequence among the earlier chats; see ``Drafter.close``.

        Its newest tokens may be guesses nobody confirmed: a few tokens of one text.
        """
        index = self._sequences.pop(sequence_id, None)
        if index is not None:
            kept = index.tail(max(0, len(index) - self._archive_tokens // 2))
            self._archive.append(np.concatenate([kept, _SEPARATOR]))

    def guess(self, request: DraftRequest) -> tuple[int, ...]:
        """Guess the next tokens of one sequence.

        Args:
            request: Its tokens, and how many are of use.

        Returns:
            0 to ``max_drafts`` ids.
        """
        index = self._sequences.get(request.sequence_id)
        if index is None:
            index = TokenIndex(self._min_match_tokens, _SEQUENCE_TOKENS)
            self._sequences[request.sequence_id] = index
        _follow(index, request.token_ids)
        if len(request.token_ids) < self._min_match_tokens:
            return ()
        found = self._longest(index, request.token_ids[-_MAX_MATCH_TOKENS:].tolist())
        if found is None or found.match.length < self.gate_tokens:
            return ()
        trusted = max(1, int(found.match.length * self._drafts_per_match))
        return _continuation(found, min(request.max_drafts, trusted))

    def _longest(self, own: TokenIndex, suffix: list[int]) -> _Found | None:
        """Return the longest match; of equally long ones the most frequent, then the newest."""
        found = [
            _Found(match, index)
            for index in (own, self._archive)
            for match in index.matches(suffix, _MAX_CANDIDATES)
            if index.token(match.end) >= 0
        ]
        if not found:
            return None
        length = max(candidate.match.length for candidate in found)
        best = [candidate for candidate in found if candidate.match.length == length]
        if len(best) == 1:
            return best[0]
        votes = Counter(candidate.source.token(candidate.match.end) for candidate in best)
        return max(best, key=lambda one: votes[one.source.token(one.match.end)])  # first: newest


def _follow(index: TokenIndex, token_ids: NDArray[np.int32]) -> None:
    """Bring an index in line with a sequence: withdraw guesses that were wrong, add what is new."""
    known = min(len(index), len(token_ids))
    start = max(0, known - _MAX_IN_FLIGHT_TOKENS)
    differs = np.flatnonzero(index.tail(start)[: known - start] != token_ids[start:known])
    agreed = start + int(differs[0]) if differs.size else known
    index.truncate(agreed)
    index.append(token_ids[agreed:])


def _continuation(found: _Found, num_tokens: int) -> tuple[int, ...]:
    """Return what followed a match.

    An earlier chat ends with its separator. Behind the end of the sequence itself a repetition
    goes on: what was copied is copied again.
    """
    source, end = found.source, found.match.end
    num_known = len(source) - end
    copied: list[int] = []
    for offset in range(num_tokens):
        is_known = offset < num_known
        token_id = source.token(end + offset) if is_known else copied[offset - num_known]
        if token_id < 0:
            break
        copied.append(token_id)
    return tuple(copied)

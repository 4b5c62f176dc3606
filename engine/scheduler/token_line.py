"""A sequence's tokens: those that are committed, and behind them those that are guessed.

What is committed stays. A guess stands until the token of its position is drawn: if that is the
same one, the guess becomes a committed token and those behind it stand; if not, they all fall.
Whoever guesses is asked with the line as it is, may answer late, and is then heard only as far as
the line has gone on as it says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence as OrderedItems

    from numpy.typing import NDArray

_FIRST_SPARE = 256  # tokens


class TokenLine:
    """The tokens of one sequence.

    Attributes:
        num_committed: Tokens that are final.
        num_guessed: Guesses behind them.
        is_drafting: Whether somebody was asked for more guesses, has not answered yet, and would
            still be heard.
    """

    def __init__(self, token_ids: OrderedItems[int]) -> None:
        """Begin without a guess.

        Args:
            token_ids: The committed ones.
        """
        self.num_committed = len(token_ids)
        self.num_guessed = 0
        self.is_drafting = False
        self._ids: NDArray[np.int32] = np.empty(self.num_committed + _FIRST_SPARE, np.int32)
        self._ids[: self.num_committed] = token_ids
        self._asked_from = 0
        self._asked_for = 0
        self._is_exhausted = False  # nobody knows how it goes on from here

    @property
    def length(self) -> int:
        """Committed and guessed tokens together."""
        return self.num_committed + self.num_guessed

    @property
    def may_grow(self) -> bool:
        """Whether asking for guesses could help: nobody was asked for those of this line."""
        return not self.is_drafting and not self._is_exhausted

    def ids(self, start: int, stop: int) -> NDArray[np.int32]:
        """Return a copy of the ids of positions ``[start, stop)``, int32; fewer if it ends."""
        return self._ids[start : min(stop, self.length)].copy()

    def commit(self, token_ids: OrderedItems[int]) -> int:
        """Append what was drawn; guesses that differ from it fall, with all behind them.

        Args:
            token_ids: In order.

        Returns:
            How many of them had been guessed.
        """
        guessed = self._ids[self.num_committed : self.length].tolist()
        num_held = num_matching(token_ids, guessed)
        if num_held == len(token_ids):
            self.num_guessed -= num_held
        else:
            self.drop_guesses(keeps_asking=num_held == len(guessed))
            self._write(self.num_committed, token_ids)
        self.num_committed += len(token_ids)
        return num_held

    def drop_guesses(self, *, keeps_asking: bool = False) -> None:
        """Let every guess fall.

        Args:
            keeps_asking: Whether an answer that is still to come may be right.
        """
        self.num_guessed = 0
        self._is_exhausted = False
        self.is_drafting = self.is_drafting and keeps_asking

    def ask(self, max_guesses: int) -> NDArray[np.int32]:
        """Note that somebody is asked for guesses.

        Args:
            max_guesses: As many as are of use.

        Returns:
            The whole line, int32 ``[length]``.
        """
        self.is_drafting = True
        self._asked_from, self._asked_for = self.length, max_guesses
        return self.ids(0, self.length)

    def offer(self, length: int, token_ids: OrderedItems[int], max_length: int) -> None:
        """Take guesses, as far as the line has not gone on differently.

        Args:
            length: Of the line with which was asked; at another length nobody was.
            token_ids: How it may go on from there; fewer than were asked for say that nobody
                knows more.
            max_length: That the line may reach.
        """
        if not self.is_drafting or length != self._asked_from:
            return
        self.is_drafting = False
        since = self._ids[length : self.length].tolist()
        if num_matching(token_ids, since) < min(len(since), len(token_ids)):
            return
        self._is_exhausted = not since and len(token_ids) < self._asked_for
        more = token_ids[len(since) : len(since) + max(max_length - self.length, 0)]
        self._write(self.length, more)
        self.num_guessed += len(more)

    def _write(self, start: int, token_ids: OrderedItems[int]) -> None:
        end = start + len(token_ids)
        if end > len(self._ids):
            more = max(end, 2 * len(self._ids)) - len(self._ids)
            self._ids = np.concatenate([self._ids, np.empty(more, np.int32)])
        self._ids[start:end] = token_ids


def num_matching(left: OrderedItems[int], right: OrderedItems[int]) -> int:
    """Return how many items two sequences have in common from their beginning on."""
    num = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        num += 1
    return num

"""What a drafter is: something that guesses how a sequence goes on.

A guess costs nothing but rows: whatever the last stage would have drawn anyway is what is kept, so
no drafter can change an answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence as OrderedItems

    import numpy as np
    from numpy.typing import NDArray

    from engine.domain import SequenceId


class DraftRequest(NamedTuple):
    """One sequence that could use a guess.

    Attributes:
        sequence_id: Whose.
        token_ids: int32 ``[num_tokens]``: the committed ones, then those that are in flight as
            guesses themselves. What is drafted comes right behind them.
        max_drafts: As many as are of use, 1 or more.
    """

    sequence_id: SequenceId
    token_ids: NDArray[np.int32]
    max_drafts: int


class Drafter(Protocol):
    """Guesses how sequences go on.

    Thread: the node's loop.
    """

    async def draft(self, requests: OrderedItems[DraftRequest]) -> list[tuple[int, ...]]:
        """Guess the next tokens of each sequence.

        Args:
            requests: Of different sequences.

        Returns:
            For each request, in order, 0 to ``max_drafts`` token ids. A drafter that fails gives
            none: an answer never ends because of a guess.

        Cancellation: safe; what was guessed is lost.
        """
        ...

    async def close(self, sequence_id: SequenceId) -> None:
        """Forget a sequence that has ended; nothing happens for one that is not known."""
        ...


class DraftLengths(Protocol):
    """Chooses how many tokens to guess. Pure: times are told, not taken."""

    def choose(self, sequence_id: SequenceId, num_running: int) -> int:
        """Return how many tokens to guess for a sequence's next frame; 0 where it does not pay.

        Args:
            sequence_id: Any; asked once for each answer that comes.
            num_running: Sequences that run, this one included.
        """
        ...

    def observe(self, sequence_id: SequenceId, num_drafted: int, num_accepted: int) -> None:
        """Take what became of a frame's drafts.

        Args:
            sequence_id: Whose.
            num_drafted: Drafts behind the frame's first token, 0 or more.
            num_accepted: How many of them held; the next one, if any, did not.
        """
        ...

    def forget(self, sequence_id: SequenceId) -> None:
        """Drop what is known of a sequence that has ended; nothing happens for a stranger."""
        ...

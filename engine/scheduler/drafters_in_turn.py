"""Two drafters: what was written before is looked for first, and a model is asked for the rest.

A long match guesses better than a small model does and costs nothing; a short one guesses worse.
So the gate of the one rises while there is the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.scheduler.suffix_drafter import MIN_MATCH_TOKENS, SuffixDrafter

if TYPE_CHECKING:
    from collections.abc import Sequence as OrderedItems

    from engine.domain import SequenceId
    from engine.scheduler.drafting import Drafter, DraftRequest

# Measured on held-out answers: from here on a match's guesses hold more often than a draft model's.
LONG_MATCH_TOKENS = 6


class DraftersInTurn:
    """A ``Drafter`` over one without a model and, while there is one, one with.

    Thread: the node's loop.
    """

    def __init__(self, suffix: SuffixDrafter) -> None:
        """Begin without a model.

        Args:
            suffix: Asked first; only this object uses it from now on.
        """
        self._suffix = suffix
        self._model: Drafter | None = None

    def use(self, model: Drafter | None) -> None:
        """Ask a model from now on, or none any more.

        Args:
            model: Its sequences are closed one by one as they end.
        """
        self._model = model
        self._suffix.gate_tokens = MIN_MATCH_TOKENS if model is None else LONG_MATCH_TOKENS

    async def draft(self, requests: OrderedItems[DraftRequest]) -> list[tuple[int, ...]]:
        """Guess the next tokens of each sequence; see ``Drafter.draft``."""
        drafts = await self._suffix.draft(requests)
        missing = [number for number, draft in enumerate(drafts) if not draft]
        model = self._model
        if model is not None and missing:
            answers = await model.draft([requests[number] for number in missing])
            for number, draft in zip(missing, answers, strict=True):
                drafts[number] = draft
        return drafts

    async def close(self, sequence_id: SequenceId) -> None:
        """Forget a sequence that has ended; see ``Drafter.close``."""
        await self._suffix.close(sequence_id)
        if self._model is not None:
            await self._model.close(sequence_id)

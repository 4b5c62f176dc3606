"""A drafter that knows the answer and is right as often as is wished; for measuring only.

It replays recorded greedy ids, and each of them is exchanged for another with probability
``1 - rate``, by a stream that depends on seed, answer and position only. What checking and taking
back cost stays real, and the answers must still be the recorded ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from engine.sampling.sampler import uniform_draw

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from engine.domain import SequenceId
    from engine.scheduler.drafting import DraftRequest


class Recording(NamedTuple):
    """A prompt and what the model answers, past any end.

    Attributes:
        prompt_ids: At least one.
        answer_ids: As many as may be asked for.
    """

    prompt_ids: Sequence[int]
    answer_ids: Sequence[int]


class OracleDrafter:
    """Guesses from recordings. Thread: the node's loop."""

    def __init__(
        self, recordings: Sequence[Recording], rate: float, vocab_size: int, seed: int = 0
    ) -> None:
        """Corrupt the recordings.

        Args:
            recordings: Of different prompts; what is asked about others is not guessed.
            rate: Of guesses that hold, each by itself, from 0 to 1.
            vocab_size: Of the model, 2 or more.
            seed: Another one corrupts other tokens.
        """
        self._texts: list[tuple[NDArray[np.int32], NDArray[np.int32]]] = []
        for number, (prompt_ids, answer_ids) in enumerate(recordings):
            guesses = np.array([*prompt_ids, *answer_ids], np.int32)
            for position in range(len(prompt_ids), len(guesses)):
                # Half of the key for the seed, half for the answer: no two streams are the same.
                if uniform_draw((seed << 32) + number, position) >= rate:
                    guesses[position] = (guesses[position] + 1) % vocab_size
            self._texts.append((np.array(prompt_ids, np.int32), guesses))
        self._found: dict[SequenceId, NDArray[np.int32] | None] = {}
        self.num_drafted = 0

    async def draft(self, requests: Sequence[DraftRequest]) -> list[tuple[int, ...]]:
        """Return what was recorded; see ``Drafter.draft``. Never waits."""
        return [self.guess(request) for request in requests]

    async def close(self, sequence_id: SequenceId) -> None:
        """Forget a sequence; see ``Drafter.close``."""
        self._found.pop(sequence_id, None)

    def guess(self, request: DraftRequest) -> tuple[int, ...]:
        """Return what was recorded behind one request's tokens.

        Args:
            request: Of a sequence whose prompt was recorded, or of another.
        """
        if request.sequence_id not in self._found:
            self._found[request.sequence_id] = self._find(request.token_ids)
        guesses = self._found[request.sequence_id]
        if guesses is None:
            return ()
        start = len(request.token_ids)
        drafts = tuple(guesses[start : start + request.max_drafts].tolist())
        self.num_drafted += len(drafts)
        return drafts

    def _find(self, token_ids: NDArray[np.int32]) -> NDArray[np.int32] | None:
        """Return the recording whose prompt a sequence begins with; the longest, if several."""
        fitting = [
            (len(prompt), number)
            for number, (prompt, _) in enumerate(self._texts)
            if np.array_equal(token_ids[: len(prompt)], prompt)
        ]
        return self._texts[max(fitting)[1]][1] if fitting else None

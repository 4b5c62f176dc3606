"""The same number of drafts for every frame; for measuring and testing only."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.domain import SequenceId


class FixedDraftLength:
    """The same number of drafts for every sequence, as long as few enough run."""

    def __init__(self, num_drafts: int, max_running: int) -> None:
        """Fix both.

        Args:
            num_drafts: For each frame, 0 or more.
            max_running: With more sequences than that none is guessed: they fill the rows.
        """
        self._num_drafts = num_drafts
        self._max_running = max_running

    def choose(self, sequence_id: SequenceId, num_running: int) -> int:
        """Return how many tokens to guess; see ``DraftLengths.choose``."""
        del sequence_id
        return self._num_drafts if num_running <= self._max_running else 0

    def observe(self, sequence_id: SequenceId, num_drafted: int, num_accepted: int) -> None:
        """Learn nothing from it; see ``DraftLengths.observe``."""

    def forget(self, sequence_id: SequenceId) -> None:
        """Do nothing, for nothing is known; see ``DraftLengths.forget``."""

    def took_circuit(self, num_rows: int, circuit_s: float, compute_s: float) -> None:
        """Learn nothing from it; see ``MeasuredDraftLengths.took_circuit``."""

    def took_draft(self, num_tokens: int, seconds: float) -> None:
        """Learn nothing from it; see ``MeasuredDraftLengths.took_draft``."""

    def took_tokens(self, sequence_id: SequenceId, num_tokens: int, seconds: float) -> None:
        """Learn nothing from it; see ``MeasuredDraftLengths.took_tokens``."""

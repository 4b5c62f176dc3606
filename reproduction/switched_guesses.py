"""A drafter and a choice of lengths that do what a file says, looked up anew for each sequence.

So one pool, loaded once, serves every arm of a measurement, one after the other. What a setting
has learned it keeps for the next time that it is used.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, NamedTuple

from measured_guesses import Guesses, read_guesses

from engine.scheduler.suffix_drafter import SuffixDrafter

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from engine.domain import SequenceId
    from engine.pipeline.draft_desk import Guessing, MeasuredDraftLengths
    from engine.scheduler.drafting import Drafter, DraftRequest


class SwitchedGuesses:
    """A ``Drafter`` and ``MeasuredDraftLengths`` at once. Thread: the node's loop."""

    def __init__(self, path: Path, own: Guessing) -> None:
        """Begin with what the file says now.

        Args:
            path: Of ``measured_guesses``; may be written anew between two sequences.
            own: What the program would guess with.
        """
        self._path = path
        self._own = own
        self._fresh_lengths = copy.deepcopy(own.lengths)
        self._written_ns = 0
        self._settings: dict[tuple[str, float, int | None], _Setting] = {}
        self._of: dict[SequenceId, _Setting] = {}
        self._newest = self._look()

    async def draft(self, requests: Sequence[DraftRequest]) -> list[tuple[int, ...]]:
        """Guess as the file says; see ``Drafter.draft``. Sequences that run share a setting."""
        return await self._setting(requests[0].sequence_id).drafter.draft(requests)

    async def close(self, sequence_id: SequenceId) -> None:
        """Forget a sequence; see ``Drafter.close``."""
        setting = self._of.pop(sequence_id, None)
        if setting is not None:
            await setting.drafter.close(sequence_id)

    def choose(self, sequence_id: SequenceId, num_running: int) -> int:
        """Return how many tokens to guess; see ``DraftLengths.choose``."""
        return self._setting(sequence_id).lengths.choose(sequence_id, num_running)

    def observe(self, sequence_id: SequenceId, num_drafted: int, num_accepted: int) -> None:
        """Take what became of drafts; see ``DraftLengths.observe``."""
        self._setting(sequence_id).lengths.observe(sequence_id, num_drafted, num_accepted)

    def forget(self, sequence_id: SequenceId) -> None:
        """Drop what is known of a sequence; see ``DraftLengths.forget``."""
        if sequence_id in self._of:
            self._of[sequence_id].lengths.forget(sequence_id)

    def took_circuit(self, num_rows: int, circuit_s: float, compute_s: float) -> None:
        """Tell the setting in use; see ``MeasuredDraftLengths.took_circuit``."""
        self._newest.lengths.took_circuit(num_rows, circuit_s, compute_s)

    def took_draft(self, num_tokens: int, seconds: float) -> None:
        """Tell the setting in use; see ``MeasuredDraftLengths.took_draft``."""
        self._newest.lengths.took_draft(num_tokens, seconds)

    def took_tokens(self, sequence_id: SequenceId, num_tokens: int, seconds: float) -> None:
        """Tell the sequence's setting; see ``MeasuredDraftLengths.took_tokens``."""
        if sequence_id in self._of:
            self._of[sequence_id].lengths.took_tokens(sequence_id, num_tokens, seconds)

    def _setting(self, sequence_id: SequenceId) -> _Setting:
        setting = self._of.get(sequence_id)
        if setting is None:
            setting = self._of[sequence_id] = self._newest = self._look()
        return setting

    def _look(self) -> _Setting:
        written_ns = self._path.stat().st_mtime_ns
        if written_ns == self._written_ns:
            return self._newest
        self._written_ns = written_ns
        guesses = read_guesses(self._path)
        known = self._settings.get(guesses.key)
        lengths = self._lengths(guesses) if known is None else known.lengths
        if known is None or guesses.who == "oracle":  # whose recordings may be others now
            drafter = self._drafter(guesses)
        else:
            drafter = known.drafter
        self._settings[guesses.key] = _Setting(drafter, lengths)
        return self._settings[guesses.key]

    def _drafter(self, guesses: Guesses) -> Drafter:
        if guesses.who == "oracle":
            return guesses.drafter()
        return self._own.drafter if guesses.who == "model" else SuffixDrafter()

    def _lengths(self, guesses: Guesses) -> MeasuredDraftLengths:
        if guesses.num_drafts is None:
            return copy.deepcopy(self._fresh_lengths)
        return guesses.lengths()


class _Setting(NamedTuple):
    drafter: Drafter
    lengths: MeasuredDraftLengths

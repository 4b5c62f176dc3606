"""How far ahead each sequence is guessed.

Frames of one sequence may follow each other down the chain before the first is answered, each on
the guess that the one before holds. They have no claim to the chain: it is shared out among the
running sequences, and a frame made of guesses alone goes only where nothing certain is to compute.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.scheduler.request import SequenceState

if TYPE_CHECKING:
    from engine.domain import SequenceId
    from engine.scheduler.drafting import DraftLengths
    from engine.scheduler.request import Sequence


class Speculation:
    """What is guessed for the sequences of one placement.

    Attributes:
        max_frames: Frames of one sequence that may be under way at once, if it is alone: about the
            time round the chain over that of its slowest stage. More would only wait in front of
            it.
    """

    def __init__(self, lengths: DraftLengths, max_frames: int) -> None:
        """Begin with nothing guessed.

        Args:
            lengths: Chooses how many tokens to guess for each frame.
            max_frames: 1 or more; may be changed at any time.
        """
        self.max_frames = max_frames
        self._lengths = lengths
        self._chosen: dict[SequenceId, int] = {}

    def length_for(self, sequence: Sequence, num_running: int) -> int:
        """Return how many drafts a frame of a sequence has; 0 for one that is not guessed.

        Args:
            sequence: That runs.
            num_running: Sequences that run, this one included.
        """
        if sequence.state is not SequenceState.DECODE or not sequence.speculates:
            return 0
        chosen = self._chosen.get(sequence.sequence_id)
        if chosen is None:
            chosen = self._lengths.choose(sequence.sequence_id, num_running)
            self._chosen[sequence.sequence_id] = chosen
        return chosen

    def answered(self, sequence_id: SequenceId, num_drafted: int, num_accepted: int) -> None:
        """Take what became of a frame's drafts; the next ones' number is chosen anew.

        Args:
            sequence_id: Whose frame.
            num_drafted: Its drafts; may be 0.
            num_accepted: Those that held.
        """
        self._chosen.pop(sequence_id, None)
        self._lengths.observe(sequence_id, num_drafted, num_accepted)

    def forget(self, sequence_id: SequenceId) -> None:
        """Drop what is known of a sequence that has ended; nothing happens for a stranger."""
        self._chosen.pop(sequence_id, None)
        self._lengths.forget(sequence_id)


def num_unsent_guesses(sequence: Sequence) -> int:
    """Return how many guesses of a sequence are in no micro-batch yet."""
    return sequence.line.length - max(sequence.num_scheduled_tokens, sequence.num_tokens)


def max_guessed_length(sequence: Sequence) -> int:
    """Return the tokens of a sequence at most with its guesses: none is drawn behind its last."""
    return sequence.max_length - 1

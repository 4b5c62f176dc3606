"""Who is asked for guesses, and what is taken of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.scheduler.drafting import DraftRequest
from engine.scheduler.speculation import max_guessed_length, num_unsent_guesses

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Sequence as OrderedItems

    from engine.domain import SequenceId
    from engine.scheduler.in_flight import InFlight
    from engine.scheduler.request import Sequence
    from engine.scheduler.speculation import Speculation
    from engine.scheduler.step_choice import StepChoice


class DraftExchange:
    """Between a scheduler and whoever guesses; looks at what the scheduler owns."""

    def __init__(
        self,
        running: Mapping[SequenceId, Sequence],
        in_flight: InFlight,
        choice: StepChoice,
        speculation: Speculation | None,
        vocab_size: int,
    ) -> None:
        """Look at a scheduler's state.

        Args:
            running: The sequences that run.
            in_flight: What is under way.
            choice: Says how many frames may be.
            speculation: None where nothing is guessed.
            vocab_size: Ids below it can be fed.
        """
        self._running = running
        self._in_flight = in_flight
        self._choice = choice
        self._speculation = speculation
        self._vocabulary = range(vocab_size)

    def wanted(self) -> list[DraftRequest]:
        """Return which sequences could use guesses for a frame that may be sent now.

        Each is asked for once, and must be answered with ``offer``, be it with none.
        """
        if self._speculation is None:
            return []
        requests = []
        for sequence in self._running.values():
            num_wanted = self._num_wanted(sequence, self._speculation)
            if num_wanted > 0:
                ids = sequence.line.ask(num_wanted)
                requests.append(DraftRequest(sequence.sequence_id, ids, num_wanted))
        return requests

    def _num_wanted(self, sequence: Sequence, speculation: Speculation) -> int:
        """Return how many guesses the next frame of a sequence lacks."""
        length = speculation.length_for(sequence, len(self._running))
        num_frames = len(self._in_flight.steps_of(sequence.sequence_id))
        if not length or num_frames >= self._choice.max_frames or not sequence.line.may_grow:
            return 0
        # The newest committed token begins the frame if it is not sent yet; else a guess does.
        num_rows = length + int(sequence.num_scheduled_tokens >= sequence.num_tokens)
        room = max_guessed_length(sequence) - sequence.line.length
        return min(num_rows - num_unsent_guesses(sequence), room)

    def offer(self, sequence_id: SequenceId, length: int, token_ids: OrderedItems[int]) -> None:
        """Take guesses; they are dropped if the sequence has ended or gone on differently.

        Args:
            sequence_id: As asked for.
            length: Tokens of the request, which the guesses go on from.
            token_ids: 0 or more; those from the first on that can be no token count for nothing.
        """
        sequence = self._running.get(sequence_id)
        if sequence is not None:
            is_bad = (i for i, id_ in enumerate(token_ids) if id_ not in self._vocabulary)
            known = token_ids[: next(is_bad, None)]
            sequence.line.offer(length, known, max_guessed_length(sequence))

"""Which steps the next micro-batch is made of.

Certain steps come first: chunks of prompts, and the newest committed token of each sequence, with
drafts behind it where there are any. Only where there is none of them, steps made of guesses alone.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from engine.domain import SequenceStep
from engine.scheduler.prompt_rows import PromptRows
from engine.scheduler.request import SequenceState
from engine.scheduler.speculation import num_unsent_guesses

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from engine.domain import SequenceId
    from engine.scheduler.cache_room import CacheRoom
    from engine.scheduler.in_flight import InFlight
    from engine.scheduler.limits import SchedulerLimits
    from engine.scheduler.request import Sequence
    from engine.scheduler.speculation import Speculation

_BY_ARRIVAL = attrgetter("arrival")


class StepChoice:
    """Chooses among the running sequences of a scheduler, which owns all that it is given."""

    def __init__(
        self,
        limits: SchedulerLimits,
        running: Mapping[SequenceId, Sequence],
        in_flight: InFlight,
        room: CacheRoom,
        speculation: Speculation | None,
    ) -> None:
        """Look at a scheduler's state.

        Args:
            limits: Of the placement.
            running: Served longest ago first.
            in_flight: What is under way.
            room: Steps are chosen only where there is room for them; it is reserved here.
            speculation: None where nothing is guessed.
        """
        self._limits = limits
        self._running = running
        self._in_flight = in_flight
        self._room = room
        self._speculation = speculation
        self._prompt_rows = (
            PromptRows(limits.row_costs, limits.num_stages, limits.chunk_tokens)
            if limits.row_costs.is_measured
            else None
        )

    @property
    def max_in_flight(self) -> int:
        """Micro-batches that may be under way at once."""
        return max(self._limits.batches_in_flight, self._frames_alone) + self._num_ahead

    @property
    def max_frames(self) -> int:
        """Frames of one sequence that may be under way at once: its share of the chain."""
        share = self.max_in_flight // max(len(self._running), 1)
        return max(1, min(self._frames_alone, share))

    @property
    def _num_ahead(self) -> int:
        """Chunks that may wait before the first stage, so that it never waits for a link.

        None where anybody's next token would wait behind them.
        """
        if self._prompt_rows is None or self._limits.max_chunks_in_flight == 1:
            return 0
        return int(all(map(_is_prefilling, self._running.values())))

    @property
    def _frames_alone(self) -> int:
        return 1 if self._speculation is None else self._speculation.max_frames

    def next_steps(
        self, held: Collection[SequenceId], requeue: Callable[[Sequence], None]
    ) -> list[SequenceStep]:
        """Choose steps; return decodes before prefill chunks.

        Args:
            held: Sequences that wait for guesses; no step of theirs is chosen.
            requeue: Sends a running sequence back to the queue, which makes room.
        """
        return self._certain(held, requeue) or self._guessed(held)

    def _certain(
        self, held: Collection[SequenceId], requeue: Callable[[Sequence], None]
    ) -> list[SequenceStep]:
        num_free_rows = self._limits.max_batch_tokens
        num_steps = self._max_steps()
        num_prompt_rows = self._max_prompt_rows()
        chosen: dict[SequenceId, SequenceStep] = {}
        for sequence in list(self._running.values()):
            is_counted = self._is_counted(sequence)
            if sequence.sequence_id in held or num_steps < is_counted:
                continue
            # A row stays free for each sequence that may still come.
            max_rows = num_free_rows - (num_steps - is_counted)
            if _is_prefilling(sequence):
                max_rows = min(max_rows, num_prompt_rows)
            step = self._step_of(sequence, max_rows)
            if step is not None and self._has_room(sequence, step, chosen, requeue):
                step = self._with_drafts(sequence, step, max_rows)
                chosen[sequence.sequence_id] = step
                num_steps -= is_counted
                num_free_rows -= step.num_tokens
                num_prompt_rows -= step.num_tokens * _is_prefilling(sequence)
        return sorted(
            chosen.values(),
            key=lambda step: _is_prefilling(self._running[step.sequence_id]),
        )

    def _max_steps(self) -> int:
        """Return how many of the sequences that are divided among the micro-batches one takes."""
        num_counted = sum(self._is_counted(sequence) for sequence in self._running.values())
        return -(-num_counted // self._limits.num_groups)

    def _is_counted(self, sequence: Sequence) -> bool:
        """Whether a sequence is one of those that are divided among the micro-batches.

        Where it is known what rows cost, chunks of prompts go with any, as far as rows are left.
        """
        return self._prompt_rows is None or not _is_prefilling(sequence)

    def _max_prompt_rows(self) -> int:
        """Return how many rows of prompts the next micro-batch may have, in all."""
        running = self._running.values()
        decoding = [sequence for sequence in running if not _is_prefilling(sequence)]
        if self._prompt_rows is None or len(decoding) == len(running):
            return self._limits.max_batch_tokens  # nobody reads: nothing is weighed for a decode
        if not decoding:
            return self._prompt_rows.alone(sum(s.num_tokens - s.prefill_start for s in running))
        num_rows = sum(1 + self._num_drafts(sequence) for sequence in decoding)
        return self._prompt_rows.beside(-(-num_rows // self._limits.num_groups))

    def _step_of(self, sequence: Sequence, max_tokens: int) -> SequenceStep | None:
        """Return a sequence's next step; None where it waits for an answer, or is preempted."""
        num_left = sequence.num_tokens - sequence.num_scheduled_tokens
        in_flight = self._in_flight.steps_of(sequence.sequence_id)
        is_ready = sequence.sequence_id in self._running and min(num_left, max_tokens) > 0
        if not is_ready or len(in_flight) >= self._limits.max_chunks_in_flight + self._num_ahead:
            return None
        num_tokens = min(num_left, self._limits.chunk_tokens, max_tokens)
        return SequenceStep(
            sequence_id=sequence.sequence_id,
            past_len=sequence.num_scheduled_tokens,
            num_tokens=num_tokens,
            num_logits=int(num_tokens == num_left),
        )

    def _has_room(
        self,
        sequence: Sequence,
        step: SequenceStep,
        chosen: dict[SequenceId, SequenceStep],
        requeue: Callable[[Sequence], None],
    ) -> bool:
        """Reserve a step's room, sending younger sequences back to the queue if need be."""
        while not self._room.reserve(sequence.sequence_id, step.past_len + step.num_tokens):
            younger = [
                other
                for other in self._running.values()
                if other.arrival > sequence.arrival
                and other.sequence_id not in chosen
                and not self._in_flight.steps_of(other.sequence_id)
            ]
            if not younger:
                return False
            requeue(max(younger, key=_BY_ARRIVAL))
        return True

    # ---- guesses -------------------------------------------------------------------------------

    def _with_drafts(self, sequence: Sequence, step: SequenceStep, max_rows: int) -> SequenceStep:
        num_drafts = min(self._num_drafts(sequence), max_rows - step.num_tokens)
        if not num_drafts:
            return step
        num_drafts = self._with_room(sequence, step.past_len + step.num_tokens, num_drafts)
        return SequenceStep(
            step.sequence_id, step.past_len, step.num_tokens + num_drafts, 1 + num_drafts
        )

    def _num_drafts(self, sequence: Sequence) -> int:
        """Return how many drafts are wanted behind a sequence's newest token, and are there."""
        num_unsent = num_unsent_guesses(sequence)
        if self._speculation is None or not num_unsent:
            return 0
        return min(self._speculation.length_for(sequence, len(self._running)), num_unsent)

    def _guessed(self, held: Collection[SequenceId]) -> list[SequenceStep]:
        """Choose steps that stand on guesses, of sequences whose steps before are under way."""
        if self._speculation is None:
            return []
        num_free_rows = self._limits.max_batch_tokens
        chosen: list[SequenceStep] = []
        for sequence in self._running.values():
            num_frames = len(self._in_flight.steps_of(sequence.sequence_id))
            if sequence.sequence_id in held or not 0 < num_frames < self.max_frames:
                continue
            length = self._speculation.length_for(sequence, len(self._running))
            most = min(1 + length, num_free_rows) if length else 0
            past_len = sequence.num_scheduled_tokens
            num = self._with_room(sequence, past_len, min(most, num_unsent_guesses(sequence)))
            if num and len(chosen) < self._max_steps():
                chosen.append(SequenceStep(sequence.sequence_id, past_len, num, num))
                num_free_rows -= num
        return chosen

    def _with_room(self, sequence: Sequence, past_len: int, num_guesses: int) -> int:
        """Return how many of the next guesses have room, which is reserved.

        They may have what the sequence holds already, and blocks that are free after each running
        sequence has taken one: nobody is sent back for a guess.
        """
        num_spare = max(self._room.free_blocks - len(self._running), 0)
        held = self._room.blocks_for(past_len)
        room = (held + num_spare) * self._limits.block_tokens - past_len
        num_guesses = max(min(num_guesses, room), 0)
        has_room = self._room.reserve(sequence.sequence_id, past_len + num_guesses)
        return num_guesses if has_room else 0


def _is_prefilling(sequence: Sequence) -> bool:
    return sequence.state is SequenceState.PREFILL

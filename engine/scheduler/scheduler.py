"""Which sequences form the next micro-batch, and what its answer means.

Owns the queue, the running sequences and the record of what is in flight; knows no clock, no
socket, no model. The head drives it with three verbs: ``next_micro_batch``, send it down the
chain, ``apply`` what comes back.

Fairness is two orders. The queue is strictly first come, first served: a short prompt does not
overtake a long one that waits for room. Among running sequences the one served longest ago comes
first, whether it decodes or prefills, so neither can starve the other.

Room in the caches is given as tokens come. When it runs out, what is kept of ended sequences goes
first; then the youngest sequence that is not in flight goes back to the queue and is computed again
later; the oldest goes on, so everything ends.

With speculation there are two verbs more, of ``drafts``: ask a drafter for what is ``wanted``, and
``offer`` what it guesses. It is sent with the steps; the answer says how much of it held.

The head keeps one duty: before any frame, whether there is one or not, it tells the stages what
``take_changes`` returns.
"""

from __future__ import annotations

from bisect import insort
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np

from engine.domain import MicroBatch
from engine.errors import KVCacheFullError, LocalProtocolError
from engine.scheduler.answers import check_answer, is_lost
from engine.scheduler.cache_room import CacheRoom
from engine.scheduler.draft_exchange import DraftExchange
from engine.scheduler.in_flight import InFlight
from engine.scheduler.load import SchedulerLoad
from engine.scheduler.request import Sequence, SequenceInput, SequenceState
from engine.scheduler.step_choice import StepChoice

if TYPE_CHECKING:
    from collections.abc import Collection

    from engine.domain import SampledRow, SampledTokens, SequenceId, SequenceStep
    from engine.scheduler.cache_room import Closed, Opened
    from engine.scheduler.limits import SchedulerLimits
    from engine.scheduler.speculation import Speculation

_BY_ARRIVAL = attrgetter("arrival")


class Scheduler:
    """The sequences of one placement epoch.

    Attributes:
        num_stale_results: Batches and rows dropped; of interest when it grows.
        drafts: Says whose guesses are wanted, and takes them.
    """

    def __init__(
        self, limits: SchedulerLimits, epoch: int, speculation: Speculation | None = None
    ) -> None:
        """Begin with none.

        Args:
            limits: Of the placement; checked here.
            epoch: Of the placement. The next one takes a new scheduler, which is given what
                ``withdraw`` of the old one returns; answers of another epoch are dropped.
            speculation: None where nothing is guessed.
        """
        self._limits = limits.checked()
        self._epoch = epoch
        self._waiting: list[Sequence] = []  # in order of arrival
        self._running: dict[SequenceId, Sequence] = {}  # served longest ago first
        self._in_flight = InFlight()
        self._room = CacheRoom(limits, self._in_flight)
        self._speculation = speculation
        self._choice = StepChoice(
            self._limits, self._running, self._in_flight, self._room, speculation
        )
        self.drafts = DraftExchange(
            self._running, self._in_flight, self._choice, speculation, limits.vocab_size
        )
        self._num_batches = 0
        self._num_arrivals = 0
        self.num_stale_results = 0

    # ---- sequences come and go -----------------------------------------------------------------

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence.

        Args:
            sequence: New, or withdrawn from another scheduler; it waits.

        Raises:
            LocalProtocolError: It does not wait, or its id is in use.
            KVCacheFullError: Alone in the caches it would not fit to its end.
        """
        if sequence.state is not SequenceState.WAITING or self._find(sequence.sequence_id):
            raise LocalProtocolError(
                f"Sequence {sequence.sequence_id} can't be queued: it is "
                f"{sequence.state.name}, or its id is in use."
            )
        required_blocks = self._room.blocks_for(sequence.max_length)
        if required_blocks > self._room.total_blocks:
            raise KVCacheFullError(required_blocks, self._room.total_blocks)
        self._num_arrivals += 1
        sequence.arrival = self._num_arrivals
        self._waiting.append(sequence)

    def cancel(self, sequence_id: SequenceId) -> None:
        """End a sequence that is no longer wanted; nothing happens for one that is not here."""
        self._end(sequence_id, SequenceInput.CANCEL)

    def finish(self, sequence_id: SequenceId) -> None:
        """End a sequence at a stop token or string; nothing happens for one that is not here.

        One that reaches its token limit is ended by ``apply`` already.
        """
        self._end(sequence_id, SequenceInput.FINISH)

    def fail(self, batch_id: int) -> tuple[SequenceId, ...]:
        """End every sequence of a micro-batch that failed.

        Returns:
            The sequences that are ended by it.
        """
        failed = self._drop_batch(batch_id)
        for sequence_id in failed:
            self._end(sequence_id, SequenceInput.FAIL)
        return failed

    def replay(self, batch_id: int) -> tuple[SequenceId, ...]:
        """Compute every sequence of a micro-batch that failed again from its beginning.

        Returns:
            The sequences that begin again; their committed tokens stay.
        """
        replayed = self._drop_batch(batch_id)
        for sequence_id in replayed:
            self.rewind(sequence_id, 0)
        return replayed

    def rewind(self, sequence_id: SequenceId, length: int) -> None:
        """Take a running sequence's caches as valid for ``[0, length)`` only.

        What it has in flight is dropped when it comes back.

        Args:
            sequence_id: Of a running sequence.
            length: From 0 to the number of tokens computed.

        Raises:
            LocalProtocolError: It is not running, or not that far.
        """
        sequence = self._running.get(sequence_id)
        if sequence is None:
            raise LocalProtocolError(f"Sequence {sequence_id} is not running.")
        sequence.rewind(length)
        sequence.advance(SequenceInput.REWIND)
        self._in_flight.strike_out(sequence_id)
        if self._room.shares_from(sequence_id, length):
            self._requeue(sequence)  # what others read can't be written again: it begins anew

    def withdraw(self) -> tuple[Sequence, ...]:
        """Hand back every sequence that has not ended, in order of arrival, ready to be queued."""
        for sequence in list(self._running.values()):
            self._requeue(sequence)
        withdrawn = tuple(self._waiting)
        self._waiting.clear()
        self._room.clear()
        self._in_flight.clear()
        return withdrawn

    # ---- the verbs of the loop -----------------------------------------------------------------

    def next_micro_batch(self, held: Collection[SequenceId] = ()) -> MicroBatch | None:
        """Return the next micro-batch and count it as in flight.

        Args:
            held: Sequences that wait a little for guesses; no step of theirs is sent.

        Returns:
            Decodes first, then prefill chunks; ``token_ids`` int32 ``[num_tokens]``. None where
            nothing is ready, or as much as is allowed is in flight.
        """
        if len(self._in_flight) >= self._choice.max_in_flight:
            return None
        self._admit()
        steps = self._choice.next_steps(held, self._requeue)
        if not steps:
            return None
        batch = MicroBatch(
            batch_id=self._num_batches,
            epoch=self._epoch,
            steps=tuple(steps),
            token_ids=np.concatenate([
                self._running[step.sequence_id].token_ids(
                    step.past_len, step.past_len + step.num_tokens
                )
                for step in steps
            ]),
        )
        self._num_batches += 1
        self._in_flight.record(batch.batch_id, batch.steps)
        for step in steps:
            sequence = self._running.pop(step.sequence_id)
            sequence.schedule(step.num_tokens)
            self._running[step.sequence_id] = sequence  # served last
        return batch

    def apply(self, result: SampledTokens) -> list[tuple[SequenceId, tuple[int, ...]]]:
        """Take the last stage's answer to a micro-batch.

        Args:
            result: Of any batch; one that is not in flight, or of another epoch, is dropped and
                counted, and so is the row of a sequence that was struck out.

        Returns:
            The sequences that have new tokens, with these, in the order of the batch. A sequence
            at its limit is finished; one whose step was dropped is computed from its beginning.

        An answer that does not fit the batch raises ``RemoteProtocolError``; nothing is changed.
        """
        steps = self._in_flight.steps(result.batch_id)
        if steps is None or result.epoch != self._epoch:
            self.num_stale_results += 1
            return []
        rows = {row.sequence_id: row for row in result.rows}
        for step in steps.values():
            check_answer(self._running[step.sequence_id], step, rows.get(step.sequence_id))
        self._in_flight.forget(result.batch_id)
        self.num_stale_results += len(rows.keys() - steps.keys())
        committed = []
        for step in steps.values():
            sequence = self._running[step.sequence_id]
            if is_lost(step, rows.get(step.sequence_id)):
                self.rewind(step.sequence_id, 0)
                sequence.num_losses += 1
            elif step.num_logits:
                new_ids = self._commit(sequence, step, rows[step.sequence_id])
                committed.append((step.sequence_id, new_ids))
            else:
                sequence.confirm(step.num_tokens)
        return committed

    def take_changes(self) -> tuple[Opened | Closed, ...]:
        """Return which sequences begin and end on the stages since the last call, in order.

        The stages must be told before the next micro-batch arrives.
        """
        return self._room.take_changes()

    def standing(self, sequence_id: SequenceId) -> tuple[int, int]:
        """Return a sequence's place in the queue, from 1, or 0; and its computed tokens."""
        running = self._running.get(sequence_id)
        if running is not None:
            return 0, running.num_computed_tokens
        for place, sequence in enumerate(self._waiting, start=1):
            if sequence.sequence_id == sequence_id:
                return place, 0
        return 0, 0

    def load(self) -> SchedulerLoad:
        """Count what is waiting, running and in flight."""
        return SchedulerLoad(
            num_waiting=len(self._waiting),
            num_running=len(self._running),
            num_batches_in_flight=len(self._in_flight),
            free_blocks=self._room.free_blocks,
            total_blocks=self._room.total_blocks,
            kept_blocks=self._room.kept_blocks,
            kept_ids=self._room.kept_ids,
        )

    def check_integrity(self) -> None:
        """Check what must hold between any two calls; cheap enough for whenever nothing runs.

        Raises:
            LocalProtocolError: Blocks, queue and record of what is in flight disagree.
        """
        checks = {
            "blocks are lost": not self._room.is_whole,
            "blocks are held for what does not run": not self._room.is_held_by(self._running),
            "the queue is out of order": self._is_queue_out_of_order(),
            "steps in flight and counters disagree": self._are_counters_wrong(),
        }
        problems = [problem for problem, is_wrong in checks.items() if is_wrong]
        if problems:
            raise LocalProtocolError(f"The scheduler is inconsistent: {', '.join(problems)}.")

    # ---- forming a micro-batch -----------------------------------------------------------------

    def _admit(self) -> None:
        """Let sequences in from the front of the queue while there is room."""
        while self._waiting and len(self._running) < self._limits.max_sequences:
            sequence = self._waiting[0]
            num_cached = self._room.open(sequence, len(self._running))
            if num_cached is None:
                return
            sequence.advance(SequenceInput.ADMIT)
            sequence.begin_at(num_cached)
            self._running[sequence.sequence_id] = self._waiting.pop(0)

    # ---- bookkeeping ---------------------------------------------------------------------------

    def _find(self, sequence_id: SequenceId) -> Sequence | None:
        waiting = (other for other in self._waiting if other.sequence_id == sequence_id)
        return self._running.get(sequence_id) or next(waiting, None)

    def _end(self, sequence_id: SequenceId, event: SequenceInput) -> None:
        sequence = self._find(sequence_id)
        if sequence is None:
            return
        sequence.advance(event)
        self._in_flight.strike_out(sequence_id)
        if self._speculation is not None:
            self._speculation.forget(sequence_id)
        if self._running.pop(sequence_id, None) is None:
            self._waiting.remove(sequence)
        elif event is SequenceInput.FINISH:
            self._room.end(sequence)
        else:
            self._room.close(sequence_id)

    def _requeue(self, sequence: Sequence) -> None:
        sequence.advance(SequenceInput.PREEMPT)
        sequence.rewind(0)
        del self._running[sequence.sequence_id]
        self._room.close(sequence.sequence_id)
        insort(self._waiting, sequence, key=_BY_ARRIVAL)

    def _drop_batch(self, batch_id: int) -> tuple[SequenceId, ...]:
        steps = self._in_flight.steps(batch_id)
        if steps is None:
            self.num_stale_results += 1
            return ()
        for sequence_id in self._in_flight.struck_out_of(batch_id):
            self._room.forget_kept(sequence_id)  # a stage has freed it, or never got the frame
        self._in_flight.forget(batch_id)
        return tuple(steps)

    def _commit(self, sequence: Sequence, step: SequenceStep, row: SampledRow) -> tuple[int, ...]:
        """Take a checked row; where a guess did not hold, what stands on it counts no more."""
        sequence.confirm(step.num_tokens - step.num_logits + len(row.token_ids))
        new_ids = sequence.commit(row.token_ids)
        if sequence.num_scheduled_tokens == sequence.num_computed_tokens:
            self._in_flight.strike_out(step.sequence_id)
        if self._speculation is not None:
            num_drafted, num_accepted = step.num_logits - 1, len(row.token_ids) - 1
            self._speculation.answered(step.sequence_id, num_drafted, num_accepted)
        if sequence.is_at_limit:
            self.finish(step.sequence_id)
        return new_ids

    def _is_queue_out_of_order(self) -> bool:
        arrivals = [sequence.arrival for sequence in self._waiting]
        return arrivals != sorted(set(arrivals))

    def _are_counters_wrong(self) -> bool:
        return not all(
            sequence.is_consistent_with(self._in_flight.steps_of(sequence.sequence_id))
            for sequence in self._running.values()
        )

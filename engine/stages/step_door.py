"""Which steps a stage computes: those that can count.

Of a sequence whose micro-batch failed here nothing is computed until it begins anew: its caches are
gone, and a frame that was sent before the head knew must not fail the others in it. All stages do
that. What follows is the last one's, which knows what was drawn: it computes those steps that go on
where the truth has come to.

The head may send a sequence's next frame before the one before is answered, on the guess that all
its drafts hold and that the token behind them is the one the next frame begins with. Where the
guess was wrong, that frame and all that follow it are *stale*, and are dropped at the last stage's
door until one comes that begins with the token that was drawn. No number says which are: what a
step begins with and where it lies does.

The *front* of a sequence is the first position whose token is not computed, and that token as far
as it is known: behind a prefill chunk without logits it is not, behind a draw it is the last one
kept. A step that begins behind the front, or at it with another token, is stale. One that begins
before it is a rewind, which the head asks for with committed tokens only.

Why that is enough: frames of a sequence are taken in the order in which they were sent, and the
head sends one line of tokens, each frame beginning where the one before ended. Say the line is
wrong from position j on, and right before. The frame that has j is cut there, or dropped because it
begins there: the front stays at j. Every later frame of that line begins behind j, so behind the
front, and is dropped. The first one that is not was sent after the head had heard of the draw at j,
with a line that is right up to and including it. By induction every step that is let in stands on a
right line, and so do the caches of the stages before, which hold what was fed last at each
position. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from engine.domain import SampledRow

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from engine.domain import MicroBatch, SequenceId, SequenceStep


class _Front(NamedTuple):
    """How far a sequence has come."""

    position: int
    token_id: int | None  # None where it was not drawn here


class StepDoor:
    """What a stage knows of the sequences whose steps arrive."""

    def __init__(self, *, knows_draws: bool) -> None:
        """Begin with no sequence.

        Args:
            knows_draws: Whether this is the last stage.
        """
        self._knows_draws = knows_draws
        self._fronts: dict[SequenceId, _Front] = {}
        self._lost: set[SequenceId] = set()

    def dropped(self, batch: MicroBatch) -> frozenset[SequenceId]:
        """Return the sequences whose step in a batch can't count; nothing is changed.

        Args:
            batch: Its first token of each step is looked at.
        """
        first = 0
        dropped: list[SequenceId] = []
        for step in batch.steps:
            is_lost = step.sequence_id in self._lost and step.past_len > 0
            if is_lost or self._is_stale(step, int(batch.token_ids[first])):
                dropped.append(step.sequence_id)
            first += step.num_tokens
        return frozenset(dropped)

    def _is_stale(self, step: SequenceStep, first_id: int) -> bool:
        front = self._fronts.get(step.sequence_id)
        if front is None or step.past_len < front.position:
            return False
        return step.past_len > front.position or front.token_id not in {None, first_id}

    def advance(self, steps: Iterable[SequenceStep], rows: Iterable[SampledRow]) -> None:
        """Note what was computed and drawn.

        Args:
            steps: Those that were let in.
            rows: Of the steps with logits; none on a stage that is not the last.
        """
        drawn = {row.sequence_id: row for row in rows}
        for step in steps:
            self._lost.discard(step.sequence_id)
            row = drawn.get(step.sequence_id)
            if row is not None:
                front = _Front(row.first_position + len(row.token_ids) - 1, row.token_ids[-1])
                self._fronts[step.sequence_id] = front
            elif self._knows_draws:
                self._fronts[step.sequence_id] = _Front(step.past_len + step.num_tokens, None)

    def lose(self, steps: Iterable[SequenceStep]) -> None:
        """Note that a micro-batch failed.

        Args:
            steps: Those that were let in.
        """
        for step in steps:
            self.forget(step.sequence_id)
            self._lost.add(step.sequence_id)

    def forget(self, sequence_id: SequenceId) -> None:
        """Let a sequence begin wherever its next step does; nothing happens for a stranger."""
        self._fronts.pop(sequence_id, None)
        self._lost.discard(sequence_id)


def without(batch: MicroBatch, dropped: Collection[SequenceId]) -> MicroBatch | None:
    """Return a batch without the steps of some sequences; None where nothing is left.

    Args:
        batch: Rows of ``token_ids`` and ``hidden_states`` belong to its steps, in order.
        dropped: Whose steps are left out.
    """
    steps = tuple(step for step in batch.steps if step.sequence_id not in dropped)
    if len(steps) == len(batch.steps):
        return batch
    if not steps:
        return None
    lengths = [step.num_tokens for step in batch.steps]
    is_kept = np.repeat([step.sequence_id not in dropped for step in batch.steps], lengths)
    return batch.taking(steps, is_kept)


def empty_row(step: SequenceStep) -> SampledRow:
    """Return the answer to a step that was dropped: no token."""
    first_position = step.past_len + step.num_tokens - step.num_logits + 1
    return SampledRow(step.sequence_id, first_position, ())

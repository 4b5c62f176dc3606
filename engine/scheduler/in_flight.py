"""What is under way: the steps of each micro-batch whose answers still count.

A sequence that is cancelled, rewound or failed meanwhile is struck out, and its part of the
answer is dropped when it comes. The micro-batch itself stays: it still occupies the chain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.domain import SequenceId, SequenceStep


class InFlight:
    """Micro-batches in the order in which they were sent."""

    def __init__(self) -> None:
        """Begin with none."""
        self._batches: dict[int, dict[SequenceId, SequenceStep]] = {}

    def __len__(self) -> int:
        return len(self._batches)

    def record(self, batch_id: int, steps: tuple[SequenceStep, ...]) -> None:
        """Note a micro-batch that is sent now."""
        self._batches[batch_id] = {step.sequence_id: step for step in steps}

    def steps(self, batch_id: int) -> Mapping[SequenceId, SequenceStep] | None:
        """Return the steps of a micro-batch that still count; None if it is not in flight."""
        return self._batches.get(batch_id)

    def steps_of(self, sequence_id: SequenceId) -> tuple[SequenceStep, ...]:
        """Return a sequence's steps in the order in which they were sent."""
        return tuple(steps[sequence_id] for steps in self._batches.values() if sequence_id in steps)

    def forget(self, batch_id: int) -> None:
        """Drop a micro-batch that is answered or lost."""
        del self._batches[batch_id]

    def strike_out(self, sequence_id: SequenceId) -> None:
        """Let no step of a sequence count any more."""
        for steps in self._batches.values():
            steps.pop(sequence_id, None)

    def clear(self) -> None:
        """Forget everything."""
        self._batches.clear()

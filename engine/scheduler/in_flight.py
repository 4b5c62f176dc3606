"""What is under way: the steps of each micro-batch whose answers still count.

A sequence that has ended, was rewound or failed meanwhile is struck out, and its part of the
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
        self._struck: dict[int, set[SequenceId]] = {}

    def __len__(self) -> int:
        return len(self._batches)

    def record(self, batch_id: int, steps: tuple[SequenceStep, ...]) -> None:
        """Note a micro-batch that is sent now."""
        self._batches[batch_id] = {step.sequence_id: step for step in steps}
        self._struck[batch_id] = set()

    def steps(self, batch_id: int) -> Mapping[SequenceId, SequenceStep] | None:
        """Return the steps of a micro-batch that still count; None if it is not in flight."""
        return self._batches.get(batch_id)

    def steps_of(self, sequence_id: SequenceId) -> tuple[SequenceStep, ...]:
        """Return a sequence's steps in the order in which they were sent."""
        return tuple(steps[sequence_id] for steps in self._batches.values() if sequence_id in steps)

    def forget(self, batch_id: int) -> None:
        """Drop a micro-batch that is answered or lost."""
        del self._batches[batch_id]
        del self._struck[batch_id]

    def strike_out(self, sequence_id: SequenceId) -> None:
        """Let no step of a sequence count any more."""
        for batch_id, steps in self._batches.items():
            if steps.pop(sequence_id, None) is not None:
                self._struck[batch_id].add(sequence_id)

    def struck_out_of(self, batch_id: int) -> frozenset[SequenceId]:
        """Return the sequences that have a step in a micro-batch which does not count any more."""
        return frozenset(self._struck.get(batch_id, ()))

    def has_sent(self, sequence_id: SequenceId) -> bool:
        """Whether any step of a sequence is under way, whether it counts or not."""
        return any(
            sequence_id in steps or sequence_id in self._struck[batch_id]
            for batch_id, steps in self._batches.items()
        )

    def clear(self) -> None:
        """Forget everything."""
        self._batches.clear()
        self._struck.clear()

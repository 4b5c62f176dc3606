"""How busy a scheduler is, in numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.domain import SequenceId


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerLoad:
    """How busy the scheduler is.

    Attributes:
        num_waiting: Sequences in the queue.
        num_running: Sequences with caches of their own.
        num_batches_in_flight: Micro-batches under way.
        free_blocks: What is kept of ended sequences counts as free: it goes where room is needed.
        total_blocks: For all sequences together.
        kept_blocks: Of the free ones, those that the stages still hold for ended sequences.
        kept_ids: Ended sequences that are kept, the one used longest ago first.
    """

    num_waiting: int
    num_running: int
    num_batches_in_flight: int
    free_blocks: int
    total_blocks: int
    kept_blocks: int
    kept_ids: tuple[SequenceId, ...]

"""What the scheduler must keep to, as the placement and its stages allow."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

from engine.errors import UsageError
from engine.scheduler.row_costs import RowCosts


class PrefixReuse(Enum):
    """How a new sequence begins with what is kept of an ended one."""

    NONE = auto()  # nothing is kept
    SHARED = auto()  # every stage shares the blocks
    TAKEN_OVER = auto()  # some stage hands a whole state over, and what was kept is used up


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerLimits:
    """Limits of one placement.

    Attributes:
        max_tokens: KV room over all sequences together: the least of any stage.
        block_tokens: Tokens of one KV block: the most of any stage.
        max_sequences: Sequences that may run at once, and so in one micro-batch.
        num_stages: With two or more, the running sequences are divided among the micro-batches
            in flight, so that every stage is busy; one stage runs them together.
        max_batches_in_flight: None means as many as stages.
        chunk_tokens: Longest prefill chunk of one sequence in a micro-batch. A chunk of 256 rows
            is compute-bound on every device. How long it is, ``row_costs`` say.
        max_batch_tokens: Rows of a micro-batch, decodes and chunks together.
        max_chunks_in_flight: Prefill chunks of one sequence that may follow each other down the
            chain. More than 1 shortens the time to first token on two stages or more, and needs
            a chain that keeps the order of frames; where nobody decodes, one more may wait.
        vocab_size: Ids below it can be fed; guesses of others are not.
        prefix_reuse: What is kept of ended sequences, in room that nobody needs.
        row_costs: What a pass costs by its rows. Where nothing was measured, every chunk is as
            long as it may be.
    """

    max_tokens: int
    block_tokens: int
    max_sequences: int
    num_stages: int = 1
    max_batches_in_flight: int | None = None
    chunk_tokens: int = 256
    max_batch_tokens: int = 512
    max_chunks_in_flight: int = 1
    vocab_size: int = 2**31
    prefix_reuse: PrefixReuse = PrefixReuse.NONE
    row_costs: RowCosts = field(default_factory=RowCosts)

    @property
    def batches_in_flight(self) -> int:
        """Micro-batches that may be under way at once."""
        limit = self.max_batches_in_flight
        return self.num_stages if limit is None else limit

    @property
    def num_groups(self) -> int:
        """Micro-batches the running sequences are divided among."""
        return self.batches_in_flight if self.num_stages > 1 else 1

    def checked(self) -> SchedulerLimits:
        """Return self if the limits leave work possible.

        Raises:
            UsageError: One of them is below 1, or they contradict each other.
        """
        for name in (
            "block_tokens",
            "max_sequences",
            "num_stages",
            "batches_in_flight",
            "chunk_tokens",
            "max_chunks_in_flight",
        ):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}; it must be 1 or more.")
        if self.max_tokens < self.block_tokens:
            raise UsageError(
                f"max_tokens is {self.max_tokens}; it must hold a block of {self.block_tokens}."
            )
        if self.max_batch_tokens < self.max_sequences:
            raise UsageError(
                f"max_batch_tokens is {self.max_batch_tokens}; it must be at least the "
                f"{self.max_sequences} of max_sequences."
            )
        return self

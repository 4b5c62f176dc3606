"""One sequence's life at the head: its state, its tokens, and how far they are computed.

Two rules. Every change of state goes through ``TRANSITIONS``; a pair that is not in it is a fault
of ours and raises in one place. A committed token is never taken back: a rewind says only that
the caches are valid no further, and what lies beyond is computed again.

The tokens of a sequence are three runs, kept by two counters::

    0          num_computed          num_scheduled          num_tokens
    | computed | in a micro-batch now | to be scheduled next |
    the prompt comes first; everything from num_prompt_tokens on is the answer

Prefill and decode are the same thing to the caches: decode is the case of one token to go. A
sequence that is replayed after a failure prefills prompt and answer alike. Behind the committed
tokens there may be guesses (``TokenLine``); while it decodes, those may be scheduled as well, and
num_scheduled then lies beyond num_tokens.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

from engine.errors import ContextTooLongError, LocalProtocolError, UsageError
from engine.scheduler.kept_prefixes import chained_hash
from engine.scheduler.token_line import TokenLine

if TYPE_CHECKING:
    from collections.abc import Sequence as OrderedItems

    import numpy as np
    from numpy.typing import NDArray

    from engine.domain import SequenceId, SequenceStep


class SequenceState(Enum):
    """Where a sequence is in its life."""

    WAITING = auto()  # queued; no stage holds anything for it
    PREFILL = auto()  # running; the newest token is not sampled from yet
    DECODE = auto()  # running; one new token at a time
    FINISHED = auto()
    CANCELLED = auto()
    FAILED = auto()


class SequenceInput(Enum):
    """What can happen to a sequence."""

    ADMIT = auto()  # there is room in the caches
    COMMIT = auto()  # the last stage drew the next token
    REWIND = auto()  # the caches are valid no further than a given length
    PREEMPT = auto()  # its room in the caches goes to an older sequence
    FINISH = auto()  # a stop token, a stop string, or the token limit
    CANCEL = auto()  # the asker wants no more
    FAIL = auto()  # a stage could not compute it


TRANSITIONS: dict[tuple[SequenceState, SequenceInput], SequenceState] = {
    (SequenceState.WAITING, SequenceInput.ADMIT): SequenceState.PREFILL,
    (SequenceState.WAITING, SequenceInput.CANCEL): SequenceState.CANCELLED,
    (SequenceState.PREFILL, SequenceInput.COMMIT): SequenceState.DECODE,
    (SequenceState.PREFILL, SequenceInput.REWIND): SequenceState.PREFILL,
    (SequenceState.PREFILL, SequenceInput.PREEMPT): SequenceState.WAITING,
    (SequenceState.PREFILL, SequenceInput.CANCEL): SequenceState.CANCELLED,
    (SequenceState.PREFILL, SequenceInput.FAIL): SequenceState.FAILED,
    (SequenceState.DECODE, SequenceInput.COMMIT): SequenceState.DECODE,
    (SequenceState.DECODE, SequenceInput.REWIND): SequenceState.PREFILL,
    (SequenceState.DECODE, SequenceInput.PREEMPT): SequenceState.WAITING,
    (SequenceState.DECODE, SequenceInput.FINISH): SequenceState.FINISHED,
    (SequenceState.DECODE, SequenceInput.CANCEL): SequenceState.CANCELLED,
    (SequenceState.DECODE, SequenceInput.FAIL): SequenceState.FAILED,
}


def check_max_tokens(max_tokens: int | None, prompt_tokens: int, context_tokens: int) -> int:
    """Return how many tokens the answer may have; nothing is reserved for them.

    Args:
        max_tokens: As asked, from 1; None means until the context is full. More than fits is
            cut to what fits.
        prompt_tokens: Tokens of the rendered prompt.
        context_tokens: Tokens the model can hold, prompt and answer together.

    Raises:
        UsageError: ``max_tokens`` is 0 or negative.
        ContextTooLongError: The prompt leaves no room for a single token.
    """
    if max_tokens is not None and max_tokens < 1:
        raise UsageError(f"max_tokens is {max_tokens}; it must be 1 or more, or left out.")
    room = context_tokens - prompt_tokens
    if room < 1:
        raise ContextTooLongError(prompt_tokens, context_tokens)
    return room if max_tokens is None else min(max_tokens, room)


class Sequence:
    """A prompt and the answer being extended from it.

    Attributes:
        sequence_id: Given out by the head.
        num_prompt_tokens: Where the answer begins.
        max_output_tokens: The answer ends there at the latest.
        state: Changed by ``advance`` only.
        arrival: Its number in order of arrival; set by the scheduler.
        num_computed_tokens: Confirmed to be in the caches of every stage.
        num_scheduled_tokens: Those, and what is in a micro-batch now.
        prefill_start: Tokens that were in the caches when its computing began, or began again.
        reuses_prefix: Whether its caches are shared with other requests, before and after it.
        speculates: Whether it may be guessed how it goes on.
        line: Its tokens, those that are guessed behind those that are committed.
        num_drafted_tokens: Guesses that were sent to the stages.
        num_accepted_tokens: Those of them that became part of the answer.
        num_losses: Steps of it that a stage has dropped since its newest token.
    """

    __slots__ = (
        "_block_hashes",
        "arrival",
        "line",
        "max_output_tokens",
        "num_accepted_tokens",
        "num_computed_tokens",
        "num_drafted_tokens",
        "num_losses",
        "num_prompt_tokens",
        "num_scheduled_tokens",
        "prefill_start",
        "reuses_prefix",
        "sequence_id",
        "speculates",
        "state",
    )

    def __init__(
        self,
        sequence_id: SequenceId,
        prompt_ids: OrderedItems[int],
        max_output_tokens: int,
        output_ids: OrderedItems[int] = (),
        *,
        reuses_prefix: bool = True,
        speculates: bool = True,
    ) -> None:
        """Begin to wait.

        Args:
            sequence_id: Given out by the head.
            prompt_ids: Token ids of the rendered prompt, at least one.
            max_output_tokens: From ``check_max_tokens``.
            output_ids: What is already committed, where an answer goes on after a failure.
            reuses_prefix: Whether its caches may be shared with other requests.
            speculates: Whether it may be guessed how it goes on.

        Raises:
            UsageError: The prompt is empty.
            LocalProtocolError: The answer already has all the tokens it may have.
        """
        if not prompt_ids:
            raise UsageError("The prompt is empty; there is nothing to continue.")
        if len(output_ids) >= max_output_tokens:
            raise LocalProtocolError(
                f"Sequence {sequence_id} may have {max_output_tokens} tokens of answer and "
                f"already has {len(output_ids)}."
            )
        self.sequence_id = sequence_id
        self.num_prompt_tokens = len(prompt_ids)
        self.max_output_tokens = max_output_tokens
        self.state = SequenceState.WAITING
        self.arrival = 0
        self.num_computed_tokens = 0
        self.num_scheduled_tokens = 0
        self.prefill_start = 0
        self.num_drafted_tokens = 0
        self.num_accepted_tokens = 0
        self.num_losses = 0
        self.reuses_prefix = reuses_prefix
        self.speculates = speculates
        self.line = TokenLine([*prompt_ids, *output_ids])
        self._block_hashes: list[bytes] = []

    @property
    def num_tokens(self) -> int:
        """Committed tokens, prompt and answer together."""
        return self.line.num_committed

    @property
    def num_output_tokens(self) -> int:
        """Committed tokens of the answer."""
        return self.num_tokens - self.num_prompt_tokens

    @property
    def max_length(self) -> int:
        """Tokens it has at most when it ends, prompt and answer together."""
        return self.num_prompt_tokens + self.max_output_tokens

    @property
    def is_at_limit(self) -> bool:
        """Whether the answer has all the tokens it may have."""
        return self.num_output_tokens >= self.max_output_tokens

    @property
    def output_ids(self) -> tuple[int, ...]:
        """The committed answer."""
        return tuple(self.line.ids(self.num_prompt_tokens, self.num_tokens).tolist())

    def token_ids(self, start: int, stop: int) -> NDArray[np.int32]:
        """Return the ids of positions ``[start, stop)``, int32 ``[stop - start]``.

        Guesses lie behind the committed ones.
        """
        return self.line.ids(start, stop)

    def block_hashes(self, num_blocks: int, block_tokens: int) -> tuple[bytes, ...]:
        """Return the chained hashes of the first blocks of committed tokens.

        Args:
            num_blocks: Whole ones; they are made once, for what is committed stays.
            block_tokens: The same in every call.
        """
        hashes = self._block_hashes
        for number in range(len(hashes), num_blocks):
            start = number * block_tokens
            ids = self.token_ids(start, start + block_tokens)
            hashes.append(chained_hash(hashes[-1] if hashes else b"", ids))
        return tuple(hashes[:num_blocks])

    def advance(self, event: SequenceInput) -> None:
        """Go to the state the table gives.

        Args:
            event: What happened.

        Raises:
            LocalProtocolError: It can't happen in this state.
        """
        after = TRANSITIONS.get((self.state, event))
        if after is None:
            raise LocalProtocolError(
                f"Sequence {self.sequence_id} is {self.state.name} and got {event.name}."
            )
        self.state = after

    def begin_at(self, num_tokens: int) -> None:
        """Note that its first tokens are in the caches already; nothing else was computed."""
        self.num_computed_tokens = self.num_scheduled_tokens = self.prefill_start = num_tokens

    def schedule(self, num_tokens: int) -> None:
        """Note that the next tokens went into a micro-batch."""
        before = max(self.num_scheduled_tokens, self.num_tokens)
        self.num_scheduled_tokens += num_tokens
        self.num_drafted_tokens += max(self.num_scheduled_tokens - before, 0)

    def confirm(self, num_tokens: int) -> None:
        """Note that the oldest tokens in flight are in every stage's cache."""
        self.num_computed_tokens += num_tokens

    def commit(self, token_ids: tuple[int, ...]) -> tuple[int, ...]:
        """Append what the last stage drew, up to the limit of the answer.

        Where it is not what was guessed, the guesses fall and nothing is in flight any more.

        Args:
            token_ids: In order; with drafts, those that hold and the one behind them. What they
                were drawn from is confirmed already.

        Returns:
            The ids that were appended.
        """
        self.advance(SequenceInput.COMMIT)
        self.num_losses = 0
        fitting = token_ids[: self.max_output_tokens - self.num_output_tokens]
        num_guessed = self.line.num_guessed
        num_sent = max(self.num_scheduled_tokens - self.num_tokens, 0)
        num_held = self.line.commit(fitting)
        self.num_accepted_tokens += min(num_held, num_sent)
        if num_held < min(len(fitting), num_guessed):
            self.num_scheduled_tokens = self.num_computed_tokens
        return fitting

    def rewind(self, length: int) -> None:
        """Note that the caches are valid for ``[0, length)`` only, and nothing is in flight.

        Args:
            length: From 0 to ``num_computed_tokens``.

        Raises:
            LocalProtocolError: It is not.
        """
        if not 0 <= length <= self.num_computed_tokens:
            raise LocalProtocolError(
                f"Sequence {self.sequence_id} can't be rewound to {length}: "
                f"{self.num_computed_tokens} of its tokens are computed."
            )
        self.num_computed_tokens = self.num_scheduled_tokens = self.prefill_start = length
        self.line.drop_guesses()

    def is_consistent_with(self, steps: tuple[SequenceStep, ...]) -> bool:
        """Whether the steps in flight lead from the one counter to the other without a gap."""
        reached = self.num_computed_tokens
        for step in steps:
            if step.past_len != reached:
                return False
            reached += step.num_tokens
        return reached == self.num_scheduled_tokens <= self.line.length

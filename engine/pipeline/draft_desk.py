"""Where the head has its sequences guessed: a drafter beside the loop that sends frames.

A drafter that answers at once is heard before the next frame is formed. For a slower one a
sequence waits a little, as long as that can pay, and then goes on without; what comes later is sent
behind the frame that is under way.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, NamedTuple, Protocol

from engine.scheduler.circuit import Circuit
from engine.scheduler.drafting import DraftLengths
from engine.scheduler.speculation import Speculation

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.domain import MicroBatch, SampledTokens, SequenceId
    from engine.scheduler.draft_exchange import DraftExchange
    from engine.scheduler.drafting import Drafter, DraftRequest

_NOBODY: frozenset[SequenceId] = frozenset()
_FIRST_PATIENCE_S = 0.02  # before any frame has come back
# Of the way round the chain: with a draft that holds by half, waiting for so long is won back.
_PATIENCE = 0.5


class MeasuredDraftLengths(DraftLengths, Protocol):
    """Chooses by what it is told of times."""

    def took_circuit(self, num_rows: int, circuit_s: float, compute_s: float) -> None:
        """Take how long a decode frame was under way, and how much of it was computing."""
        ...

    def took_draft(self, num_tokens: int, seconds: float) -> None:
        """Take how long guessing so many tokens took."""
        ...

    def took_tokens(self, sequence_id: SequenceId, num_tokens: int, seconds: float) -> None:
        """Take how long a sequence's newest tokens took."""
        ...


class Guessing(NamedTuple):
    """Who guesses for a head, and who says how far."""

    drafter: Drafter
    lengths: MeasuredDraftLengths


class DraftDesk:
    """Asks a drafter for what a scheduler wants, and keeps the times that go with it.

    Attributes:
        speculation: For the scheduler; None where nobody guesses.

    Thread: the node's loop.
    """

    def __init__(
        self, guessing: Guessing | None, num_stages: int, wake: Callable[[], None]
    ) -> None:
        """Begin with nothing asked.

        Args:
            guessing: Who guesses, and how far; None for nobody.
            num_stages: Of the chain.
            wake: Called when guesses have come, or a sequence has waited long enough for them.
        """
        self.speculation = None if guessing is None else Speculation(guessing.lengths, num_stages)
        self._guessing = guessing
        self._circuit = Circuit(num_stages)
        self._wake = wake
        self._wanted: dict[SequenceId, DraftRequest] = {}
        self._asked_s: dict[SequenceId, float] = {}  # and not answered
        self._wrote_s: dict[SequenceId, float] = {}
        self._ended: list[SequenceId] = []
        self._has_work = asyncio.Event()

    async def ask(self, exchange: DraftExchange) -> frozenset[SequenceId]:
        """Have guessed what is wanted, and give a drafter that is quick the time to answer.

        Args:
            exchange: The scheduler's.

        Returns:
            The sequences whose guesses are worth waiting for still.

        Cancellation: safe.
        """
        wanted = exchange.wanted()
        if wanted:
            now_s = time.monotonic()
            for request in wanted:
                self._wanted[request.sequence_id] = request
                self._asked_s[request.sequence_id] = now_s
            self._has_work.set()
            await asyncio.sleep(0)  # the loop below runs now, up to where its drafter waits
            if self._asked_s:
                asyncio.get_running_loop().call_later(self._patience_s, self._wake)
        if not self._asked_s:
            return _NOBODY
        since_s = time.monotonic() - self._patience_s
        return frozenset(i for i, asked_s in self._asked_s.items() if asked_s > since_s)

    async def run_loop(self, exchange: DraftExchange) -> None:
        """Guess as long as anything is wanted.

        Args:
            exchange: The scheduler's.

        Cancellation: safe.
        """
        while self._guessing is not None:
            await self._has_work.wait()
            self._has_work.clear()
            ended, self._ended = self._ended, []
            for sequence_id in ended:
                await self._guessing.drafter.close(sequence_id)
            requests = list(self._wanted.values())
            self._wanted.clear()
            if requests:
                await self._draft(self._guessing, requests, exchange)

    async def _draft(
        self, guessing: Guessing, requests: list[DraftRequest], exchange: DraftExchange
    ) -> None:
        began_s = time.monotonic()
        drafts = await guessing.drafter.draft(requests)
        num_tokens = max(map(len, drafts), default=0)
        if num_tokens:
            guessing.lengths.took_draft(num_tokens, time.monotonic() - began_s)
        for request, token_ids in zip(requests, drafts, strict=True):
            exchange.offer(request.sequence_id, len(request.token_ids), token_ids)
            if request.sequence_id not in self._wanted:  # not asked for anew meanwhile
                self._asked_s.pop(request.sequence_id, None)
        self._wake()

    def end(self, sequence_id: SequenceId) -> None:
        """Forget a sequence."""
        if self._guessing is None:
            return
        self._wanted.pop(sequence_id, None)
        self._asked_s.pop(sequence_id, None)
        self._wrote_s.pop(sequence_id, None)
        self._ended.append(sequence_id)
        self._has_work.set()

    def sent(self, batch: MicroBatch) -> None:
        """Note that a frame leaves for the chain now; prompts in it say nothing of decodes."""
        if self._guessing is None or any(s.num_logits != s.num_tokens for s in batch.steps):
            return
        self._circuit.sent(batch.batch_id, len(batch.token_ids), time.monotonic())

    def answered(self, tokens: SampledTokens, compute_us: int) -> None:
        """Take how long a frame was under way.

        Args:
            tokens: The answer.
            compute_us: How long the stages computed for it.
        """
        if self._guessing is None:
            return
        is_whole = all(row.token_ids for row in tokens.rows)
        compute_s = compute_us / 1e6 if is_whole else 0.0
        lap = self._circuit.answered(tokens.batch_id, time.monotonic(), compute_s)
        if lap is not None and self.speculation is not None:
            self._guessing.lengths.took_circuit(*lap)
            self.speculation.max_frames = self._circuit.num_frames

    def wrote(self, sequence_id: SequenceId, num_tokens: int, now_s: float) -> None:
        """Note that a sequence has new tokens.

        Args:
            sequence_id: Whose.
            num_tokens: That came together, 1 or more.
            now_s: When, by the steady clock.
        """
        if self._guessing is None:
            return
        before_s = self._wrote_s.get(sequence_id)
        self._wrote_s[sequence_id] = now_s
        if before_s is not None:
            self._guessing.lengths.took_tokens(sequence_id, num_tokens, now_s - before_s)

    @property
    def _patience_s(self) -> float:
        typical_s = self._circuit.typical_s
        return _FIRST_PATIENCE_S if typical_s is None else _PATIENCE * typical_s

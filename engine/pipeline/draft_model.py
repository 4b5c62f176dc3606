"""A small model that guesses what a large one will write, in a stage process of its own.

It runs whole, as one stateful shard that is first and last at once, and draws greedily. Its cache
follows the sequence by rewinds: what was guessed wrong lies behind the next step's ``past_len``.
Nothing it does can end an answer: where it fails, there are no guesses any more.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from engine.domain import MicroBatch, SampledTokens, SequenceStep
from engine.errors import DaisyError, RemoteProtocolError, rebuilt
from engine.messages.chain import BatchFailed, CloseSequence, OpenSequence
from engine.messages.codec import decode, encode_control, encode_micro_batch
from engine.sampling.parameters import SamplingParameters

if TYPE_CHECKING:
    from collections.abc import Sequence as OrderedItems

    from numpy.typing import NDArray

    from engine.domain import SampledRow, SequenceId
    from engine.scheduler.drafting import DraftRequest
    from engine.stages.host import StageProcess

_logger = logging.getLogger(__name__)

PASS_DEADLINE_S = 10.0  # a chunk of a prompt, on a PC that is busy with other programs
CHUNK_TOKENS = 256
_EPOCH = 1
_GREEDY = SamplingParameters()


@dataclass(slots=True)
class _Record:
    """What the draft process has of one sequence.

    Attributes:
        cached_ids: int32, the tokens in its cache; it may hold more behind them.
        front: Position and id of the token it drew last; a step that begins there must begin
            with that token.
    """

    cached_ids: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    front: tuple[int, int] | None = None


@dataclass(slots=True)
class _Line:
    """One sequence while it is being guessed."""

    sequence_id: SequenceId
    record: _Record
    token_ids: NDArray[np.int32]
    num_fed: int
    max_drafts: int
    drafts: list[int] = field(default_factory=list)

    def next_step(self, max_tokens: int) -> tuple[SequenceStep, NDArray[np.int32]]:
        """Return the next step and its tokens; a token is drawn once all are fed."""
        ids = self.token_ids[self.num_fed : self.num_fed + max_tokens]
        is_last = self.num_fed + len(ids) == len(self.token_ids)
        return SequenceStep(self.sequence_id, self.num_fed, len(ids), int(is_last)), ids

    def send(self, step: SequenceStep) -> None:
        """Note that a step is about to be sent: from now on it may have run or not.

        Whoever comes next begins a token before it: a rewind whatever became of the step.
        """
        self.record.cached_ids = self.token_ids[: max(step.past_len - 1, 0)]
        self.record.front = None

    def take(self, step: SequenceStep, row: SampledRow | None) -> None:
        """Note that a step was run, and what was drawn behind it."""
        self.num_fed += step.num_tokens
        self.record.cached_ids = self.token_ids[: self.num_fed]
        self.record.front = None
        if row is not None:
            token_id = row.token_ids[0]
            self.record.front = (self.num_fed, token_id)
            self.drafts.append(token_id)
            self.token_ids = np.append(self.token_ids, np.int32(token_id))


class DraftModel:
    """A ``Drafter`` over a loaded draft model.

    Thread: the node's loop.
    """

    def __init__(self, process: StageProcess, name: str) -> None:
        """Take over a process that has loaded the whole model.

        Args:
            process: Only this object uses it from now on; ``end`` ends it.
            name: The model's, for the log.
        """
        self.name = name
        self._process = process
        self._records: dict[SequenceId, _Record] = {}
        self._num_batches = 0
        self._turn = asyncio.Lock()
        self._failure: DaisyError | None = None
        self._has_failed = asyncio.Event()

    @property
    def failure(self) -> DaisyError | None:
        """Why it guesses no more; None while it does."""
        return self._failure

    @property
    def pid(self) -> int | None:
        """Of its process."""
        return self._process.pid

    async def draft(self, requests: OrderedItems[DraftRequest]) -> list[tuple[int, ...]]:
        """Guess the next tokens of each sequence, greedily; see ``Drafter.draft``.

        Args:
            requests: Of different sequences; they share the passes.

        Returns:
            As many as are asked for; none of any once the process has failed.

        Cancellation: safe; a pass that runs is then nobody's.
        """
        async with self._turn:
            if self._failure is not None:
                return [() for _ in requests]
            try:
                lines = [await self._line(request) for request in requests]
                await self._guess(lines)
            except (DaisyError, TimeoutError) as error:
                await self._give_up(error)
                return [() for _ in requests]
        return [tuple(line.drafts) for line in lines]

    async def close(self, sequence_id: SequenceId) -> None:
        """Free what is kept for a sequence; see ``Drafter.close``."""
        async with self._turn:
            if self._records.pop(sequence_id, None) is None or self._failure is not None:
                return
            try:
                await self._send(_closing(sequence_id))
            except (DaisyError, TimeoutError) as error:
                await self._give_up(error)

    async def wait_failed(self) -> None:
        """Wait until it guesses no more.

        Cancellation: safe.
        """
        await self._has_failed.wait()

    def memory_bytes(self) -> int:
        """Return what its process takes of this PC's memory, without the weights it maps."""
        return self._process.memory_bytes()

    async def end(self) -> None:
        """End the process."""
        await self._process.close()

    # ---- guessing ------------------------------------------------------------------------------

    async def _line(self, request: DraftRequest) -> _Line:
        """Find how much of a sequence is in the cache; open it if it is new."""
        record = self._records.get(request.sequence_id)
        if record is None:
            opening = OpenSequence(
                epoch=_EPOCH,
                sequence_id=request.sequence_id,
                num_prompt_tokens=len(request.token_ids),
                sampling=_GREEDY,
            )
            await self._send(encode_control(opening))
            record = self._records[request.sequence_id] = _Record()
        token_ids = request.token_ids
        num_fed = min(_num_common(record.cached_ids, token_ids), len(token_ids) - 1)
        if record.front is not None and record.front[0] == num_fed:
            # The stage takes a step that begins right behind its cache for what it drew there,
            # and drops it where it is another token; one token earlier it is a rewind.
            num_fed -= int(record.front[1] != token_ids[num_fed])
        return _Line(request.sequence_id, record, token_ids, num_fed, request.max_drafts)

    async def _guess(self, lines: list[_Line]) -> None:
        """Run passes until every sequence has its guesses."""
        while lines:
            steps = [line.next_step(CHUNK_TOKENS) for line in lines]
            for line, (step, _) in zip(lines, steps, strict=True):
                line.send(step)
            rows = await self._pass(steps)
            if rows is None:
                for line in lines:
                    await self._forget(line.sequence_id)
                return
            for line, (step, _) in zip(lines, steps, strict=True):
                line.take(step, rows.get(line.sequence_id) if step.num_logits else None)
            lines = [line for line in lines if len(line.drafts) < line.max_drafts]

    async def _pass(
        self, steps: list[tuple[SequenceStep, NDArray[np.int32]]]
    ) -> dict[SequenceId, SampledRow] | None:
        """Run one pass; return what was drawn, or None where it can't be computed.

        Raises:
            RemoteProtocolError: The answer is none to these steps.
        """
        self._num_batches += 1
        batch = MicroBatch(
            self._num_batches,
            _EPOCH,
            tuple(step for step, _ in steps),
            np.concatenate([ids for _, ids in steps]),
        )
        async with asyncio.timeout(PASS_DEADLINE_S):
            await self._process.send(encode_micro_batch(batch))
            answer = await self._answer(batch.batch_id)
        if isinstance(answer, BatchFailed):
            error = rebuilt(answer.code, answer.what, answer.advice)
            _logger.debug("draft model %s: no guesses this time, %s", self.name, error.what)
            return None
        rows = {row.sequence_id: row for row in answer.rows if row.token_ids}
        if any(step.num_logits and step.sequence_id not in rows for step in batch.steps):
            raise RemoteProtocolError("The draft model's process left a step unanswered.")
        return rows

    async def _answer(self, batch_id: int) -> SampledTokens | BatchFailed:
        """Wait for the answer to a batch; those to passes that were cancelled are dropped.

        Raises:
            RemoteProtocolError: Something else came.
        """
        while True:
            answer = decode(await self._process.receive())
            if not isinstance(answer, SampledTokens | BatchFailed):
                raise RemoteProtocolError(
                    f"The draft model's process answered with {type(answer).__name__}."
                )
            if answer.batch_id == batch_id:
                return answer

    async def _forget(self, sequence_id: SequenceId) -> None:
        """Let a sequence begin anew: what the process has of it is not known."""
        del self._records[sequence_id]
        await self._send(_closing(sequence_id))

    async def _send(self, frame: bytes) -> None:
        async with asyncio.timeout(PASS_DEADLINE_S):
            await self._process.send(frame)

    async def _give_up(self, error: DaisyError | TimeoutError) -> None:
        """Guess no more; said once."""
        if not isinstance(error, DaisyError):
            error = DaisyError(f"The draft model said nothing for {PASS_DEADLINE_S:g} s.")
        self._failure = error
        self._has_failed.set()
        self._records.clear()
        _logger.warning(
            "draft model %s: answers go on without its guesses, %s", self.name, error.what
        )
        await asyncio.shield(self._process.close())


def _num_common(left: NDArray[np.int32], right: NDArray[np.int32]) -> int:
    """Return how many tokens two sequences have in common from their beginning on."""
    size = min(len(left), len(right))
    differs = np.flatnonzero(left[:size] != right[:size])
    return int(differs[0]) if differs.size else size


def _closing(sequence_id: SequenceId) -> bytes:
    return encode_control(CloseSequence(epoch=_EPOCH, sequence_id=sequence_id))

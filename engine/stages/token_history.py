"""What the last stage knows of each sequence's tokens, and drawing the next ones.

The ids travel with every frame, so a rewind simply overwrites them. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from engine.domain import SampledRow
from engine.errors import LocalProtocolError
from engine.sampling.verification import draw_while_drafts_hold

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from engine.domain import MicroBatch, SequenceId, SequenceStep
    from engine.messages.chain import OpenSequence
    from engine.sampling.parameters import SamplingParameters

_FIRST_CAPACITY = 256


class _Sequence:
    """Sampling parameters and token ids of one sequence."""

    __slots__ = ("ids", "num_prompt_tokens", "parameters")

    def __init__(self, parameters: SamplingParameters, num_prompt_tokens: int) -> None:
        self.parameters = parameters
        self.num_prompt_tokens = num_prompt_tokens
        self.ids: NDArray[np.int32] = np.zeros(_FIRST_CAPACITY, np.int32)

    def record(self, past_len: int, ids: NDArray[np.int32]) -> None:
        end = past_len + len(ids)
        if end > len(self.ids):
            more = max(end, 2 * len(self.ids)) - len(self.ids)
            self.ids = np.concatenate([self.ids, np.zeros(more, np.int32)])
        self.ids[past_len:end] = ids


class TokenHistory:
    """The sequences the last stage draws tokens for."""

    def __init__(self) -> None:
        """Begin with none."""
        self._sequences: dict[SequenceId, _Sequence] = {}

    def open(self, message: OpenSequence) -> None:
        """Take a sequence's sampling parameters, prompt length, and the prefix it begins with."""
        sequence = _Sequence(message.sampling, message.num_prompt_tokens)
        prefix = message.prefix
        if prefix is not None and prefix.sequence_id in self._sequences:
            sequence.record(0, self._sequences[prefix.sequence_id].ids[: prefix.num_tokens])
        self._sequences[message.sequence_id] = sequence

    def close(self, sequence_id: SequenceId) -> None:
        """Forget a sequence; nothing happens for one that is not known."""
        self._sequences.pop(sequence_id, None)

    def draw(self, batch: MicroBatch, logits: NDArray[np.float32]) -> tuple[SampledRow, ...]:
        """Draw the next tokens of each step: one, or as many as its drafts hold and one more.

        Args:
            batch: Its ids are recorded first.
            logits: float32 ``[num_logits, vocab_size]``, as ``Stage.run`` gives them.

        Returns:
            One row for each step that has logits.

        Raises:
            LocalProtocolError: A sequence was never opened.
            InferenceError: The logits of a row can't be sampled.
        """
        rows: list[SampledRow] = []
        first_token = first_row = 0
        for step in batch.steps:
            sequence = self._sequences.get(step.sequence_id)
            if sequence is None:
                raise LocalProtocolError(
                    f"Sequence {step.sequence_id} has a step and was never opened."
                )
            end_token, end_row = first_token + step.num_tokens, first_row + step.num_logits
            sequence.record(step.past_len, batch.token_ids[first_token:end_token])
            if step.num_logits:
                rows.append(_draw(sequence, step, logits[first_row:end_row]))
            first_token, first_row = end_token, end_row
        return tuple(rows)


def _draw(sequence: _Sequence, step: SequenceStep, logits: NDArray[np.float32]) -> SampledRow:
    # The token of a row comes right behind it.
    first_position = step.past_len + step.num_tokens - step.num_logits + 1
    drawn = draw_while_drafts_hold(
        logits,
        sequence.parameters,
        sequence.ids,
        sequence.num_prompt_tokens,
        first_position,
    )
    return SampledRow(step.sequence_id, first_position, drawn)

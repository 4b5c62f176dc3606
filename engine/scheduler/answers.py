"""Whether what the last stage answers is the answer to what was sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.errors import RemoteProtocolError
from engine.scheduler.token_line import num_matching

MAX_LOSSES = 3  # of one sequence in a row: one is enough where the chain does as it should

if TYPE_CHECKING:
    from engine.domain import SampledRow, SequenceStep
    from engine.scheduler.request import Sequence


def check_answer(sequence: Sequence, step: SequenceStep, row: SampledRow | None) -> None:
    """Check that a row is the answer to a step that counts.

    With drafts a row has the tokens drawn up to the first that is not the draft for its place,
    which is one token at least and at most one behind all drafts. With none, or without a row, a
    stage has dropped the step: a frame before it failed there that did not count any more, and with
    it went the sequence's caches.

    Args:
        sequence: Whose step it is.
        step: As it was sent.
        row: What came; None for nothing.

    Raises:
        RemoteProtocolError: It is not, an earlier step has not been answered, or one was dropped
            that no stage has a reason to drop.
    """
    if is_lost(step, row) and step.past_len > 0 and sequence.num_losses < MAX_LOSSES:
        return  # it may be told by an early stage, before the answer to an earlier step
    if sequence.num_computed_tokens != step.past_len:
        raise RemoteProtocolError(
            f"The answer for sequence {step.sequence_id} from {step.past_len} came before "
            f"that to an earlier micro-batch."
        )
    if not step.num_logits and not is_lost(step, row):
        return
    first = step.past_len + step.num_tokens - step.num_logits + 1
    if row is None or row.first_position != first or not _fits(sequence, step, row):
        limits = "1" if step.num_logits == 1 else f"1 to {step.num_logits}"
        raise RemoteProtocolError(
            f"Sequence {step.sequence_id} should have {limits} tokens from position "
            f"{first}, up to the first that was not guessed, and got {row}."
        )


def _fits(sequence: Sequence, step: SequenceStep, row: SampledRow) -> bool:
    if not 1 <= len(row.token_ids) <= step.num_logits:
        return False
    drafts = sequence.line.ids(row.first_position, row.first_position + step.num_logits - 1)
    return num_matching(row.token_ids, drafts.tolist()) == len(row.token_ids) - 1


def is_lost(step: SequenceStep, row: SampledRow | None) -> bool:
    """Whether a stage has dropped a step that counts."""
    return step.num_logits > 0 if row is None else not row.token_ids

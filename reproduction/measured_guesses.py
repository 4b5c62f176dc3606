"""Guesses for a measurement: recorded answers, how often they hold, and how many a frame has.

They lie in a file, for the processes that guess are not the one that measures.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from fixed_draft_length import FixedDraftLength
from oracle_drafter import OracleDrafter, Recording

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Guesses:
    """What is guessed.

    Attributes:
        prompts: Token ids of each.
        answers: Of the model without guesses, as long as any that will be asked for.
        acceptance: Share of guesses that hold, each by itself.
        num_drafts: Of each frame.
        vocab_size: Of the model.
    """

    prompts: Sequence[Sequence[int]]
    answers: Sequence[Sequence[int]]
    acceptance: float
    num_drafts: int
    vocab_size: int

    def drafter(self) -> OracleDrafter:
        """Return who guesses."""
        texts = zip(self.prompts, self.answers, strict=True)
        recordings = [Recording(prompt, answer) for prompt, answer in texts]
        return OracleDrafter(recordings, self.acceptance, self.vocab_size)

    def lengths(self) -> FixedDraftLength:
        """Return who says how far."""
        return FixedDraftLength(self.num_drafts, max_running=len(self.prompts))


def write_guesses(path: Path, guesses: Guesses) -> None:
    """Keep guesses for another process.

    Args:
        path: The file.
        guesses: What is guessed.
    """
    path.write_text(json.dumps(asdict(guesses)), "utf-8")


def read_guesses(path: Path) -> Guesses:
    """Return guesses that were kept.

    Args:
        path: The file.
    """
    return Guesses(**json.loads(path.read_text("utf-8")))

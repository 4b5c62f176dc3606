"""Guesses for a measurement: who guesses, how often that holds, and how many a frame has.

They lie in a file, for the processes that guess are not the one that measures.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

from fixed_draft_length import FixedDraftLength
from oracle_drafter import OracleDrafter, Recording

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

Who = Literal["oracle", "suffix", "model"]


@dataclass(frozen=True, slots=True)
class Guesses:
    """What is guessed.

    Attributes:
        prompts: Token ids of each.
        answers: Of the model without guesses, as long as any that will be asked for.
        acceptance: Share of guesses that hold, each by itself.
        num_drafts: Of each frame; None for what the program itself chooses.
        vocab_size: Of the model.
        who: The oracle of the recordings; or one of the program's own drafters, without a draft
            model or with one where it is loaded, which need no recordings.
    """

    prompts: Sequence[Sequence[int]]
    answers: Sequence[Sequence[int]]
    acceptance: float
    num_drafts: int | None
    vocab_size: int
    who: Who = "oracle"

    @property
    def key(self) -> tuple[str, float, int | None]:
        """What is learned of one text is of use for others with the same key."""
        return self.who, self.acceptance, self.num_drafts

    def drafter(self) -> OracleDrafter:
        """Return who guesses from the recordings."""
        texts = zip(self.prompts, self.answers, strict=True)
        recordings = [Recording(prompt, answer) for prompt, answer in texts]
        return OracleDrafter(recordings, self.acceptance, self.vocab_size)

    def lengths(self) -> FixedDraftLength:
        """Return who says how far, where their number is fixed."""
        return FixedDraftLength(self.num_drafts or 0, max_running=max(len(self.prompts), 1))


def program_guesses(who: Who) -> Guesses:
    """Return guesses of one of the program's own drafters, as far as it chooses.

    Args:
        who: ``suffix`` or ``model``.
    """
    return Guesses((), (), 0.0, None, 0, who)


def write_guesses(path: Path, guesses: Guesses) -> None:
    """Keep guesses for another process, which sees the old ones or these.

    Args:
        path: The file.
        guesses: What is guessed.
    """
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_text(json.dumps(asdict(guesses)), "utf-8")
    fresh.replace(path)


def read_guesses(path: Path) -> Guesses:
    """Return guesses that were kept.

    Args:
        path: The file.
    """
    return Guesses(**json.loads(path.read_text("utf-8")))

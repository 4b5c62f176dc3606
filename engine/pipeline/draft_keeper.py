"""Who guesses for a head: what was written before, and beside it a draft model where there is one.

The draft model is found and loaded while the head answers already, and given up if it dies.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from engine.errors import DaisyError
from engine.pipeline.draft_desk import Guessing
from engine.pipeline.draft_loading import DraftTarget, find_draft, load_draft_model
from engine.scheduler.draft_length import DraftLength
from engine.scheduler.drafters_in_turn import DraftersInTurn
from engine.scheduler.row_costs import RowCosts
from engine.scheduler.suffix_drafter import SuffixDrafter

if TYPE_CHECKING:
    from engine.domain import StageDescription
    from engine.messages.chain import Placement
    from engine.pipeline.chat_text import ChatText
    from engine.pipeline.draft_model import DraftModel

_logger = logging.getLogger(__name__)

# A folder; "none" for no draft model; None for the one that comes with Daisy, where it fits.
DraftChoice = Path | Literal["none"] | None


AUTO = "auto"


def draft_choice(word: str) -> DraftChoice:
    """Return what a word of the command line chooses.

    Args:
        word: ``none``, ``auto``, or a draft model's folder.
    """
    if word == "none":
        return "none"
    return None if word == AUTO else Path(word)


class DraftKeeper:
    """Has one head's answers guessed.

    Attributes:
        drafters: Asked by the head.
        refusal: Why the chosen draft model does not guess; None while it does or nothing is
            known yet.

    Thread: the node's loop.
    """

    def __init__(self, choice: DraftChoice, cpus: tuple[int, ...] | None) -> None:
        """Begin without one.

        Args:
            choice: Which.
            cpus: Processors it may use, the first stage's; None for all.
        """
        self.drafters = DraftersInTurn(SuffixDrafter())
        self.refusal: DaisyError | None = None
        self._choice = choice
        self._cpus = cpus
        self._model: DraftModel | None = None

    def guessing(self, first_stage: StageDescription, num_stages: int) -> Guessing:
        """Return what the head needs to guess.

        Args:
            first_stage: As it was loaded, with the times of its rows.
            num_stages: Of the chain.
        """
        costs = RowCosts(first_stage.row_times)
        return Guessing(self.drafters, DraftLength(costs, num_stages))

    @property
    def model_name(self) -> str | None:
        """Of the draft model that guesses now."""
        return None if self._model is None else self._model.name

    def memory_bytes(self) -> int:
        """Return what the draft model takes of this PC's memory."""
        return 0 if self._model is None else self._model.memory_bytes()

    async def run(self, text: ChatText, placement: Placement) -> None:
        """Load the draft model, let it be asked, and end it.

        Returns when there is none, or it can guess no more; that is said once in the log, and
        answers go on without it.

        Args:
            text: Of the model that is guessed for.
            placement: Of the head.

        Cancellation: ends the process.
        """
        target = DraftTarget(text.tokenizer, text.vocab_size)
        try:
            folder = await self._folder(target)
            if folder is None:
                return
            model = await load_draft_model(folder, target, placement, self._cpus)
        except DaisyError as error:
            self.refusal = error
            _logger.warning("draft model: answers go on without one, %s", error.what)
            return
        self._model = model
        try:
            self.drafters.use(model)
            await model.wait_failed()
            self.refusal = model.failure
        finally:
            self.drafters.use(None)
            self._model = None
            await asyncio.shield(model.end())

    async def _folder(self, target: DraftTarget) -> Path | None:
        if self._choice == "none":
            return None
        if self._choice is None:
            return await asyncio.to_thread(find_draft, target)
        return self._choice

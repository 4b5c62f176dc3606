"""The draft model beside a head: found, loaded while it answers already, given up if it dies."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from engine.errors import DaisyError
from engine.pipeline.draft_loading import find_draft, load_draft_model

if TYPE_CHECKING:
    from engine.messages.chain import Placement
    from engine.pipeline.draft_loading import DraftTarget
    from engine.pipeline.draft_model import DraftModel
    from engine.scheduler.drafters_in_turn import DraftersInTurn

_logger = logging.getLogger(__name__)

# A folder; "none" for no draft model; None for the one that comes with Daisy, where it fits.
DraftChoice = Path | Literal["none"] | None


class DraftKeeper:
    """Has a draft model guess for one head as long as it can.

    Attributes:
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
        self.refusal: DaisyError | None = None
        self._choice = choice
        self._cpus = cpus
        self._model: DraftModel | None = None

    @property
    def model_name(self) -> str | None:
        """Of the draft model that guesses now."""
        return None if self._model is None else self._model.name

    def memory_bytes(self) -> int:
        """Return what the draft model takes of this PC's memory."""
        return 0 if self._model is None else self._model.memory_bytes()

    async def run(
        self, drafters: DraftersInTurn, target: DraftTarget, placement: Placement
    ) -> None:
        """Load the draft model, let it be asked, and end it.

        Returns when there is none, or it can guess no more; that is said once in the log, and
        answers go on without it.

        Args:
            drafters: Asked by the head.
            target: What is guessed for.
            placement: Of the head.

        Cancellation: ends the process.
        """
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
            drafters.use(model)
            await model.wait_failed()
            self.refusal = model.failure
        finally:
            drafters.use(None)
            self._model = None
            await asyncio.shield(model.end())

    async def _folder(self, target: DraftTarget) -> Path | None:
        if self._choice == "none":
            return None
        if self._choice is None:
            return await asyncio.to_thread(find_draft, target)
        return self._choice

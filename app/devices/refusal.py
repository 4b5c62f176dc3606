"""Why something was refused, under the button that asked for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.parts.notice import Notice
from app.wording.problems import problem_words

if TYPE_CHECKING:
    from PySide6.QtWidgets import QWidget

    from app.bridge.problem import Problem
    from app.look.look import Look
    from app.wording.wording import Wording


class Refusal(Notice):
    """A notice that follows the language."""

    def __init__(self, look: Look, wording: Wording, parent: QWidget | None = None) -> None:
        """Begin hidden.

        Args:
            look: Followed.
            wording: Words.
            parent: Owns it.
        """
        super().__init__(look, parent)
        self._wording = wording
        self._problem: Problem | None = None
        self.closed.connect(self.forget)
        wording.changed.connect(self._say)

    def refuse(self, problem: Problem) -> None:
        """Say why.

        Args:
            problem: As the node told it.
        """
        self._problem = problem
        self._say()

    def forget(self) -> None:
        """Say nothing more."""
        self._problem = None
        self.hide()

    def _say(self) -> None:
        if self._problem is None:
            return
        say = self._wording.text
        words = problem_words(self._problem, self._wording)
        self.name_buttons("", say("devices.details"), say("devices.close"))
        self.tell(words.what, words.advice, words.details)

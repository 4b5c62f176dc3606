"""One model on this PC's disk: how much it takes, and off it after a question."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from app.parts.action import Action
from app.parts.amounts import file_size
from app.parts.text import Text
from app.safe_text import one_line

if TYPE_CHECKING:
    from PySide6.QtGui import QKeyEvent

    from app.look.look import Look
    from app.wording.wording import Wording
    from engine.messages.own_pc_control import ModelLine


class KeptRow(QWidget):
    """A row.

    Attributes:
        dropped: It is to go, and that was confirmed; carries whether off every PC.
    """

    dropped = Signal(bool)

    def __init__(
        self, look: Look, wording: Wording, model: ModelLine, parent: QWidget | None = None
    ) -> None:
        """Begin with what is known.

        Args:
            look: Followed.
            wording: Words.
            model: Which.
            parent: Owns it.
        """
        super().__init__(parent)
        self._wording = wording
        self._model = model
        self._num_others = 0
        self._is_asking = False
        self.name = Text(look, bold=True)
        self.facts = Text(look, "small", "quiet")
        self.drop = Action(look, "quiet", "trash")
        self.question = Text(look)
        self.here = Action(look, "chief")
        self.everywhere = Action(look)
        self.keep = Action(look)
        words = QVBoxLayout()
        words.setSpacing(0)
        words.addWidget(self.name)
        words.addWidget(self.facts)
        first = QHBoxLayout()
        first.addLayout(words, 1)
        first.addWidget(self.drop)
        buttons = QHBoxLayout()
        for button in (self.here, self.everywhere, self.keep):
            buttons.addWidget(button)
        buttons.addStretch(1)
        rows = QVBoxLayout(self)
        rows.setContentsMargins(0, 0, 0, 0)
        rows.addLayout(first)
        rows.addWidget(self.question)
        rows.addLayout(buttons)
        self.drop.clicked.connect(lambda: self._ask(is_asking=True))
        self.keep.clicked.connect(lambda: self._ask(is_asking=False))
        self.here.clicked.connect(lambda: self._on_confirmed(is_everywhere=False))
        self.everywhere.clicked.connect(lambda: self._on_confirmed(is_everywhere=True))
        wording.changed.connect(self.say)
        self.say()

    def show_model(self, model: ModelLine, num_others: int) -> None:
        """Show what is known now; a question that is asked stays.

        Args:
            model: The same.
            num_others: Other PCs that keep it as well.
        """
        self._model, self._num_others = model, num_others
        if model.is_in_use:
            self._is_asking = False
        self.say()

    def say(self) -> None:
        """Set every word, and show what holds."""
        say, model = self._wording.text, self._model
        name = one_line(model.name, 60)
        self.name.setText(name)
        facts = [say("models.kept_facts", size=file_size(model.num_bytes), n=model.num_layers)]
        if self._num_others:
            facts.append(say("models.kept_others", n=self._num_others))
        if model.is_in_use:
            facts.append(say("models.kept_in_use"))
        self.facts.setText(" · ".join(facts))
        self.drop.say(say("models.drop"), say("models.drop_hint") if model.is_in_use else "")
        self.drop.setAccessibleName(say("models.drop_name", model=name))
        self.drop.setEnabled(not model.is_in_use)
        self.question.setText(say("models.drop_question", model=name))
        self.here.say(say("models.drop_here"))
        self.everywhere.say(say("models.drop_everywhere", n=self._num_others + 1))
        self.keep.say(say("models.drop_keep"))
        for part in (self.question, self.here, self.keep):
            part.setVisible(self._is_asking)
        self.everywhere.setVisible(self._is_asking and self._num_others > 0)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Let Esc keep it."""
        if event.key() == Qt.Key.Key_Escape and self._is_asking:
            self._ask(is_asking=False)
        else:
            super().keyPressEvent(event)

    def _ask(self, *, is_asking: bool) -> None:
        self._is_asking = is_asking
        self.say()
        (self.keep if is_asking else self.drop).setFocus()

    def _on_confirmed(self, *, is_everywhere: bool) -> None:
        self._is_asking = False
        self.say()
        self.dropped.emit(is_everywhere)

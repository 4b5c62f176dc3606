"""What went wrong and what to do: a sentence, an advice, a button that does it, details folded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QHBoxLayout, QWidget

from app.parts.action import Action
from app.parts.card import Card
from app.parts.text import Text

if TYPE_CHECKING:
    from app.look.look import Look


class Notice(Card):
    """One notice; hidden until something is told.

    Attributes:
        acted: The button was pressed.
        closed: It was put away.
    """

    acted = Signal()
    closed = Signal()

    def __init__(self, look: Look, parent: QWidget | None = None) -> None:
        """Begin hidden.

        Args:
            look: Followed.
            parent: Owns it.
        """
        super().__init__(look, parent, edge="alarm")
        self._what = Text(look, bold=True)
        self._advice = Text(look)
        self._detail = Text(look, "small", "quiet").selectable()
        self._button = Action(look, "chief")
        self._button.clicked.connect(self.acted)
        self._fold = Action(look, "quiet")
        self._fold.setCheckable(True)
        self._fold.toggled.connect(self._detail.setVisible)
        self._close = Action(look, "quiet")
        self._close.clicked.connect(self._put_away)
        buttons = QHBoxLayout()
        for button in (self._button, self._fold, self._close):
            buttons.addWidget(button)
        buttons.addStretch(1)
        for row in (self._what, self._advice):
            self.rows.addWidget(row)
        self.rows.addLayout(buttons)
        self.rows.addWidget(self._detail)
        self.hide()

    def tell(self, what: str, advice: str, detail: str = "") -> None:
        """Show it.

        Args:
            what: What happened, one sentence.
            advice: What to do, one sentence.
            detail: Exact words, folded away; empty for none.
        """
        self._what.setText(what)
        self._advice.setText(advice)
        self._advice.setVisible(bool(advice))
        self._detail.setText(detail)
        self._fold.setChecked(False)
        self._detail.hide()
        self._fold.setVisible(bool(detail))
        self.setAccessibleName(f"{what} {advice}")
        self.show()

    def name_buttons(self, action: str, details: str, close: str) -> None:
        """Set the buttons' words.

        Args:
            action: What helps; empty for no such button.
            details: Of the one that unfolds.
            close: Of the one that puts it away; empty for no such button.
        """
        self._button.say(action)
        self._button.setVisible(bool(action))
        self._fold.say(details)
        self._close.say(close)
        self._close.setVisible(bool(close))

    @property
    def sentence(self) -> str:
        """What is told."""
        return self._what.text()

    def _put_away(self) -> None:
        self.hide()
        self.closed.emit()

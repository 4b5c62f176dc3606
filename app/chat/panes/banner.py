"""A notice above the conversation, with what can be done about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QSize, Qt, QTimer
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QToolButton, QWidget

if TYPE_CHECKING:
    from collections.abc import Callable

    from app.look.look import Look
    from app.wording.wording import Wording


class Banner(QFrame):
    """One notice at a time; a newer one takes an older one's place."""

    def __init__(self, look: Look, wording: Wording, parent: QWidget) -> None:
        """Begin hidden.

        Args:
            look: Theme and sizes.
            wording: Of everything.
            parent: Owns it.
        """
        super().__init__(parent)
        self.setObjectName("banner")
        self._look = look
        self._wording = wording
        self._sentence: Callable[[], str] = str
        self._action_key = ""
        self._act: Callable[[], None] | None = None
        self._kind = ""
        self._label = QLabel(self)
        self._label.setWordWrap(True)
        self._label.setTextFormat(Qt.TextFormat.PlainText)
        self._button = QToolButton(self)
        self._button.setObjectName("wordButton")
        self._close = QToolButton(self)
        self._close.setObjectName("quietButton")
        layout = QHBoxLayout(self)
        layout.addWidget(self._label, 1)
        layout.addWidget(self._button)
        layout.addWidget(self._close)
        self._until = QTimer(self)
        self._until.setSingleShot(True)
        self._until.timeout.connect(self.hide)
        self._button.clicked.connect(self._on_pressed)
        self._close.clicked.connect(self.hide)
        wording.changed.connect(self.retell)
        look.changed.connect(self.redress)
        self.redress()
        self.hide()

    @property
    def text(self) -> str:
        """What it says; empty while it is hidden."""
        return "" if self.isHidden() else self._label.text()

    @property
    def button(self) -> QToolButton:
        """What does something about it."""
        return self._button

    def say(
        self,
        kind: str,
        sentence: Callable[[], str],
        action: tuple[str, Callable[[], None]] | None = None,
        for_ms: int = 0,
    ) -> None:
        """Show a notice.

        Args:
            kind: Of it; ``withdraw`` takes back only a notice of its kind.
            sentence: Says it in the language that is chosen.
            action: Key of a button's words, and what it does.
            for_ms: How long it stays; 0 until it is dismissed.
        """
        self._kind = kind
        self._sentence = sentence
        self._action_key, self._act = action or ("", None)
        self._until.stop()
        if for_ms:
            self._until.start(for_ms)
        self.retell()
        self.show()

    def withdraw(self, kind: str) -> None:
        """Take a notice back, if it is of that kind.

        Args:
            kind: As given to ``say``.
        """
        if kind == self._kind:
            self.hide()

    def retell(self) -> None:
        """Say everything in the language that is chosen."""
        self._label.setText(self._sentence())
        self._button.setVisible(bool(self._action_key))
        if self._action_key:
            self._button.setText(self._wording.text(self._action_key))
        self._close.setAccessibleName(self._wording.text("chat.dismiss"))

    def redress(self) -> None:
        """Take over theme and scale."""
        self.layout().setContentsMargins(*map(self._look.space, (3, 1, 1, 1)))
        side = self._look.px(16)
        self._close.setIcon(self._look.icon("close", "quiet"))
        self._close.setIconSize(QSize(side, side))
        for widget in (self._label, self._button):
            widget.setFont(self._look.font())

    def _on_pressed(self) -> None:
        self.hide()
        if self._act is not None:
            self._act()

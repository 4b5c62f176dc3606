"""Which keys do what: a list to be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Qt
from PySide6.QtGui import QKeySequence
from PySide6.QtWidgets import QGridLayout, QWidget

from app.parts.card import Card
from app.parts.text import Text

if TYPE_CHECKING:
    from app.look.look import Look
    from app.wording.wording import Wording

_SHIFT = Qt.KeyboardModifier.ShiftModifier
KEYS: dict[str, QKeySequence] = {
    "new": QKeySequence("Ctrl+N"),
    "search": QKeySequence("Ctrl+F"),
    "settings": QKeySequence("Ctrl+,"),
    "send": QKeySequence(Qt.Key.Key_Return),
    "line": QKeySequence(_SHIFT | Qt.Key.Key_Return),
    "stop": QKeySequence(Qt.Key.Key_Escape),
    "quit": QKeySequence("Ctrl+Q"),
}


class KeysCard(Card):
    """The list."""

    def __init__(self, look: Look, wording: Wording, parent: QWidget | None = None) -> None:
        """Build it.

        Args:
            look: Followed.
            wording: Words.
            parent: Owns it.
        """
        super().__init__(look, parent)
        self._wording = wording
        self.lines = {name: (Text(look), Text(look, colour="quiet")) for name in KEYS}
        grid = QGridLayout()
        grid.setColumnStretch(0, 1)
        for row, (what, keys) in enumerate(self.lines.values()):
            grid.addWidget(what, row, 0)
            grid.addWidget(keys, row, 1)
        self.rows.addLayout(grid)
        wording.changed.connect(self._say)
        self._say()

    def _say(self) -> None:
        for name, (what, keys) in self.lines.items():
            shown = KEYS[name].toString(QKeySequence.SequenceFormat.NativeText)
            what.setText(self._wording.text(f"settings.key_{name}"))
            keys.setText(shown)
            what.setAccessibleName(f"{what.text()}: {shown}")

"""A column of widgets one above the other, that scrolls and is never too wide to read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFrame, QHBoxLayout, QScrollArea, QVBoxLayout, QWidget

if TYPE_CHECKING:
    from PySide6.QtWidgets import QLayout

    from app.look.look import Look


class Column(QScrollArea):
    """A page's content."""

    def __init__(self, look: Look, width: int = 760, parent: QWidget | None = None) -> None:
        """Begin empty.

        Args:
            look: Followed.
            width: The most it takes, at 100 %.
            parent: Owns it.
        """
        super().__init__(parent)
        self._look = look
        self._width = width
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setWidgetResizable(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self._room = QWidget()
        self._room.setObjectName("room")
        self._content = QWidget()
        self.rows = QVBoxLayout(self._content)
        self._beside = QHBoxLayout(self._room)
        self._beside.addStretch(1)
        self._beside.addWidget(self._content, 100)
        self._beside.addStretch(1)
        self.setWidget(self._room)
        look.changed.connect(self._dress)
        self._dress()

    def add(self, item: QWidget | QLayout, gap: float = 0) -> None:
        """Add something below what is there.

        Args:
            item: A widget or a layout.
            gap: Above it, in spacing units.
        """
        if gap:
            self.rows.addSpacing(self._look.space(gap))
        if isinstance(item, QWidget):
            self.rows.addWidget(item)
        else:
            self.rows.addLayout(item)

    def _dress(self) -> None:
        look = self._look
        self._content.setMaximumWidth(look.px(self._width))
        self.rows.setContentsMargins(0, look.space(6), 0, look.space(8))
        self.rows.setSpacing(look.space(2))
        self._beside.setContentsMargins(look.space(6), 0, look.space(6), 0)
        self.setStyleSheet("QScrollArea, QWidget#room { background: transparent; }")

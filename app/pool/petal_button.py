"""One PC of the picture as something that can be pointed at, reached by keyboard and read out."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from PySide6.QtCore import QRect, QRectF, Qt, Signal
from PySide6.QtGui import QRegion
from PySide6.QtWidgets import QAbstractButton, QWidget

if TYPE_CHECKING:
    from PySide6.QtCore import QEvent
    from PySide6.QtGui import QEnterEvent, QFocusEvent, QKeyEvent, QPaintEvent

    from app.pool.geometry import Box, Petal
    from engine.domain import NodeId

_STEPS = {
    Qt.Key.Key_Right: 1,
    Qt.Key.Key_Down: 1,
    Qt.Key.Key_Left: -1,
    Qt.Key.Key_Up: -1,
}


def as_tip(sentence: str) -> str:
    """Return a sentence as a tooltip shows it: broken into lines, with nothing in it obeyed.

    Args:
        sentence: Plain text, from wherever.
    """
    return f"<qt>{html.escape(sentence)}</qt>"


class PetalButton(QAbstractButton):
    """Where one PC stands; the picture paints it.

    Attributes:
        stepped: Carries 1 or -1: an arrow key asks for the next PC, or the one before.
    """

    stepped = Signal(int)

    def __init__(self, node_id: NodeId, parent: QWidget) -> None:
        """Begin without a place.

        Args:
            node_id: Of the PC.
            parent: The picture.
        """
        super().__init__(parent)
        self.node_id = node_id
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setCursor(Qt.CursorShape.PointingHandCursor)

    def stand_in(self, petal: Petal) -> None:
        """Take a petal's place; only its round part is pointed at.

        Args:
            petal: Which.
        """
        side = 2 * petal.radius
        box = QRectF(petal.center.x - petal.radius, petal.center.y - petal.radius, side, side)
        self.setGeometry(box.toAlignedRect())
        self.setMask(QRegion(QRect(0, 0, self.width(), self.height()), QRegion.RegionType.Ellipse))

    def stand_at(self, box: Box) -> None:
        """Take a place outside the ring.

        Args:
            box: Which.
        """
        self.clearMask()
        self.setGeometry(QRectF(box.x, box.y, box.width, box.height).toAlignedRect())

    def explain(self, sentence: str) -> None:
        """Say a sentence where the pointer rests on it.

        Args:
            sentence: Plain text.
        """
        self.setToolTip(as_tip(sentence))

    # ---- Qt ----------------------------------------------------------------------------------

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Leave it to the picture: petals reach beyond their round part."""

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Open the details with Enter, and go on with the arrows."""
        key = Qt.Key(event.key())
        if key in {Qt.Key.Key_Return, Qt.Key.Key_Enter}:
            self.click()
        elif key in _STEPS:
            self.stepped.emit(_STEPS[key])
        else:
            super().keyPressEvent(event)

    def enterEvent(self, event: QEnterEvent) -> None:
        """Have the petal painted raised."""
        super().enterEvent(event)
        self._repaint()

    def leaveEvent(self, event: QEvent) -> None:
        """Have it painted as before."""
        super().leaveEvent(event)
        self._repaint()

    def focusInEvent(self, event: QFocusEvent) -> None:
        """Have the focus painted."""
        super().focusInEvent(event)
        self._repaint()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        """Have it painted without."""
        super().focusOutEvent(event)
        self._repaint()

    def _repaint(self) -> None:
        picture = self.parentWidget()
        if picture is not None:
            picture.update()

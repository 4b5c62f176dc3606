"""How far something is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QPainter, QPainterPath, QPen
from PySide6.QtWidgets import QSizePolicy, QWidget

if TYPE_CHECKING:
    from PySide6.QtGui import QPaintEvent

    from app.look.look import Look


class Bar(QWidget):
    """A bar; striped where nobody knows the whole."""

    def __init__(self, look: Look, parent: QWidget | None = None) -> None:
        """Begin empty.

        Args:
            look: Followed.
            parent: Owns it.
        """
        super().__init__(parent)
        self._look = look
        self._share: float | None = 0.0
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        look.changed.connect(self.updateGeometry)

    @property
    def share(self) -> float | None:
        """How far: 0 to 1; None where nobody knows."""
        return self._share

    def show_share(self, share: float | None) -> None:
        """Show how far it is.

        Args:
            share: 0 to 1; None where nobody knows.
        """
        if share != self._share:
            self._share = share
            self.update()

    def sizeHint(self) -> QSize:
        """Return a flat size."""
        return QSize(self._look.px(120), self._look.px(8))

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Paint it."""
        look = self._look
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        room = QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5)
        round_by = room.height() / 2
        clip = QPainterPath()
        clip.addRoundedRect(room, round_by, round_by)
        painter.setClipPath(clip)
        painter.fillRect(room, look.colour("raised"))
        if self._share is None:
            painter.setPen(QPen(look.colour("heart"), look.px(2)))
            x = room.x() - room.height()
            while x < room.right():
                painter.drawLine(QPointF(x, room.bottom()), QPointF(x + room.height(), room.y()))
                x += look.px(8)
        else:
            done = QRectF(room.x(), room.y(), room.width() * self._share, room.height())
            painter.fillRect(done, look.colour("heart"))
        painter.setClipping(False)
        painter.setPen(QPen(look.colour("quiet"), 1))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawRoundedRect(room, round_by, round_by)
        painter.end()

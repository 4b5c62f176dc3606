"""What the parts of a memory bar mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QFontMetricsF, QPainter, QPen
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.pool.petal_painter import fill_part

if TYPE_CHECKING:
    from PySide6.QtGui import QPaintEvent

    from app.look.look import Look
    from app.wording.wording import Wording

_PARTS = ("system", "used", "lendable", "kept")


class Legend(QWidget):
    """One line: a sample of each part, and its name."""

    def __init__(self, look: Look, wording: Wording, parent: QWidget | None = None) -> None:
        """Begin.

        Args:
            look: Followed.
            wording: Words.
            parent: Owns it.
        """
        super().__init__(parent)
        self._look = look
        self._wording = wording
        policy = QSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        policy.setRetainSizeWhenHidden(True)
        self.setSizePolicy(policy)
        look.changed.connect(self.updateGeometry)
        wording.changed.connect(self.update)

    def sizeHint(self) -> QSize:
        """Return the height of a line."""
        return QSize(self._look.px(200), round(QFontMetricsF(self._look.font("small")).height()))

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Paint as many as there is room for."""
        look = self._look
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        font = look.font("small")
        painter.setFont(font)
        metrics = QFontMetricsF(font)
        x = 0.0
        for part in _PARTS:
            text = self._wording.text(f"pool.legend_{part}")
            sample = QRectF(x, self.height() / 2 - look.px(4), look.px(18), look.px(8))
            width = metrics.horizontalAdvance(text)
            if sample.right() + look.space(2) + width > self.width():
                break
            fill_part(painter, sample, part, look)
            painter.setPen(QPen(look.colour("quiet"), 1))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRect(sample)
            x = sample.right() + look.space(2)
            place = QRectF(x, 0, width + 1, self.height())
            painter.drawText(place, Qt.AlignmentFlag.AlignVCenter, text)
            x += width + look.space(4)
        painter.end()

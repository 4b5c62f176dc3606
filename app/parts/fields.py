"""Fields people choose and write in, and how they look."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QFontMetricsF, QPainter, QPen, QPolygonF
from PySide6.QtWidgets import QCheckBox, QComboBox, QSpinBox

from app.look.tokens import CORNER_PX, SPACE_PX

if TYPE_CHECKING:
    from PySide6.QtCore import QPoint
    from PySide6.QtGui import QPaintEvent, QWheelEvent
    from PySide6.QtWidgets import QWidget

    from app.look.look import Look

_NAMES = ("paper", "surface", "raised", "line", "ink", "quiet", "heart", "on_heart", "link")
_SHEET = """
QLineEdit, QComboBox, QSpinBox, QPlainTextEdit {{
  color: {ink}; background: {surface}; border: 1px solid {quiet}; border-radius: {corner}px;
  padding: {up}px {side}px; selection-background-color: {heart}; selection-color: {on_heart};
}}
QLineEdit:focus, QComboBox:focus, QSpinBox:focus, QPlainTextEdit:focus {{
  border: 2px solid {link};
}}
QSpinBox {{ padding: {up}px 0; min-height: {tall}px; }}
QSpinBox QLineEdit, QSpinBox QLineEdit:focus {{
  border: none; padding: 0; background: transparent;
}}
QSpinBox::up-button, QSpinBox::down-button {{ width: 0; border: none; }}
QListWidget {{
  color: {ink}; background: {surface}; border: 1px solid {line}; border-radius: {corner}px;
}}
QListWidget:focus {{ border: 1px solid {link}; }}
QListWidget::item {{ padding: {up}px {side}px; }}
QListWidget::item:selected {{ color: {on_heart}; background: {heart}; }}
QLineEdit:disabled, QComboBox:disabled, QSpinBox:disabled {{
  color: {quiet}; border-style: dashed;
}}
QComboBox QAbstractItemView {{
  color: {ink}; background: {surface}; selection-background-color: {raised};
  selection-color: {ink}; border: 1px solid {line};
}}
QComboBox::drop-down {{ border: none; width: {arrow}px; }}
"""


def field_sheet(look: Look) -> str:
    """Return the style of fields in the present look.

    Args:
        look: Colours and sizes.
    """
    colours = {name: look.colour(name).name() for name in _NAMES}
    return _SHEET.format(
        corner=look.px(CORNER_PX),
        up=look.space(1),
        side=look.space(2),
        arrow=look.px(28),
        tall=look.px(20),
        **colours,
    )


class Choice(QComboBox):
    """One of several; the wheel scrolls the page instead of changing it unseen."""

    def __init__(self, look: Look, parent: QWidget | None = None) -> None:
        """Begin empty.

        Args:
            look: Followed.
            parent: Owns it.
        """
        super().__init__(parent)
        self._look = look
        self.setCursor(Qt.CursorShape.PointingHandCursor)

    def wheelEvent(self, event: QWheelEvent) -> None:
        """Leave the wheel to the page."""
        event.ignore()

    def paintEvent(self, event: QPaintEvent) -> None:
        """Paint it, with a chevron that says that there is more."""
        super().paintEvent(event)
        side = self._look.px(4)
        middle = QPointF(self.width() - self._look.px(16), self.height() / 2)
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        solid, ends = Qt.PenStyle.SolidLine, Qt.PenCapStyle.RoundCap
        painter.setPen(QPen(self._look.colour("quiet"), self._look.px(1.75), solid, ends))
        chevron = [QPointF(-side, -side / 2), QPointF(0, side / 2), QPointF(side, -side / 2)]
        painter.drawPolyline(QPolygonF([middle + point for point in chevron]))
        painter.end()


class Number(QSpinBox):
    """A number, changed by writing it or with the arrow keys; its buttons have no width."""

    def __init__(self, parent: QWidget | None = None) -> None:
        """Begin with none.

        Args:
            parent: Owns it.
        """
        super().__init__(parent)
        self.lineEdit().setTextMargins(SPACE_PX, 0, SPACE_PX, 0)

    def wheelEvent(self, event: QWheelEvent) -> None:
        """Leave the wheel to the page."""
        event.ignore()


class Switch(QCheckBox):
    """On or off: told by the knob's place and a tick, and by colour."""

    def __init__(self, look: Look, parent: QWidget | None = None) -> None:
        """Begin switched off.

        Args:
            look: Followed.
            parent: Owns it.
        """
        super().__init__(parent)
        self._look = look
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        look.changed.connect(self.updateGeometry)

    def sizeHint(self) -> QSize:
        """Return the size of the switch and its word."""
        metrics = QFontMetricsF(self.font())
        width = self._track().width() + self._look.space(3) + metrics.horizontalAdvance(self.text())
        height = max(self._track().height(), metrics.height()) + self._look.space(2)
        return QSize(round(width) + self._look.space(2), round(height))

    def minimumSizeHint(self) -> QSize:
        """Return the same."""
        return self.sizeHint()

    def hitButton(self, place: QPoint) -> bool:
        """Return whether a click there switches: anywhere on switch and word."""
        return self.rect().contains(place)

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Paint track, knob and word."""
        look, track = self._look, self._track()
        is_on = self.isChecked()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        edge = "link" if self.hasFocus() else "quiet"
        painter.setPen(QPen(look.colour(edge), look.px(2 if self.hasFocus() else 1.2)))
        painter.setBrush(look.colour("heart" if is_on else "raised"))
        painter.drawRoundedRect(track, track.height() / 2, track.height() / 2)
        radius = track.height() / 2 - look.px(3)
        x = track.right() - track.height() / 2 if is_on else track.x() + track.height() / 2
        knob = QPointF(x, track.center().y())
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(look.colour("on_heart" if is_on else "quiet"))
        painter.drawEllipse(knob, radius, radius)
        if is_on:
            tick = [QPointF(-0.45, 0.02), QPointF(-0.1, 0.38), QPointF(0.48, -0.34)]
            painter.setPen(QPen(look.colour("heart"), look.px(1.5)))
            painter.drawPolyline(QPolygonF([knob + point * radius for point in tick]))
        painter.setPen(look.colour("ink" if self.isEnabled() else "quiet"))
        painter.setFont(self.font())
        x = track.right() + look.space(3)
        room = QRectF(x, 0, self.width() - x, self.height())
        painter.drawText(room, Qt.AlignmentFlag.AlignVCenter, self.text())
        painter.end()

    def _track(self) -> QRectF:
        height, width = self._look.px(18), self._look.px(32)
        return QRectF(1.5, (self.height() - height) / 2, width, height)

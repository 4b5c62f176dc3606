"""The tray's icon: petals for PCs, and in the middle a shape for what goes on.

Drawn in units of a 22nd of its side. Each state has a shape of its own, so that it is told in one
colour too, on a light panel and on a dark one.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QIcon, QPainter, QPen, QPixmap, QPolygonF

from app.look.tokens import DARK, LIGHT

if TYPE_CHECKING:
    from app.look.tokens import Theme
    from app.tray.state import Heart, PetalKind, TrayState

SIDES = (16, 22, 24, 32, 44, 48, 64)
_UNITS = 22.0
_MIDDLE = QPointF(11, 11)
_RING = 7.5  # radius on which petals stand
_PETAL = 3.1  # their radius, where there is room
_SNUG = 0.88
_LEAST_SLOTS = 5  # free ones are dots: room for more, and a flower all the same
_DOT = 0.8
_COLOURS: dict[Heart, str] = {
    "idle": "ink",
    "serving": "leaf",
    "answering": "heart",
    "transferring": "link",
    "paused": "quiet",
    "problem": "alarm",
}


def tray_icon(state: TrayState, *, is_dark: bool, in_colour: bool = True) -> QIcon:
    """Return the icon of a state, in every size a panel may want.

    Args:
        state: What it tells.
        is_dark: The panel is dark.
        in_colour: The heart has the state's colour; otherwise everything has the ink's.
    """
    icon = QIcon()
    for side in SIDES:
        icon.addPixmap(tray_pixmap(state, side, is_dark=is_dark, in_colour=in_colour))
    return icon


def tray_pixmap(state: TrayState, side: int, *, is_dark: bool, in_colour: bool = True) -> QPixmap:
    """Return the icon of a state as a square of pixels.

    Args:
        state: What it tells.
        side: In pixels.
        is_dark: The panel is dark.
        in_colour: The heart has the state's colour.
    """
    theme = DARK if is_dark else LIGHT
    pixmap = QPixmap(side, side)
    pixmap.fill(Qt.GlobalColor.transparent)
    painter = QPainter(pixmap)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.scale(side / _UNITS, side / _UNITS)
    _paint_petals(painter, state.petals, QColor(theme.ink))
    _paint_heart(painter, state.heart, _heart_colour(state.heart, theme, in_colour=in_colour))
    painter.end()
    return pixmap


def _heart_colour(heart: Heart, theme: Theme, *, in_colour: bool) -> QColor:
    colour: str = getattr(theme, _COLOURS[heart] if in_colour else "ink")
    return QColor(colour)


def _paint_petals(painter: QPainter, kinds: tuple[PetalKind, ...], ink: QColor) -> None:
    """Paint filled and outlined petals, gaps for those missing, and dots where nobody is."""
    count = max(_LEAST_SLOTS, len(kinds))
    radius = min(_PETAL, _SNUG * _RING * math.sin(math.pi / count))
    for number in range(count):
        angle = 2 * math.pi * number / count - math.pi / 2
        place = _MIDDLE + QPointF(math.cos(angle), math.sin(angle)) * _RING
        kind = kinds[number] if number < len(kinds) else None
        if kind == "missing":
            continue
        if kind == "present":
            painter.setPen(QPen(ink, 1.25))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawEllipse(place, radius - 0.65, radius - 0.65)
            continue
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(ink)
        size = radius if kind == "ready" else _DOT
        painter.drawEllipse(place, size, size)


def _paint_heart(painter: QPainter, heart: Heart, colour: QColor) -> None:
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(colour)
    match heart:
        case "idle":
            painter.drawEllipse(_MIDDLE, 2.3, 2.3)
        case "serving":
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.setPen(QPen(colour, 1.6))
            painter.drawEllipse(_MIDDLE, 2.7, 2.7)
        case "answering":
            for x in (7.0, 10.0, 13.0):  # on whole pixels at 22
                painter.drawRoundedRect(QRectF(x, 10, 2, 2), 0.6, 0.6)
        case "transferring":
            painter.drawRect(QRectF(7.7, 10.15, 3.6, 1.7))
            tip = [QPointF(11.0, 7.9), QPointF(14.6, 11.0), QPointF(11.0, 14.1)]
            painter.drawPolygon(QPolygonF(tip))
        case "paused":
            for x in (8.0, 12.0):
                painter.drawRect(QRectF(x, 8, 2, 6))
        case "problem":
            painter.drawRoundedRect(QRectF(10, 7, 2, 5), 0.6, 0.6)
            painter.drawRoundedRect(QRectF(10, 13, 2, 2), 0.6, 0.6)

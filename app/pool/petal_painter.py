"""Paints one petal: its shape, its figures, its marks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QFontMetricsF, QPainterPath, QPen, QTransform

from app.look.look import line_px
from app.pool.words import layers_text

if TYPE_CHECKING:
    from PySide6.QtGui import QColor, QFont, QPainter

    from app.look.look import Look
    from app.pool.geometry import Detail, Petal
    from app.pool.memory_parts import MemoryParts
    from app.pool.ring import PcFacts
    from app.pool.words import PoolWords

_CENTER = Qt.AlignmentFlag.AlignHCenter | Qt.AlignmentFlag.AlignVCenter
_ONE_LINE = Qt.TextFlag.TextSingleLine | Qt.TextFlag.TextDontClip
_NECK = 0.20  # of the radius: half the width where the petal meets the heart
_BEND = 0.42  # how far the round part's direction reaches into the neck
_SHOULDER = math.radians(118)  # from the tip to where the round part begins


def petal_path(petal: Petal, length: float) -> QPainterPath:
    """Return a petal's outline: a round part, and a neck that leads to the heart.

    Args:
        petal: Where.
        length: From the middle of the round part to the end of the neck.
    """
    radius, neck = petal.radius, _NECK * petal.radius
    start = QPointF(radius * math.cos(_SHOULDER), -radius * math.sin(_SHOULDER))
    along = QPointF(-math.sin(_SHOULDER), -math.cos(_SHOULDER)) * (_BEND * radius)
    path = QPainterPath(QPointF(-length, -neck))
    path.cubicTo(
        QPointF(-0.82 * length, -neck * 1.15),
        start + along,
        start,
    )
    degrees = math.degrees(_SHOULDER)
    path.arcTo(QRectF(-radius, -radius, 2 * radius, 2 * radius), degrees, -2 * degrees)
    path.cubicTo(
        QPointF(start.x() + along.x(), -start.y() - along.y()),
        QPointF(-0.82 * length, neck * 1.15),
        QPointF(-length, neck),
    )
    path.closeSubpath()
    turn = QTransform()
    turn.translate(petal.center.x, petal.center.y)
    turn.rotateRadians(petal.angle)
    return turn.map(path)


class PetalPainter:
    """Paints petals in one look."""

    def __init__(self, painter: QPainter, look: Look, words: PoolWords, detail: Detail) -> None:
        """Begin.

        Args:
            painter: On the picture.
            look: Colours and sizes.
            words: In the language that is chosen.
            detail: How much there is room for.
        """
        self._painter = painter
        self._look = look
        self._words = words
        self._detail = detail

    def bud(self, petal: Petal, length: float) -> None:
        """Paint a place where another PC could stand.

        Args:
            petal: Where.
            length: Of the bud, into the heart.
        """
        pen = QPen(self._look.colour("line"), self._look.px(1.4))
        self._painter.setPen(pen)
        self._painter.setBrush(self._look.colour("paper"))
        self._painter.drawPath(petal_path(petal, length))

    def shape(self, petal: Petal, length: float, pc: PcFacts, *, is_raised: bool) -> None:
        """Paint a petal without what is in it.

        Args:
            petal: Where.
            length: Of the petal, to the heart.
            pc: Whose.
            is_raised: It is pointed at, or its details are shown.
        """
        look, painter = self._look, self._painter
        is_gone = pc.state in {"offline", "gone"}
        style = (
            Qt.PenStyle.SolidLine if pc.is_loaded or pc.role == "present" else Qt.PenStyle.DashLine
        )
        colour = look.colour("alarm" if is_gone else "quiet")
        colour.setAlphaF(0.75)
        pen = QPen(colour, look.px(1.5 if pc.is_loaded else 1.2), style)
        painter.setPen(pen)
        painter.setBrush(look.colour("raised" if is_raised else "surface"))
        painter.drawPath(petal_path(petal, length))

    def outline(self, petal: Petal, length: float, colour: QColor, width: float) -> None:
        """Paint a petal's edge: lit by the passing light, or focused.

        Args:
            petal: Where.
            length: Of the petal, to the heart.
            colour: Of the edge.
            width: Of the edge, in pixels.
        """
        self._painter.setPen(QPen(colour, width))
        self._painter.setBrush(Qt.BrushStyle.NoBrush)
        self._painter.drawPath(petal_path(petal, length))

    def text(self, petal: Petal, pc: PcFacts, number: int) -> None:
        """Paint what a petal tells.

        Args:
            petal: Where.
            pc: Whose.
            number: Of the petal, from 0.
        """
        if self._detail == "full":
            self._full(petal, pc)
        elif self._detail == "brief":
            self._brief(petal, pc)
        else:
            self._line(_around(petal), str(number + 1), self._look.font("small", bold=True), "ink")

    # ---- what is in it ------------------------------------------------------------------------

    def _full(self, petal: Petal, pc: PcFacts) -> None:
        look, words = self._look, self._words
        room = QRectF(petal.text.x, petal.text.y, petal.text.width, petal.text.height)
        small, body = look.font("small"), look.font("body", bold=True)
        line = line_px(small)
        name_line = line_px(body)
        rows = name_line + line * (2 if pc.memory else 1) + (look.px(14) if pc.memory else 0)
        rows += line if pc.stage_ms is not None or pc.on_battery else 0
        air = min(look.px(5), max(0.0, (1.9 * petal.radius * 0.75 - rows) / 5))
        rows += 3 * air
        y = room.center().y() - rows / 2
        self._name(QRectF(room.x(), y, room.width(), name_line), pc, body)
        y += name_line + air
        second = words.device_and_layers(pc) or words.role(pc)
        self._line(QRectF(room.x(), y, room.width(), line), second, small, "quiet")
        y += line + air / 2
        if pc.memory is not None:
            bar_width = 0.86 * room.width()
            bar = QRectF(room.center().x() - bar_width / 2, y + look.px(5), bar_width, look.px(7))
            self.memory_bar(bar, pc.memory)
            y += look.px(14)
            text = words.memory_short(pc.memory)
            self._line(QRectF(room.x(), y, room.width(), line), text, small, "quiet")
            y += line + air
        self._time_and_power(QRectF(room.x(), y, room.width(), line), pc)

    def _brief(self, petal: Petal, pc: PcFacts) -> None:
        small, bold = self._look.font("small"), self._look.font("small", bold=True)
        line = line_px(small)
        room = petal.text
        y = petal.center.y - line
        self._name(QRectF(room.x, y, room.width, line), pc, bold)
        text = layers_text(pc.layers) if pc.layers else self._words.role(pc)
        self._line(QRectF(room.x, y + line, room.width, line), text, small, "quiet")

    def _name(self, room: QRectF, pc: PcFacts, font: QFont) -> None:
        """Paint a name, a small daisy before the coordinator's."""
        side = 0.72 * room.height() if pc.is_coordinator else 0.0
        gap = self._look.px(4) if side else 0
        metrics = QFontMetricsF(font)
        name = metrics.elidedText(
            self._words.name(pc), Qt.TextElideMode.ElideRight, room.width() - side - gap
        )
        width = metrics.horizontalAdvance(name) + side + gap
        x = room.center().x() - width / 2
        if side:
            self.daisy(QPointF(x + side / 2, room.center().y()), side / 2)
        self._line(
            QRectF(x + side + gap, room.y(), width - side - gap + 1, room.height()),
            name,
            font,
            "ink",
        )

    def daisy(self, center: QPointF, radius: float) -> None:
        """Paint the mark of the coordinator.

        Args:
            center: Its middle.
            radius: Of it.
        """
        painter = self._painter
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(self._look.colour("ink"))
        for number in range(6):
            angle = math.pi * number / 3
            place = center + QPointF(math.cos(angle), math.sin(angle)) * radius * 0.64
            painter.drawEllipse(place, radius * 0.36, radius * 0.36)
        painter.setBrush(self._look.colour("heart"))
        painter.drawEllipse(center, radius * 0.36, radius * 0.36)

    def _time_and_power(self, room: QRectF, pc: PcFacts) -> None:
        font = self._look.font("small", bold=pc.sets_the_pace)
        text = self._words.stage_time(pc)
        if not pc.on_battery:
            self._line(room, text, font, "ink")
            return
        width = self._look.px(16)
        gap = self._look.px(6) if text else 0
        advance = QFontMetricsF(font).horizontalAdvance(text)
        x = room.center().x() - (advance + gap + width) / 2
        self._line(QRectF(x, room.y(), advance + 1, room.height()), text, font, "ink")
        height = self._look.px(9)
        self._battery(QRectF(x + advance + gap, room.center().y() - height / 2, width, height))

    def _battery(self, box: QRectF) -> None:
        look, painter = self._look, self._painter
        nose = look.px(2)
        body = box.adjusted(0, 0, -nose, 0)
        painter.setPen(QPen(look.colour("quiet"), look.px(1.2)))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawRoundedRect(body, look.px(2), look.px(2))
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(look.colour("quiet"))
        painter.drawRect(QRectF(body.right(), body.center().y() - nose, nose, 2 * nose))
        inner = body.adjusted(nose, nose, -nose, -nose)
        painter.drawRect(QRectF(inner.x(), inner.y(), inner.width() * 0.55, inner.height()))

    def memory_bar(self, bar: QRectF, memory: MemoryParts) -> None:
        """Paint the parts of a PC's memory, one after the other.

        Args:
            bar: Where.
            memory: Whose parts.
        """
        look, painter = self._look, self._painter
        clip = QPainterPath()
        clip.addRoundedRect(bar, bar.height() / 2, bar.height() / 2)
        painter.save()
        painter.setClipPath(clip, Qt.ClipOperation.IntersectClip)
        painter.fillRect(bar, look.colour("raised"))
        x, total = bar.x(), max(1, memory.total)
        for name, part in (
            ("system", memory.system),
            ("used", memory.used),
            ("lendable", memory.lendable),
        ):
            width = bar.width() * part / total
            fill_part(painter, QRectF(x, bar.y(), width, bar.height()), name, look)
            x += width
        painter.restore()
        painter.setPen(QPen(look.colour("quiet"), look.px(0.8)))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawRoundedRect(bar, bar.height() / 2, bar.height() / 2)

    def chip(self, center: QPointF, text: str) -> None:
        """Paint a word on the accent.

        Args:
            center: Its middle.
            text: The word.
        """
        look, painter = self._look, self._painter
        font = look.font("small", bold=True)
        metrics = QFontMetricsF(font)
        width = metrics.horizontalAdvance(text) + 2 * look.space(2)
        height = metrics.height() + look.space(1)
        box = QRectF(center.x() - width / 2, center.y() - height / 2, width, height)
        painter.setPen(QPen(look.colour("paper"), look.px(2)))
        painter.setBrush(look.colour("heart"))
        painter.drawRoundedRect(box, height / 2, height / 2)
        self._line(box, text, font, "on_heart")

    def _line(self, room: QRectF, text: str, font: QFont, colour: str) -> None:
        metrics = QFontMetricsF(font)
        self._painter.setFont(font)
        self._painter.setPen(self._look.colour(colour))
        shown = metrics.elidedText(text, Qt.TextElideMode.ElideRight, room.width())
        self._painter.drawText(room, _CENTER | _ONE_LINE, shown)


def fill_part(painter: QPainter, part: QRectF, name: str, look: Look) -> None:
    """Fill one part of a memory bar; each has a texture of its own beside its colour.

    Args:
        painter: Of the widget.
        part: Where.
        name: system, used, lendable or kept.
        look: Colours and sizes.
    """
    if name == "system":
        painter.fillRect(part, look.colour("quiet"))
    elif name == "used":
        painter.fillRect(part, look.colour("heart"))
    elif name == "kept":
        painter.fillRect(part, look.colour("raised"))
    else:
        painter.fillRect(part, look.colour("surface"))
        stripes = QPen(look.colour("heart"), look.px(1.2))
        painter.save()
        painter.setClipRect(part, Qt.ClipOperation.IntersectClip)
        painter.setPen(stripes)
        step, x = look.px(4), part.x() - part.height()
        while x < part.right():
            painter.drawLine(QPointF(x, part.bottom()), QPointF(x + part.height(), part.y()))
            x += step
        painter.restore()


def _around(petal: Petal) -> QRectF:
    radius = petal.radius
    return QRectF(petal.center.x - radius, petal.center.y - radius, 2 * radius, 2 * radius)

"""Paints the whole picture: links, petals, heart, light, and those outside."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QFontMetricsF, QPainterPath, QPen

from app.look.look import line_px
from app.pool.geometry import Arc, arc_between, label_place, light_place, on_ring
from app.pool.petal_painter import PetalPainter
from app.pool.words import number_text
from app.safe_text import one_line

if TYPE_CHECKING:
    from PySide6.QtGui import QColor, QFont, QPainter

    from app.look.look import Look
    from app.pool.geometry import Box, Petal, RingLayout
    from app.pool.light import Spot
    from app.pool.ring import LinkFacts, PcFacts, Ring
    from app.pool.words import PoolWords
    from engine.domain import NodeId

_CENTER = Qt.AlignmentFlag.AlignHCenter | Qt.AlignmentFlag.AlignVCenter
_ONE_LINE = Qt.TextFlag.TextSingleLine | Qt.TextFlag.TextDontClip
_LEFT = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
_DIMMED = 0.62  # a plan, before it is true


@dataclass(frozen=True, slots=True)
class Heart:
    """What goes on in the middle.

    Attributes:
        rate: Tokens a second of the running answer, or of the last one; None before.
        is_answering: One is under way.
    """

    rate: float | None
    is_answering: bool = False


class RingPainter:
    """Paints one picture."""

    def __init__(self, painter: QPainter, look: Look, words: PoolWords, layout: RingLayout) -> None:
        """Begin.

        Args:
            painter: On the picture.
            look: Colours and sizes.
            words: In the language that is chosen.
            layout: Where everything stands.
        """
        self._painter = painter
        self._look = look
        self._words = words
        self._layout = layout
        self._petals = PetalPainter(painter, look, words, layout.detail)

    def paint(
        self,
        ring: Ring,
        heart: Heart,
        spot: Spot | None,
        raised: frozenset[NodeId],
        focused: NodeId | None,
    ) -> None:
        """Paint all of it.

        Args:
            ring: The pool.
            heart: What goes on.
            spot: Where the light is; None for none.
            raised: PCs that are pointed at, or whose details are shown.
            focused: The PC that has the keyboard; None for none.
        """
        layout = self._layout
        lengths = layout.ring_radius - 0.97 * layout.heart_radius
        for bud in layout.buds:
            self._petals.bud(bud, lengths * 0.5)
        self._painter.setOpacity(_DIMMED if ring.is_plan else 1.0)
        places = {pc.node_id: number for number, pc in enumerate(ring.petals)}
        arcs = [
            arc_between(layout, places[link.sender], places[link.receiver]) for link in ring.links
        ]
        for link, arc in zip(ring.links, arcs, strict=True):
            self._link(link, arc)
        self._link_labels(ring, arcs)
        pairs = list(zip(ring.petals, layout.petals, strict=True))
        for pc, petal in pairs:
            self._petals.shape(petal, lengths, pc, is_raised=pc.node_id in raised)
        self._heart(ring, heart, is_lit=spot is not None and spot.link == len(ring.links))
        self._painter.setOpacity(1.0)
        if spot is not None and spot.link < len(ring.links):
            self._light(ring.links[spot.link], spot, places, lengths)
        for number, (pc, petal) in enumerate(pairs):
            if pc.node_id == focused:
                self._focus(petal)
            self._petals.text(petal, pc, number)
        for pc, petal in pairs:
            if pc.sets_the_pace and layout.detail == "full":
                place = QPointF(petal.center.x, petal.center.y + 0.93 * petal.radius)
                self._petals.chip(place, self._words.text("sets_the_pace"))
        self._outside(ring, raised, focused)

    # ---- links and the light -----------------------------------------------------------------

    def _link(self, link: LinkFacts, arc: Arc) -> None:
        look, painter, layout = self._look, self._painter, self._layout
        style = Qt.PenStyle.DotLine if link.kind == "wireless" else Qt.PenStyle.SolidLine
        width = look.px(1.2 if link.kind is None else 2)
        painter.setPen(QPen(look.colour("quiet"), width, style, Qt.PenCapStyle.RoundCap))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        heart, radius = layout.heart, layout.ring_radius
        box = QRectF(heart.x - radius, heart.y - radius, 2 * radius, 2 * radius)
        # Qt counts sixteenths of a degree, the other way round.
        painter.drawArc(
            box, round(-math.degrees(arc.start) * 16), round(-math.degrees(arc.sweep) * 16)
        )
        self._arrow(arc)

    def _arrow(self, arc: Arc) -> None:
        """Paint the point of a link where it reaches the next PC."""
        side = self._look.px(5)
        if arc.sweep * self._layout.ring_radius < 2 * side:
            return
        end = arc.start + arc.sweep
        tip = on_ring(self._layout, end)
        back = end - side / self._layout.ring_radius
        wings = [on_ring(self._layout, back, out) for out in (-0.6 * side, 0.6 * side)]
        path = QPainterPath(QPointF(wings[0].x, wings[0].y))
        path.lineTo(tip.x, tip.y)
        path.lineTo(wings[1].x, wings[1].y)
        solid, ends = Qt.PenStyle.SolidLine, Qt.PenCapStyle.RoundCap
        self._painter.setPen(QPen(self._look.colour("quiet"), self._look.px(1.6), solid, ends))
        self._painter.drawPath(path)

    def _light(self, link: LinkFacts, spot: Spot, places: dict[NodeId, int], length: float) -> None:
        """Paint the light: a petal's edge while it is in a PC, a dot while it is between two."""
        look = self._look
        place = light_place(self._layout, places[link.sender], places[link.receiver], spot.share)
        if isinstance(place, int):
            petal = self._layout.petals[place]
            self._petals.outline(petal, length, look.colour("heart"), look.px(3))
            return
        self._painter.setPen(Qt.PenStyle.NoPen)
        for radius, opacity in ((10, 0.25), (5.5, 1.0)):
            colour = look.colour("heart")
            colour.setAlphaF(opacity)
            self._painter.setBrush(colour)
            self._painter.drawEllipse(QPointF(place.x, place.y), look.px(radius), look.px(radius))

    def _link_labels(self, ring: Ring, arcs: list[Arc]) -> None:
        """Paint what is known of each link, once for both directions."""
        if self._layout.detail != "full":
            return
        opacity = self._painter.opacity()
        self._painter.setOpacity(1.0)
        told: set[frozenset[NodeId]] = set()
        for link, arc in zip(ring.links, arcs, strict=True):
            ends = frozenset((link.sender, link.receiver))
            text = self._words.link(link)
            if text and ends not in told:
                self._label(arc, text)
            told.add(ends)
        self._painter.setOpacity(opacity)

    def _label(self, arc: Arc, text: str) -> None:
        look = self._look
        font = look.font("small")
        metrics = QFontMetricsF(font)
        width = metrics.horizontalAdvance(text) + look.space(2)
        place = label_place(self._layout, arc, width)
        box = QRectF(place.x - width / 2, place.y - metrics.height() / 2, width, metrics.height())
        self._painter.setPen(Qt.PenStyle.NoPen)
        paper = look.colour("paper")
        paper.setAlphaF(0.92)
        self._painter.setBrush(paper)
        self._painter.drawRoundedRect(box, look.px(4), look.px(4))
        self._text(box, text, font, "quiet", _CENTER)

    def _focus(self, petal: Petal) -> None:
        look = self._look
        self._painter.setPen(QPen(look.colour("link"), look.px(2)))
        self._painter.setBrush(Qt.BrushStyle.NoBrush)
        radius = petal.radius - look.px(4)
        self._painter.drawEllipse(QPointF(petal.center.x, petal.center.y), radius, radius)

    # ---- the heart ----------------------------------------------------------------------------

    def _heart(self, ring: Ring, heart: Heart, *, is_lit: bool) -> None:
        look, painter, layout = self._look, self._painter, self._layout
        center = QPointF(layout.heart.x, layout.heart.y)
        radius = layout.heart_radius
        if is_lit or heart.is_answering:
            halo = look.colour("heart")
            halo.setAlphaF(0.45 if is_lit else 0.22)
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(halo)
            painter.drawEllipse(center, radius + look.px(5), radius + look.px(5))
        is_full = ring.is_running
        painter.setBrush(look.colour("heart" if is_full else "surface"))
        edge: QColor = look.colour("heart" if ring.phase != "failed" else "alarm")
        style = Qt.PenStyle.DashLine if ring.is_plan else Qt.PenStyle.SolidLine
        painter.setPen(QPen(edge, look.px(2), style))
        painter.drawEllipse(center, radius, radius)
        painter.setOpacity(1.0)
        self._heart_text(
            ring, heart, QRectF(center.x() - radius, center.y() - radius, 2 * radius, 2 * radius)
        )

    def _heart_text(self, ring: Ring, heart: Heart, box: QRectF) -> None:
        lines = self._heart_lines(ring, heart)
        ink = "on_heart" if ring.is_running else "ink"
        height = sum(line_px(font) for _, font in lines)
        while lines and height > 1.5 * box.height() / 2 and len(lines) > 1:
            lines = [line for line in lines if line is not lines[-1]]
            height = sum(line_px(font) for _, font in lines)
        y = box.center().y() - height / 2
        for text, font in lines:
            line = line_px(font)
            # A line away from the middle has less room in a circle.
            off = max(abs(y - box.center().y()), abs(y + line - box.center().y()))
            half = math.sqrt(max(1.0, (box.width() / 2) ** 2 - off**2)) - self._look.px(2)
            room = QRectF(box.center().x() - half, y, 2 * half, line)
            if QFontMetricsF(font).horizontalAdvance(text) > room.width():
                font = self._look.font("small", bold=font.bold())  # noqa: PLW2901 - this line's
            self._text(room, text, font, ink, _CENTER)
            y += line

    def _heart_lines(self, ring: Ring, heart: Heart) -> list[tuple[str, QFont]]:
        look, words = self._look, self._words
        small = look.font("small")
        if not ring.model_name:
            return [(words.text("heart_empty"), small)]
        name = one_line(ring.model_name, 40)
        if not ring.is_running:
            word = (words.text(f"heart_{ring.phase}"), look.font("body", bold=True))
            if ring.forecast is None:
                return [word, (name, small)]
            rate = words.text("heart_forecast", rate=number_text(ring.forecast))
            return [word, (f"{rate} {words.text('heart_rate_unit')}", small)]
        big = look.font("title", bold=True)
        if heart.rate is not None and (heart.is_answering or ring.forecast is None):
            shown = number_text(heart.rate)
        elif ring.forecast is not None:
            shown, big = (
                words.text("heart_forecast", rate=number_text(ring.forecast)),
                look.font("lead", bold=True),
            )
        else:
            return [(words.text("heart_ready"), look.font("lead", bold=True)), (name, small)]
        return [(shown, big), (words.text("heart_rate_unit"), small), (name, small)]

    # ---- those outside ------------------------------------------------------------------------

    def _outside(self, ring: Ring, raised: frozenset[NodeId], focused: NodeId | None) -> None:
        layout = self._layout
        for number, (pc, box) in enumerate(zip(ring.outside, layout.outside, strict=False)):
            is_last = number == len(layout.outside) - 1
            hidden = layout.hidden_outside if is_last else 0
            self._one_outside(
                pc, box, hidden, is_raised=pc.node_id in raised, is_focused=pc.node_id == focused
            )

    def _one_outside(
        self, pc: PcFacts, box: Box, hidden: int, *, is_raised: bool, is_focused: bool
    ) -> None:
        look, painter = self._look, self._painter
        room = QRectF(box.x, box.y, box.width, box.height)
        colour = look.colour("link" if is_focused else "line")
        style = (
            Qt.PenStyle.SolidLine if is_focused or pc.role == "standby" else Qt.PenStyle.DashLine
        )
        painter.setPen(QPen(colour, look.px(2 if is_focused else 1.2), style))
        painter.setBrush(look.colour("raised" if is_raised else "paper"))
        painter.drawRoundedRect(room, look.px(8), look.px(8))
        bold, small = look.font("small", bold=True), look.font("small")
        line = line_px(small)
        inner = room.adjusted(look.space(3), look.space(1), -look.space(2), -look.space(1))
        lines = _wrapped(self._words.reason(pc), QFontMetricsF(small), inner.width(), 3)
        top = inner.center().y() - (1 + len(lines)) * line / 2
        name = f"{self._words.name(pc)} · {self._words.role(pc)}"
        if hidden:
            name = f"{name}, {self._words.text('more_outside', n=hidden)}"
        self._text(QRectF(inner.x(), top, inner.width(), line), name, bold, "ink", _LEFT)
        for row, text in enumerate(lines, 1):
            room = QRectF(inner.x(), top + row * line, inner.width(), line)
            self._text(room, text, small, "quiet", _LEFT)

    def _text(
        self, room: QRectF, text: str, font: QFont, colour: str, flags: Qt.AlignmentFlag
    ) -> None:
        metrics = QFontMetricsF(font)
        self._painter.setFont(font)
        self._painter.setPen(self._look.colour(colour))
        shown = metrics.elidedText(text, Qt.TextElideMode.ElideRight, room.width())
        self._painter.drawText(room, flags | _ONE_LINE, shown)


def _wrapped(text: str, metrics: QFontMetricsF, width: float, most: int) -> list[str]:
    """Return a text in lines, cut between words where it has any; the last one may be too long."""
    lines: list[str] = []
    while text and len(lines) < most - 1 and metrics.horizontalAdvance(text) > width:
        fits = len(text)
        while fits > 1 and metrics.horizontalAdvance(text[:fits]) > width:
            fits -= 1
        cut = _cut_before(text, fits)
        lines.append(text[:cut].rstrip())
        text = text[cut:].lstrip()
    return [*lines, text] if text else lines


def _cut_before(text: str, fits: int) -> int:
    """Return where a line ends: at a blank, or beside a letter that is a word of its own."""
    for at in range(fits, max(1, fits // 2), -1):
        can_end = " " in text[at - 1 : at + 1] or _is_ideograph(text[at - 1])
        if can_end and text[at : at + 1] not in _NEVER_FIRST:
            return at
    return fits


def _is_ideograph(char: str) -> bool:
    return ord(char) >= 0x2E80


_NEVER_FIRST = frozenset("\uff0c\u3002\u3001\uff1b\uff1a\uff09\uff01\uff1f")  # marks

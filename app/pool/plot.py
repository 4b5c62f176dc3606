"""A small plot of what was measured in the last minutes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QFontMetricsF, QPainter, QPen, QPolygonF
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.pool.history import History, nice_top
from app.pool.words import number_text
from app.safe_text import one_line

if TYPE_CHECKING:
    from PySide6.QtGui import QPaintEvent

    from app.look.look import Look
    from app.wording.wording import Wording

SPAN_S = 300.0
MAX_LINES = 16
# Lines differ in colour and in pattern.
_COLOURS = ("heart", "link", "leaf", "alarm", "quiet")
_STYLES = (Qt.PenStyle.SolidLine, Qt.PenStyle.DashLine, Qt.PenStyle.DotLine)
_NOTHING = "\u2013"
_LEFT = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
_RIGHT = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter


class Plot(QWidget):
    """One or more lines over the same five minutes.

    Thread: the main one.
    """

    def __init__(
        self,
        look: Look,
        wording: Wording,
        title_key: str,
        empty_key: str,
        parent: QWidget | None = None,
    ) -> None:
        """Begin with nothing measured.

        Args:
            look: Colours and sizes.
            wording: Words.
            title_key: What is measured.
            empty_key: What is said before anything was.
            parent: Owns it.
        """
        super().__init__(parent)
        self._look = look
        self._wording = wording
        self._title_key = title_key
        self._empty_key = empty_key
        self._lines: dict[str, History] = {}
        self._names: dict[str, str] = {}
        self._now_s = 0.0
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        look.changed.connect(self.updateGeometry)
        look.changed.connect(self.update)
        wording.changed.connect(self._describe)
        self._describe()

    def add(self, line: str, name: str, at_s: float, value: float | None) -> None:
        """Take a measurement.

        Args:
            line: Id of the line; a new one begins with it, of no more than fit.
            name: Of the line, as it is shown; empty where there is one line only.
            at_s: On a clock that never goes back.
            value: What was measured; None for a gap.
        """
        if line not in self._lines:
            if value is None or len(self._lines) >= MAX_LINES:
                return
            self._lines[line] = History()
        self._names[line] = one_line(name, 24)
        self._lines[line].add(at_s, value)
        self._now_s = max(self._now_s, at_s)
        self._describe()
        self.update()

    def keep_only(self, lines: set[str]) -> None:
        """Forget lines nobody measures any more.

        Args:
            lines: Ids of those that stay.
        """
        for line in set(self._lines) - lines:
            del self._lines[line], self._names[line]

    @property
    def histories(self) -> dict[str, History]:
        """What was measured, by line."""
        return self._lines

    def sizeHint(self) -> QSize:
        """Return a size at which it can be read."""
        return QSize(self._look.px(280), self._look.px(112))

    def minimumSizeHint(self) -> QSize:
        """Return the least size."""
        return QSize(self._look.px(160), self._look.px(112))

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Paint title, axis and lines."""
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        look = self._look
        small = look.font("small")
        line = QFontMetricsF(small).height()
        painter.setFont(small)
        painter.setPen(look.colour("quiet"))
        title = QRectF(0, 0, self.width(), line)
        painter.drawText(title, _LEFT, self._wording.text(self._title_key))
        room = QRectF(
            0, line + look.space(1), self.width(), self.height() - 2 * line - look.space(2)
        )
        painter.setPen(QPen(look.colour("line"), 1))
        painter.drawLine(room.bottomLeft(), room.bottomRight())
        painter.setPen(look.colour("quiet"))
        if not self._lines:
            middle = Qt.AlignmentFlag.AlignCenter | Qt.TextFlag.TextWordWrap
            painter.drawText(room, middle, self._wording.text(self._empty_key))
        else:
            self._paint_lines(painter, room)
        foot = QRectF(0, room.bottom() + look.space(1), self.width(), line)
        painter.setPen(look.colour("quiet"))
        painter.drawText(foot, _LEFT, self._wording.text("pool.history_span"))
        painter.drawText(foot, _RIGHT, self._wording.text("pool.history_now"))
        painter.end()

    def _paint_lines(self, painter: QPainter, room: QRectF) -> None:
        look = self._look
        top = nice_top(max((h.largest or 0.0 for h in self._lines.values()), default=0.0))
        painter.drawText(room, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignTop, f"{top:g}")
        painter.setPen(QPen(look.colour("line"), 1, Qt.PenStyle.DotLine))
        painter.drawLine(room.topLeft(), room.topRight())
        for number, history in enumerate(self._lines.values()):
            colour = look.colour(_COLOURS[number % len(_COLOURS)])
            style = _STYLES[number // len(_COLOURS) % len(_STYLES)]
            painter.setPen(QPen(colour, look.px(2), style))
            for piece in history.lines(self._now_s, SPAN_S, top):
                points = [
                    QPointF(room.x() + x * room.width(), room.bottom() - y * room.height())
                    for x, y in piece
                ]
                if len(points) == 1:
                    painter.drawPoint(points[0])
                else:
                    painter.drawPolyline(QPolygonF(points))
        self._paint_names(painter)

    def _paint_names(self, painter: QPainter) -> None:
        """Paint at the upper right which line is whose, and its newest value."""
        look = self._look
        metrics = QFontMetricsF(look.font("small"))
        x = float(self.width())
        for number, (line, history) in reversed(list(enumerate(self._lines.items()))):
            latest = _NOTHING if history.latest is None else number_text(history.latest)
            text = f"{self._names[line]} {latest}".strip()
            width = metrics.horizontalAdvance(text)
            mark = look.px(14)
            if x - width - mark < self.width() * 0.42:
                break
            x -= width
            painter.setPen(look.colour("ink"))
            painter.drawText(QRectF(x, 0, width + 1, metrics.height()), _LEFT, text)
            x -= mark
            style = _STYLES[number // len(_COLOURS) % len(_STYLES)]
            painter.setPen(QPen(look.colour(_COLOURS[number % len(_COLOURS)]), look.px(2), style))
            y = metrics.height() / 2
            painter.drawLine(QPointF(x, y), QPointF(x + mark - look.px(4), y))
            x -= look.px(8)

    def _describe(self) -> None:
        title = self._wording.text(self._title_key)
        self.setAccessibleName(title)
        told = [
            self._wording.text(
                "pool.history_summary",
                title=self._names[line] or title,
                latest=_NOTHING if history.latest is None else number_text(history.latest),
                largest=_NOTHING if history.largest is None else number_text(history.largest),
            )
            for line, history in self._lines.items()
        ]
        text = "; ".join(told) or self._wording.text(self._empty_key)
        self.setAccessibleDescription(text)
        self.setToolTip("" if not told else "\n".join(told))
        self.update()

"""The pool as a flower: a petal for each PC, the answer in its heart."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from PySide6.QtCore import QRect, QRectF, QSize, Qt, QTimer, Signal
from PySide6.QtGui import QPainter, QRegion
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.look.look import line_px
from app.pool.geometry import Point, lay_out, light_place
from app.pool.light import TravellingLight
from app.pool.petal_button import PetalButton, as_tip
from app.pool.ring import Ring
from app.pool.ring_painter import Heart, RingPainter
from app.pool.words import PoolWords

if TYPE_CHECKING:
    from PySide6.QtGui import QPaintEvent, QResizeEvent

    from app.look.look import Look
    from app.pool.geometry import RingLayout
    from app.pool.ring import PcFacts
    from app.wording.wording import Wording
    from engine.domain import NodeId

FRAME_MS = 33  # the light moves 30 times a second


@dataclass(slots=True)
class _Shown:
    """What was told last."""

    ring: Ring
    rate: float | None = None
    is_answering: bool = False
    chosen: NodeId | None = None


class PoolPicture(QWidget):
    """The picture.

    Attributes:
        chosen: Carries the id of the PC whose details are wanted.

    Thread: the main one.
    """

    chosen = Signal(str)

    def __init__(self, look: Look, wording: Wording, parent: QWidget | None = None) -> None:
        """Begin with an empty pool.

        Args:
            look: Colours and sizes.
            wording: Words.
            parent: Owns it.
        """
        super().__init__(parent)
        self._look = look
        self._words = PoolWords(wording)
        self._shown = _Shown(Ring())
        self._light = TravellingLight()
        self._is_animated = True
        self._lit = QRect()  # where the light was painted last
        self._buttons: dict[str, PetalButton] = {}
        self._heart = QWidget(self)  # painted by the picture; explains itself
        self._heart.setAttribute(Qt.WidgetAttribute.WA_NoSystemBackground)
        self._layout = lay_out(1, 1, 0, 0, 1)
        self._frames = QTimer(self)
        self._frames.setInterval(FRAME_MS)
        self._frames.timeout.connect(self._on_frame)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.setMinimumSize(QSize(240, 240))
        look.changed.connect(self._arrange)
        wording.changed.connect(self._arrange)
        self._arrange()

    @property
    def ring(self) -> Ring:
        """What is shown."""
        return self._shown.ring

    @property
    def layout_now(self) -> RingLayout:
        """Where everything stands."""
        return self._layout

    def show_ring(self, ring: Ring) -> None:
        """Show a pool.

        Args:
            ring: As it is now.
        """
        self._shown.ring = ring
        if not ring.is_running:
            self._light.stop()
        self._arrange()

    def show_rate(self, tokens_per_s: float | None, *, is_answering: bool) -> None:
        """Show how fast the running answer comes.

        Args:
            tokens_per_s: Of it; None before it is known.
            is_answering: Whether one is under way.
        """
        self._shown.rate, self._shown.is_answering = tokens_per_s, is_answering
        self.update()

    def token_passed(self) -> None:
        """Let the light go round: a token has really passed through all of the chain."""
        if self._is_animated and self.isVisible() and self._shown.ring.is_running:
            self._light.token_passed(time.monotonic())
            if not self._frames.isActive():
                self._frames.start()

    def animate(self, *, wanted: bool) -> None:
        """Switch the light on or off.

        Args:
            wanted: Whether anything may move.
        """
        self._is_animated = wanted
        if not wanted:
            self._light.stop()
            self.update()

    def mark_chosen(self, node_id: NodeId | None) -> None:
        """Show whose details are open.

        Args:
            node_id: Of the PC; None for nobody's.
        """
        self._shown.chosen = node_id
        self.update()

    def sizeHint(self) -> QSize:
        """Return the size at which all figures are readable."""
        return QSize(self._look.px(640), self._look.px(520))

    # ---- Qt ----------------------------------------------------------------------------------

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Arrange everything anew."""
        super().resizeEvent(event)
        self._arrange()

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Paint the flower."""
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        spot = self._light.spot(time.monotonic(), len(self._shown.ring.links))
        heart = Heart(self._shown.rate, is_answering=self._shown.is_answering)
        raised = {
            button.node_id
            for button in self._buttons.values()
            if button.underMouse() or button.node_id == self._shown.chosen
        }
        focused = next((b.node_id for b in self._buttons.values() if b.hasFocus()), None)
        ring_painter = RingPainter(painter, self._look, self._words, self._layout)
        ring_painter.paint(self._shown.ring, heart, spot, frozenset(raised), focused)
        painter.end()

    def _on_frame(self) -> None:
        """Paint anew where the light was and where it is, nothing else."""
        where = self._light_region()
        self.update(where.united(self._lit))
        self._lit = where
        if not self._light.is_lit:
            self._frames.stop()

    def _light_region(self) -> QRect:
        ring, layout = self._shown.ring, self._layout
        spot = self._light.spot(time.monotonic(), len(ring.links))
        if spot is None:
            return QRect()
        if spot.link >= len(ring.links):
            return _square(layout.heart, layout.heart_radius + self._look.px(8))
        link = ring.links[spot.link]
        places = {pc.node_id: number for number, pc in enumerate(ring.petals)}
        ends = places[link.sender], places[link.receiver]
        place = light_place(layout, *ends, spot.share)
        if isinstance(place, Point):
            return _square(place, self._look.px(12))
        # With the neck, which ends at the heart.
        petal = _square(layout.petals[place].center, layout.petals[place].radius)
        return petal.united(_square(layout.heart, layout.heart_radius)).adjusted(-4, -4, 4, 4)

    # ---- petals one can reach ------------------------------------------------------------------

    def _arrange(self) -> None:
        ring = self._shown.ring
        line = line_px(self._look.font("small"))
        self._layout = lay_out(
            self.width(), self.height(), len(ring.petals), len(ring.outside), line
        )
        places = dict(zip((pc.node_id for pc in ring.petals), self._layout.petals, strict=True))
        boxes = zip((pc.node_id for pc in ring.outside), self._layout.outside, strict=False)
        present = {*places, *dict(boxes)}
        for node_id in [node_id for node_id in self._buttons if node_id not in present]:
            button = self._buttons.pop(node_id)
            button.setParent(None)
            button.deleteLater()
        outside = dict(zip((pc.node_id for pc in ring.outside), self._layout.outside, strict=False))
        previous: QWidget | None = None
        for pc in ring.pcs:
            if pc.node_id not in present:
                continue
            button = self._button(pc)
            if pc.node_id in places:
                button.stand_in(places[pc.node_id])
            else:
                button.stand_at(outside[pc.node_id])
            if previous is not None:
                self.setTabOrder(previous, button)
            previous = button
        self._place_heart()
        self.setAccessibleName(self._words.text("picture_name"))
        self.setAccessibleDescription(self._words.headline(ring))
        self.update()

    def _place_heart(self) -> None:
        heart, radius = self._layout.heart, round(self._layout.heart_radius)
        self._heart.setGeometry(
            QRect(round(heart.x) - radius, round(heart.y) - radius, 2 * radius, 2 * radius)
        )
        self._heart.setMask(QRegion(self._heart.rect(), QRegion.RegionType.Ellipse))
        headline = self._words.headline(self._shown.ring)
        self._heart.setToolTip(as_tip(headline))
        self._heart.setAccessibleName(self._words.text("heart_name"))
        self._heart.setAccessibleDescription(headline)

    def _button(self, pc: PcFacts) -> PetalButton:
        button = self._buttons.get(pc.node_id)
        if button is None:
            button = PetalButton(pc.node_id, self)
            button.clicked.connect(lambda: self.chosen.emit(pc.node_id))
            button.stepped.connect(self._step)
            button.show()
            self._buttons[pc.node_id] = button
        button.setAccessibleName(self._words.name(pc))
        sentence = self._words.sentence(pc)
        button.setAccessibleDescription(sentence)
        button.explain(sentence)
        return button

    def _step(self, by: int) -> None:
        """Move the focus to the next PC or the one before."""
        order = [pc.node_id for pc in self._shown.ring.pcs if pc.node_id in self._buttons]
        focused = next((i for i, n in enumerate(order) if self._buttons[n].hasFocus()), None)
        if focused is not None:
            self._buttons[order[(focused + by) % len(order)]].setFocus()


def _square(center: Point, radius: float) -> QRect:
    side = 2 * radius
    return QRectF(center.x - radius, center.y - radius, side, side).toAlignedRect()

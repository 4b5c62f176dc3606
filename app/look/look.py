"""The look as it is now: theme and scale, switched while the window is open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QByteArray, QObject, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QColor,
    QFont,
    QFontDatabase,
    QFontInfo,
    QFontMetricsF,
    QGuiApplication,
    QIcon,
    QPainter,
    QPixmap,
)
from PySide6.QtSvg import QSvgRenderer

from app.look.tokens import DARK, LIGHT, MAX_SCALE, MIN_SCALE, SPACE_PX, TYPE_PX, Theme

if TYPE_CHECKING:
    from pathlib import Path

    from app.look.tokens import Step, ThemeChoice

# Fonts with the signs of 简体中文, the systems' own ones first. Qt's own choice may be one for
# Japanese, or bold where nothing bold was asked for.
_CHINESE = (
    *("Microsoft YaHei UI", "PingFang SC", "Noto Sans CJK SC", "Noto Sans SC"),
    *("Source Han Sans SC", "WenQuanYi Micro Hei"),
)
_FIXED = ("Cascadia Mono", "Consolas", "DejaVu Sans Mono", "monospace")
_GENERAL = QFontDatabase.SystemFont.GeneralFont
_LINE = 1.25  # of a drawing: times the size of its letters; Chinese fonts take half as much again
_INK = "currentColor"  # what our SVG icons are drawn in


class Look(QObject):
    """Theme, sizes and icons.

    Attributes:
        changed: Theme or scale is another one: whoever draws, draws again.

    Thread: the main one.
    """

    changed = Signal()

    def __init__(self, icons: Path, parent: QObject | None = None) -> None:
        """Begin with the system's theme, at 100 %.

        Args:
            icons: Folder of the SVG icons.
            parent: Owns it.
        """
        super().__init__(parent)
        self._icons = icons
        self._choice: ThemeChoice = "system"
        self._scale = 1.0
        self._language = "en"
        self._families = [QFontInfo(QFontDatabase.systemFont(_GENERAL)).family()]
        there = set(QFontDatabase.families())
        self._chinese = [family for family in _CHINESE if family in there][:1]
        self._drawings: dict[str, bytes] = {}
        self._made: dict[tuple[str, str], QIcon] = {}  # in the colours of now
        QGuiApplication.styleHints().colorSchemeChanged.connect(self._on_system_changed)

    @property
    def theme(self) -> Theme:
        """The colours."""
        if self._choice == "system":
            return DARK if _system_is_dark() else LIGHT
        return DARK if self._choice == "dark" else LIGHT

    @property
    def scale(self) -> float:
        """1.0 to 2.5, on top of the system's own scaling."""
        return self._scale

    def choose(self, theme: ThemeChoice, scale: float) -> None:
        """Switch theme and scale; everybody is told.

        Args:
            theme: ``light``, ``dark`` or ``system``.
            scale: 1.0 to 2.5; what lies outside becomes the nearest.
        """
        scale = min(max(scale, MIN_SCALE), MAX_SCALE)
        if (theme, scale) != (self._choice, self._scale):
            self._choice, self._scale = theme, scale
            self._made.clear()
            self.changed.emit()

    def speak(self, language: str) -> None:
        """Choose fonts for a language; everybody is told.

        Args:
            language: ``en`` or ``zh``.
        """
        if language != self._language:
            self._language = language
            self.changed.emit()

    def px(self, num: float) -> int:
        """Return a length in logical pixels at the present scale.

        Args:
            num: At 100 %.
        """
        return round(num * self._scale)

    def space(self, units: float = 1) -> int:
        """Return a distance in logical pixels.

        Args:
            units: How many spacing units of 4 pixels.
        """
        return self.px(SPACE_PX * units)

    def font(self, step: Step = "body", *, bold: bool = False, fixed: bool = False) -> QFont:
        """Return a font of the type scale.

        Args:
            step: Of the scale.
            bold: Half bold.
            fixed: All letters equally wide.
        """
        font = QFont(QGuiApplication.font())
        if fixed:
            font.setFamilies([*_FIXED, *self._chinese])
            font.setStyleHint(QFont.StyleHint.Monospace)
        elif self._language == "zh":
            # One font for both scripts: else lines beside each other stand at different heights.
            font.setFamilies([*self._chinese, *self._families])
        else:
            font.setFamilies([*self._families, *self._chinese])
        font.setPixelSize(self.px(TYPE_PX[step]))
        font.setWeight(QFont.Weight.DemiBold if bold else QFont.Weight.Normal)
        return font

    def colour(self, name: str) -> QColor:
        """Return a colour of the theme.

        Args:
            name: Of a token: ``ink``, ``heart`` and so on.
        """
        return QColor(getattr(self.theme, name))

    def icon(self, name: str, colour: str = "ink") -> QIcon:
        """Return an icon in one colour, sharp at any scaling.

        Args:
            name: Of its file, without the ending.
            colour: Name of a token.
        """
        known = self._made.get((name, colour))
        if known is not None:
            return known
        icon = self._made[name, colour] = QIcon()
        for side in (16, 20, 24, 32, 48, 64, 96):
            icon.addPixmap(self.pixmap(name, side, colour))
        return icon

    def pixmap(self, name: str, side: int, colour: str = "ink") -> QPixmap:
        """Return an icon as a square of pixels.

        Args:
            name: Of its file, without the ending.
            side: In device pixels.
            colour: Name of a token.
        """
        pixmap = QPixmap(QSize(side, side))
        pixmap.fill(Qt.GlobalColor.transparent)
        ink = getattr(self.theme, colour).encode()
        drawing = self._drawing(name).replace(_INK.encode(), ink)
        painter = QPainter(pixmap)
        QSvgRenderer(QByteArray(drawing)).render(painter, QRectF(0, 0, side, side))
        painter.end()
        return pixmap

    def _drawing(self, name: str) -> bytes:
        if name not in self._drawings:
            self._drawings[name] = (self._icons / f"{name}.svg").read_bytes()
        return self._drawings[name]

    def _on_system_changed(self) -> None:
        if self._choice == "system":
            self._made.clear()
            self.changed.emit()


def line_px(font: QFont) -> float:
    """Return how high a line of a drawing is, where lines of text would stand too far apart.

    Args:
        font: Of the line.
    """
    return min(QFontMetricsF(font).height(), _LINE * font.pixelSize())


def _system_is_dark() -> bool:
    return QGuiApplication.styleHints().colorScheme() == Qt.ColorScheme.Dark

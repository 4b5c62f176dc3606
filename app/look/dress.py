"""The whole application in the look of now: style sheet, palette, font."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject
from PySide6.QtGui import QColor, QPalette

from app.look.stylesheet import style_sheet

if TYPE_CHECKING:
    from PySide6.QtWidgets import QApplication

    from app.look.look import Look
    from app.look.tokens import Theme

STYLE = "Fusion"  # the same on every system, and sharp at every scale


class Dress(QObject):
    """Keeps the application dressed."""

    def __init__(self, application: QApplication, look: Look) -> None:
        """Dress it.

        Args:
            application: Which.
            look: Theme and sizes.
        """
        super().__init__(application)
        self._application = application
        self._look = look
        application.setStyle(STYLE)
        look.changed.connect(self.put_on)
        self.put_on()

    def put_on(self) -> None:
        """Take over theme and scale."""
        self._application.setPalette(palette_of(self._look.theme))
        self._application.setFont(self._look.font())
        self._application.setStyleSheet(style_sheet(self._look.theme, self._look.scale))


def palette_of(theme: Theme) -> QPalette:
    """Return Qt's colours of a theme.

    Args:
        theme: Which.
    """
    role = QPalette.ColorRole
    palette = QPalette()
    for name, colour in (
        (role.Window, theme.paper),
        (role.WindowText, theme.ink),
        (role.Base, theme.surface),
        (role.AlternateBase, theme.paper),
        (role.ToolTipBase, theme.surface),
        (role.ToolTipText, theme.ink),
        (role.Text, theme.ink),
        (role.Button, theme.surface),
        (role.ButtonText, theme.ink),
        (role.Highlight, theme.link),
        (role.HighlightedText, theme.paper),
        (role.Link, theme.link),
        (role.PlaceholderText, theme.quiet),
        (role.Accent, theme.heart),
    ):
        palette.setColor(name, QColor(colour))
    for name in (role.WindowText, role.Text, role.ButtonText):
        palette.setColor(QPalette.ColorGroup.Disabled, name, QColor(theme.quiet))
    return palette

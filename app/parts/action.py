"""A button."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from PySide6.QtCore import QSize, Qt
from PySide6.QtWidgets import QPushButton, QWidget

from app.look.tokens import CORNER_PX

if TYPE_CHECKING:
    from app.look.look import Look

# The next step; one among others; one that looks like text.
Kind = Literal["chief", "plain", "quiet"]


class Action(QPushButton):
    """A button that follows the look."""

    def __init__(
        self,
        look: Look,
        kind: Kind = "plain",
        icon: str = "",
        parent: QWidget | None = None,
    ) -> None:
        """Begin without a word.

        Args:
            look: Followed.
            kind: How much it stands out.
            icon: Name of its icon's file; empty for none.
            parent: Owns it.
        """
        super().__init__(parent)
        self._look = look
        self._kind = kind
        self._icon = icon
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        look.changed.connect(self._dress)
        self._dress()

    def say(self, text: str, hint: str = "") -> None:
        """Set its word, and what is said where the pointer rests on it.

        Args:
            text: Its word; ``&`` is shown as it is.
            hint: One sentence; empty for none.
        """
        gap = "\u2002" if self._icon else ""  # Qt leaves next to none after an icon
        self.setText(gap + text.replace("&", "&&"))
        self.setToolTip(hint)
        self.setAccessibleName(text)

    def _dress(self) -> None:
        look = self._look
        colours = {name: look.colour(name).name() for name in _COLOURS}
        ink = "on_heart" if self._kind == "chief" else "ink"
        if self._icon:
            self.setIcon(look.icon(self._icon, ink))
            self.setIconSize(QSize(look.px(18), look.px(18)))
        self.setFont(look.font("body", bold=self._kind == "chief"))
        self.setStyleSheet(
            _SHEET[self._kind].format(
                corner=look.px(CORNER_PX),
                up=look.space(1.5),
                side=look.space(3 if self._kind != "quiet" else 2),
                **colours,
            )
        )


_COLOURS = ("paper", "surface", "raised", "line", "ink", "quiet", "heart", "on_heart", "link")
_SHAPE = "padding: {up}px {side}px; border-radius: {corner}px; "
_STATES = (
    "QPushButton:focus {{ border: 2px solid {link}; }} "
    "QPushButton:disabled {{ color: {quiet}; background: none; border: 1px dashed {line}; }}"
)
_SHEET: dict[str, str] = {
    "chief": "QPushButton {{ "
    + _SHAPE
    + "color: {on_heart}; background: {heart}; border: 1px solid {heart}; }} "
    "QPushButton:pressed {{ border: 1px solid {ink}; }} " + _STATES,
    "plain": "QPushButton {{ "
    + _SHAPE
    + "color: {ink}; background: {surface}; border: 1px solid {line}; }} "
    "QPushButton:hover, QPushButton:pressed {{ background: {raised}; }} "
    "QPushButton:checked {{ background: {raised}; border: 1px solid {quiet}; }} " + _STATES,
    "quiet": "QPushButton {{ "
    + _SHAPE
    + "color: {ink}; background: none; border: 1px solid transparent; text-align: left; }} "
    "QPushButton:hover, QPushButton:pressed {{ background: {raised}; }} " + _STATES,
}

"""Text in a step of the type scale and a colour of the theme."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel, QWidget

from app.look.tokens import TYPE_PX

if TYPE_CHECKING:
    from app.look.look import Look
    from app.look.tokens import Step


class Text(QLabel):
    """A label that shows text as text, whatever is in it."""

    def __init__(
        self,
        look: Look,
        step: Step = "body",
        colour: str = "ink",
        *,
        bold: bool = False,
        parent: QWidget | None = None,
    ) -> None:
        """Begin empty.

        Args:
            look: Followed.
            step: Of the type scale.
            colour: Name of a token.
            bold: Half bold.
            parent: Owns it.
        """
        super().__init__(parent)
        self._look = look
        self._step = step
        self._colour = colour
        self._bold = bold
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setWordWrap(True)
        look.changed.connect(self._dress)
        self._dress()

    def be(self, colour: str) -> None:
        """Take another colour.

        Args:
            colour: Name of a token.
        """
        if colour != self._colour:
            self._colour = colour
            self._dress()

    def one_line(self) -> Text:
        """Keep everything on one line; returns itself."""
        self.setWordWrap(False)
        return self

    def selectable(self) -> Text:
        """Let people select it; returns itself."""
        self.setTextInteractionFlags(
            Qt.TextInteractionFlag.TextSelectableByMouse
            | Qt.TextInteractionFlag.TextSelectableByKeyboard
        )
        return self

    def _dress(self) -> None:
        self.setFont(self._look.font(self._step, bold=self._bold))
        # The application's style sheet has a size for everything: only another one changes it.
        size = self._look.px(TYPE_PX[self._step])
        weight = 600 if self._bold else 400
        colour = self._look.colour(self._colour).name()
        self.setStyleSheet(
            f"color: {colour}; background: none; font-size: {size}px; font-weight: {weight};"
        )

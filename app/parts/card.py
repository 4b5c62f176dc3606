"""A quiet surface with a hairline around it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtWidgets import QFrame, QVBoxLayout, QWidget

from app.look.tokens import CORNER_PX

if TYPE_CHECKING:
    from app.look.look import Look


class Card(QFrame):
    """Holds rows."""

    def __init__(self, look: Look, parent: QWidget | None = None, edge: str = "line") -> None:
        """Begin empty.

        Args:
            look: Followed.
            parent: Owns it.
            edge: Token of the hairline's colour.
        """
        super().__init__(parent)
        self._look = look
        self._edge = edge
        self.setObjectName("card")
        self.rows = QVBoxLayout(self)
        look.changed.connect(self._dress)
        self._dress()

    def _dress(self) -> None:
        look = self._look
        inside = look.space(4)
        self.rows.setContentsMargins(inside, inside, inside, inside)
        self.rows.setSpacing(look.space(2))
        self.setStyleSheet(
            f"QFrame#card {{ background: {look.colour('surface').name()}; "
            f"border: 1px solid {look.colour(self._edge).name()}; "
            f"border-radius: {look.px(CORNER_PX)}px; }}"
        )

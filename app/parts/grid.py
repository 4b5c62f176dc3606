"""A small table of texts that is read, not used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QGridLayout, QWidget

from app.parts.text import Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from app.look.look import Look


class Grid(QWidget):
    """Rows of texts below a heading; widgets are kept from one second to the next."""

    def __init__(self, look: Look, parent: QWidget | None = None) -> None:
        """Begin empty.

        Args:
            look: Followed.
            parent: Owns it.
        """
        super().__init__(parent)
        self._look = look
        self._cells: dict[tuple[int, int], Text] = {}
        self._layout = QGridLayout(self)
        self._layout.setContentsMargins(0, 0, 0, 0)
        look.changed.connect(self._dress)
        self._dress()

    def show_rows(
        self,
        heading: Sequence[str],
        rows: Sequence[Sequence[str]],
        tips: Sequence[Sequence[str]] | None = None,
    ) -> None:
        """Show texts.

        Args:
            heading: Of the columns.
            rows: Below it.
            tips: What each cell of ``rows`` says at length; None for nothing more.
        """
        wanted: dict[tuple[int, int], tuple[str, str]] = {}
        for column, text in enumerate(heading):
            wanted[0, column] = (text, "")
        for row, texts in enumerate(rows, 1):
            for column, text in enumerate(texts):
                wanted[row, column] = (text, tips[row - 1][column] if tips else "")
        for place in set(self._cells) - set(wanted):
            cell = self._cells.pop(place)
            self._layout.removeWidget(cell)
            cell.setParent(None)
            cell.deleteLater()
        for place, (text, tip) in wanted.items():
            cell = self._cell(place)
            if cell.text() != text:
                cell.setText(text)
            cell.setToolTip(tip)
            cell.setAccessibleName(tip or text)

    def texts(self) -> list[list[str]]:
        """Return what is shown, the heading first."""
        rows: dict[int, dict[int, str]] = {}
        for (row, column), cell in self._cells.items():
            rows.setdefault(row, {})[column] = cell.text()
        return [[cells[c] for c in sorted(cells)] for _, cells in sorted(rows.items())]

    def _cell(self, place: tuple[int, int]) -> Text:
        if place not in self._cells:
            row, column = place
            cell = Text(self._look, "small", "quiet" if row == 0 else "ink", parent=self)
            self._layout.addWidget(cell, row, column, Qt.AlignmentFlag.AlignTop)
            self._layout.setColumnStretch(column, 1)
            cell.show()
            self._cells[place] = cell
        return self._cells[place]

    def _dress(self) -> None:
        self._layout.setHorizontalSpacing(self._look.space(4))
        self._layout.setVerticalSpacing(self._look.space(1.5))

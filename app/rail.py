"""The rail: one button a place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtWidgets import QButtonGroup, QFrame, QToolButton, QVBoxLayout, QWidget

if TYPE_CHECKING:
    from app.look.look import Look
    from app.page import Page
    from app.wording.wording import Wording

ICON_PX = 22
LAST = "settings"  # stands at the foot


class Rail(QFrame):
    """The places, on the window's left.

    Attributes:
        chosen: Carries the page's name.
    """

    chosen = Signal(str)

    def __init__(self, look: Look, wording: Wording, parent: QWidget) -> None:
        """Begin without places.

        Args:
            look: Theme and sizes.
            wording: Of everything.
            parent: Owns it.
        """
        super().__init__(parent)
        self.setObjectName("rail")
        self._look = look
        self._wording = wording
        self._buttons: dict[str, tuple[QToolButton, Page]] = {}
        self._group = QButtonGroup(self)
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(look.space(2), look.space(3), look.space(2), look.space(3))
        self._column.setSpacing(look.space(1))
        self._column.addStretch(1)
        self._num_above = 0
        look.changed.connect(self.redress)
        wording.changed.connect(self.retell)

    def add(self, name: str, page: Page) -> None:
        """Add a place.

        Args:
            name: Of the page.
            page: It.
        """
        button = QToolButton(self)
        button.setCheckable(True)
        button.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        button.clicked.connect(lambda: self.chosen.emit(name))
        self._group.addButton(button)
        self._buttons[name] = (button, page)
        if name == LAST:
            self._column.addWidget(button)
        else:
            self._column.insertWidget(self._num_above, button)
            self._num_above += 1
        self.redress()
        self.retell()

    def mark(self, name: str) -> None:
        """Mark the place that is shown.

        Args:
            name: Of the page; one that is not on the rail marks none.
        """
        found = self._buttons.get(name)
        if found is not None:
            found[0].setChecked(True)
        elif (checked := self._group.checkedButton()) is not None:
            self._group.setExclusive(False)
            checked.setChecked(False)
            self._group.setExclusive(True)

    def button(self, name: str) -> QToolButton:
        """Return a place's button.

        Args:
            name: Of the page.
        """
        return self._buttons[name][0]

    def retell(self) -> None:
        """Say everything in the language that is chosen."""
        self.setAccessibleName(self._wording.text("window.places"))
        for button, page in self._buttons.values():
            title = self._wording.text(page.title_key)
            button.setAccessibleName(title)
            button.setToolTip(title)

    def redress(self) -> None:
        """Take over theme and scale."""
        side = self._look.px(ICON_PX)
        for button, page in self._buttons.values():
            button.setIcon(self._look.icon(page.icon_name))
            button.setIconSize(QSize(side, side))

"""The window: a rail of places on the left, the chosen page beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtWidgets import QMainWindow, QStackedWidget

from app.pages import PAGES

if TYPE_CHECKING:
    from app.page import Page
    from app.surroundings import Surroundings


class Window(QMainWindow):
    """All pages, one of them shown."""

    def __init__(self, surroundings: Surroundings) -> None:
        """Build every page.

        Args:
            surroundings: What pages share.
        """
        super().__init__()
        self._stack = QStackedWidget(self)
        self._pages: dict[str, Page] = {}
        for entry in PAGES:
            page = entry.page_class()(surroundings, self._stack)
            self._pages[entry.name] = page
            self._stack.addWidget(page)
        self.setCentralWidget(self._stack)
        surroundings.navigation.asked.connect(self.go)

    def go(self, name: str) -> None:
        """Show a page.

        Args:
            name: As ``app.pages`` has it.
        """
        self._stack.setCurrentWidget(self._pages[name])

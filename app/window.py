"""The window: a rail of places on the left, the chosen page beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QHBoxLayout, QMainWindow, QMessageBox, QStackedWidget, QWidget

from app.pages import PAGES
from app.rail import Rail

if TYPE_CHECKING:
    from collections.abc import Sequence

    from PySide6.QtGui import QCloseEvent, QHideEvent, QShowEvent

    from app.page import Page
    from app.pages import PageEntry
    from app.surroundings import Surroundings

FIRST = "chat"
SETTINGS = "settings"
_CHAT_KEYS = (("Ctrl+N", "new_chat"), ("Ctrl+F", "search"), ("Ctrl+K", "search"))
SIZE_PX = (1120, 760)
LEAST_PX = (640, 420)


class Window(QMainWindow):
    """All pages, one of them shown.

    Attributes:
        quit_asked: A person wants the program to end.
        has_tray: Whether an icon elsewhere can bring the window back.
    """

    quit_asked = Signal()

    def __init__(self, surroundings: Surroundings, pages: Sequence[PageEntry] = PAGES) -> None:
        """Build every page.

        Args:
            surroundings: What pages share.
            pages: From the top of the rail.
        """
        super().__init__()
        self._about = surroundings
        self.has_tray = False
        look, wording = surroundings.look, surroundings.wording
        middle = QWidget(self)
        middle.setObjectName("page")
        self.rail = Rail(look, wording, middle)
        self._stack = QStackedWidget(middle)
        layout = QHBoxLayout(middle)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(self.rail)
        layout.addWidget(self._stack, 1)
        self.setCentralWidget(middle)
        self._pages: dict[str, Page] = {}
        for entry in pages:
            page = entry.page_class()(surroundings, self._stack)
            self._pages[entry.name] = page
            self._stack.addWidget(page)
            if entry.in_rail:
                self.rail.add(entry.name, page)
        self._current = ""
        self.rail.chosen.connect(self.go)
        surroundings.navigation.asked.connect(self.bring)
        wording.changed.connect(self._retell)
        look.changed.connect(self._redress)
        self._add_keys()
        self._redress()
        self._retell()
        self.resize(look.px(SIZE_PX[0]), look.px(SIZE_PX[1]))
        remembered = surroundings.preferences.choices.rail_page
        self.go(remembered if remembered in self._pages else FIRST)

    def _add_keys(self) -> None:
        settings = QShortcut(QKeySequence("Ctrl+,"), self)
        settings.activated.connect(lambda: self.go(SETTINGS))
        quitting = QShortcut(QKeySequence.StandardKey.Quit, self)
        quitting.activated.connect(self.quit_asked)
        for keys, method in _CHAT_KEYS:
            shortcut = QShortcut(QKeySequence(keys), self)
            shortcut.activated.connect(lambda method=method: self._on_chat(method))

    def _on_chat(self, method: str) -> None:
        """Do something on the chat page, whichever page is shown."""
        self.go(FIRST)
        getattr(self._pages[FIRST], method)()

    # ---- pages --------------------------------------------------------------------------------

    def page(self, name: str) -> Page:
        """Return a page.

        Args:
            name: As ``app.pages`` has it.
        """
        return self._pages[name]

    @property
    def current(self) -> str:
        """The name of the page that is shown."""
        return self._current

    def go(self, name: str) -> None:
        """Show a page.

        Args:
            name: As ``app.pages`` has it; nothing happens for one that is not there.
        """
        page = self._pages.get(name)
        if page is None or name == self._current:
            return
        if self._current and self.isVisible():
            self._pages[self._current].hidden()
        self._current = name
        self._stack.setCurrentWidget(page)
        self.rail.mark(name)
        self._retell()
        if self.isVisible():
            page.shown()
        self._about.preferences.choose(rail_page=name)

    def bring(self, name: str = "") -> None:
        """Bring the window to the front.

        Args:
            name: Of the page to show; the one that was shown last where empty.
        """
        if name:
            self.go(name)
        self.setWindowState(self.windowState() & ~Qt.WindowState.WindowMinimized)
        self.show()
        self.raise_()
        self.activateWindow()

    def showEvent(self, event: QShowEvent) -> None:
        """Tell the page that people see it."""
        super().showEvent(event)
        if not event.spontaneous():
            self._pages[self._current].shown()

    def hideEvent(self, event: QHideEvent) -> None:
        """Tell the page that they no longer do."""
        super().hideEvent(event)
        if not event.spontaneous():
            self._pages[self._current].hidden()

    # ---- the end ------------------------------------------------------------------------------

    def closeEvent(self, event: QCloseEvent) -> None:
        """Ask, the first time, whether closing ends the program; then do as was chosen."""
        event.ignore()
        match self._about.preferences.choices.on_close:
            case "keep":
                self.hide()
            case "quit":
                self.quit_asked.emit()
            case _:
                self.ask_about_closing()

    def ask_about_closing(self) -> QMessageBox:
        """Ask whether closing the window ends the program; returns at once."""
        text = self._about.wording.text
        box = QMessageBox(self)
        box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        box.setWindowTitle(text("window.close_title"))
        box.setText(text("window.close_title"))
        what = "window.close_text" if self.has_tray else "window.close_text_no_tray"
        box.setInformativeText(f"{text(what)}\n\n{text('window.remember')}")
        keep = box.addButton(text("window.keep_running"), QMessageBox.ButtonRole.AcceptRole)
        leave = box.addButton(text("window.quit"), QMessageBox.ButtonRole.DestructiveRole)
        box.addButton(text("window.cancel"), QMessageBox.ButtonRole.RejectRole)
        box.setDefaultButton(keep)
        keep.clicked.connect(lambda: self._on_close_chosen("keep"))
        leave.clicked.connect(lambda: self._on_close_chosen("quit"))
        box.open()
        return box

    def close_pages(self) -> None:
        """Tell every page that the program ends."""
        for page in self._pages.values():
            page.closing()

    def _on_close_chosen(self, choice: str) -> None:
        self._about.preferences.choose(on_close=choice)
        if choice == "keep":
            self.hide()
        else:
            self.quit_asked.emit()

    # ---- how it looks -------------------------------------------------------------------------

    def _retell(self) -> None:
        text = self._about.wording.text
        page = self._pages.get(self._current)
        name = text("window.name")
        self.setWindowTitle(name if page is None else f"{text(page.title_key)} - {name}")

    def _redress(self) -> None:
        look = self._about.look
        self.setWindowIcon(look.icon("daisy"))
        self.setMinimumSize(QSize(*LEAST_PX))

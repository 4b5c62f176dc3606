"""Lines of text, drawn; what a model wrote loads nothing and hides nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QMimeData, Qt, QUrl, Signal
from PySide6.QtGui import QColor, QContextMenuEvent, QPainter, QTextCursor
from PySide6.QtWidgets import QFrame, QMenu, QTextBrowser, QVBoxLayout

from app.chat.view.fitted import Fitted
from app.chat.view.writing import QUOTED, LineWriter, write_table
from app.safe_text import without_unseen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from PySide6.QtGui import QPaintEvent, QWheelEvent

    from app.chat.markdown.items import Item, Table
    from app.look.look import Look
    from app.wording.wording import Wording

_BAR_PX = 3  # beside a quotation


class _Browser(QTextBrowser):
    """Selectable text without scroll bars, as high as its text."""

    def __init__(self, look: Look, wording: Wording, parent: Fitted) -> None:
        super().__init__(parent)
        self._look = look
        self._wording = wording
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setOpenLinks(False)
        self.setUndoRedoEnabled(False)
        self.setSizeAdjustPolicy(QTextBrowser.SizeAdjustPolicy.AdjustIgnored)
        self.viewport().setAutoFillBackground(False)
        self.document().setDocumentMargin(0)
        self.document().setIndentWidth(look.space(6))
        self.document().setUndoRedoEnabled(False)

    def loadResource(self, _kind: int, _name: QUrl | str) -> None:
        """Load nothing, whatever is asked for."""

    def createMimeDataFromSelection(self) -> QMimeData:
        data = QMimeData()
        data.setText(without_unseen(self.textCursor().selection().toPlainText()))
        return data

    def wheelEvent(self, event: QWheelEvent) -> None:
        event.ignore()  # the chat scrolls, not the paragraph

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        menu = QMenu(self)
        copy = menu.addAction(self._wording.text("chat.copy"), self.copy)
        copy.setEnabled(self.textCursor().hasSelection())
        menu.addAction(self._wording.text("chat.select_all"), self.selectAll)
        menu.exec(event.globalPos())

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        block = self.document().begin()
        layout = self.document().documentLayout()
        painter: QPainter | None = None
        while block.isValid():
            depth = block.blockFormat().intProperty(QUOTED)
            if depth:
                painter = painter or QPainter(self.viewport())
                area = layout.blockBoundingRect(block)
                for level in range(depth):
                    left = self._look.space(level * 4)
                    bar = area.toRect()
                    bar.setLeft(left)
                    bar.setWidth(self._look.px(_BAR_PX))
                    painter.fillRect(bar, QColor(self._look.theme.line))
            block = block.next()
        if painter is not None:
            painter.end()


class ProseView(Fitted):
    """Lines, or one table.

    Attributes:
        link_asked: Carries the address of a link that was clicked.
    """

    link_asked = Signal(str)

    def __init__(self, look: Look, wording: Wording, parent: Fitted) -> None:
        """Begin empty.

        Args:
            look: Theme and sizes.
            wording: Of its menu.
            parent: Owns it.
        """
        super().__init__(parent)
        self._look = look
        self._browser = _Browser(look, wording, self)
        self._browser.anchorClicked.connect(self._on_anchor)
        self._browser.setFont(look.font())
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self._browser)
        self._writer = LineWriter(self._browser.document(), look)
        self.num_characters = 0
        self.num_items = 0

    @property
    def browser(self) -> QTextBrowser:
        """What shows the text."""
        return self._browser

    def keep(self, num: int) -> None:
        """Take back all lines but the first ones.

        Args:
            num: Lines that stay.
        """
        self._writer.truncate(num)
        self.num_items = num
        self._changed()

    def write(self, items: Sequence[Item]) -> None:
        """Add lines below.

        Args:
            items: Lines and rules.
        """
        for item in items:
            self._writer.write(item)
        self.num_items += len(items)
        self._changed()

    def write_table(self, table: Table) -> None:
        """Show a table instead.

        Args:
            table: Which.
        """
        self._browser.document().clear()
        write_table(self._browser.document(), table, self._look)
        self.num_items = 1
        self._changed()

    def fit(self, width: int) -> int:
        """Lay out for a width; return the height that takes.

        Args:
            width: In logical pixels.
        """
        self.resize(width, self.height())
        self._browser.resize(width, self.height())
        document = self._browser.document()
        document.setTextWidth(width)
        return int(document.size().height() + 0.999)

    def _changed(self) -> None:
        self.num_characters = self._browser.document().characterCount()
        self.refit.emit()

    def _on_anchor(self, url: QUrl) -> None:
        self.link_asked.emit(url.toString())


def plain_text_of(view: ProseView) -> str:
    """Return what stands there, as it is seen.

    Args:
        view: Which.
    """
    cursor = QTextCursor(view.browser.document())
    cursor.select(QTextCursor.SelectionType.Document)
    return cursor.selection().toPlainText()

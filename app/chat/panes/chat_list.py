"""The pane with the list of chats."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QModelIndex, QPoint, QRect, QSize, Qt, QTimer, Signal
from PySide6.QtGui import QColor, QPainter
from PySide6.QtWidgets import (
    QAbstractItemView,
    QFrame,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QListView,
    QMenu,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from app.chat.panes.chat_rows import CHAT_ROLE, EXCERPT_ROLE, ChatRows
from app.look.tokens import CORNER_PX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from PySide6.QtCore import QPersistentModelIndex

    from app.chat.records import Chat, Found
    from app.chat.shelf import Shelf
    from app.look.look import Look
    from app.wording.wording import Wording

    _Index = QModelIndex | QPersistentModelIndex

FIND_AFTER_MS = 150  # of quiet in the search field
PANE_PX = 248


class _Delegate(QStyledItemDelegate):
    """Draws headings and chats."""

    renamed = Signal(str, str)

    def __init__(self, look: Look, parent: QWidget) -> None:
        super().__init__(parent)
        self._look = look

    def sizeHint(self, _option: QStyleOptionViewItem, index: _Index) -> QSize:
        look = self._look
        if index.data(CHAT_ROLE) is None:
            return QSize(0, look.space(8))
        return QSize(0, look.space(13 if index.data(EXCERPT_ROLE) else 9))

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: _Index) -> None:
        look, area = self._look, QRect(option.rect)
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if index.data(CHAT_ROLE) is None:
            self._words(painter, area.adjusted(look.space(3), look.space(2), 0, 0), index, "quiet")
            painter.restore()
            return
        area = area.adjusted(look.space(1), 1, -look.space(1), -1)
        is_chosen = bool(option.state & QStyle.StateFlag.State_Selected)
        is_near = bool(option.state & QStyle.StateFlag.State_MouseOver)
        if is_chosen or is_near:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(look.colour("raised"))
            corner = look.px(CORNER_PX) * 0.75
            painter.drawRoundedRect(area, corner, corner)
        if option.state & QStyle.StateFlag.State_HasFocus and is_chosen:
            painter.setPen(QColor(look.theme.link))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(area, look.px(6), look.px(6))
        inner = area.adjusted(look.space(2), look.space(1), -look.space(2), -look.space(1))
        excerpt = index.data(EXCERPT_ROLE)
        if excerpt:
            half = inner.height() // 2
            below = inner.adjusted(0, half, 0, 0)
            inner.setHeight(half)
            painter.setFont(look.font("small"))
            painter.setPen(look.colour("quiet"))
            painter.drawText(below, _FLAGS, _clipped(painter, excerpt, below.width()))
        painter.setFont(look.font("body", bold=is_chosen))
        painter.setPen(look.colour("ink"))
        painter.drawText(inner, _FLAGS, _clipped(painter, index.data(), inner.width()))
        painter.restore()

    def _words(self, painter: QPainter, area: QRect, index: _Index, colour: str) -> None:
        painter.setFont(self._look.font("small", bold=True))
        painter.setPen(self._look.colour(colour))
        painter.drawText(area, _FLAGS, index.data())

    def createEditor(
        self, parent: QWidget, _option: QStyleOptionViewItem, _index: _Index
    ) -> QWidget:
        editor = QLineEdit(parent)
        editor.setFont(self._look.font())
        return editor

    def setModelData(self, editor: QWidget, _model: object, index: _Index) -> None:
        chat = index.data(CHAT_ROLE)
        if isinstance(editor, QLineEdit) and chat is not None:
            self.renamed.emit(chat.chat_id, editor.text())


_FLAGS = int(Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft) | int(
    Qt.TextFlag.TextSingleLine
)


def _clipped(painter: QPainter, text: str, width: int) -> str:
    return painter.fontMetrics().elidedText(text, Qt.TextElideMode.ElideRight, width)


class ChatList(QFrame):
    """Search field, button for a new chat, and the list.

    Attributes:
        chosen: Carries the id of the chat to open.
        new_asked: A person wants a new chat.
        export_asked: Carries a chat's id, and ``markdown`` or ``json``.
        deleted: Carries the ``Chat`` that was deleted.
    """

    chosen = Signal(str)
    new_asked = Signal()
    export_asked = Signal(str, str)
    deleted = Signal(object)

    def __init__(self, shelf: Shelf, look: Look, wording: Wording, parent: QWidget) -> None:
        """Begin to read the list.

        Args:
            shelf: The list.
            look: Theme and sizes.
            wording: Of everything.
            parent: Owns it.
        """
        super().__init__(parent)
        self.setObjectName("chatList")
        self._shelf = shelf
        self._look = look
        self._wording = wording
        self._open_id = ""
        self._title = QLabel(self)
        self._title.setObjectName("paneTitle")
        self._new = QToolButton(self)
        self._new.setObjectName("quietButton")
        self._search = QLineEdit(self)
        self._search.setObjectName("search")
        self._search.setClearButtonEnabled(True)
        self._rows = ChatRows(wording)
        self._view = QListView(self)
        self._delegate = _Delegate(look, self._view)
        self._nothing = QLabel(self)
        self._nothing.setObjectName("note")
        self._nothing.setWordWrap(True)
        self._set_up_view()
        self._lay_out()
        self._soon = QTimer(self)
        self._soon.setSingleShot(True)
        self._soon.timeout.connect(self.refresh)
        self._connect()
        self.redress()
        self.retell()
        self.refresh()

    def _set_up_view(self) -> None:
        view = self._view
        view.setModel(self._rows)
        view.setItemDelegate(self._delegate)
        view.setFrameShape(QFrame.Shape.NoFrame)
        view.setMouseTracking(True)
        view.setEditTriggers(QAbstractItemView.EditTrigger.EditKeyPressed)
        view.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        view.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        view.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)

    def _lay_out(self) -> None:
        head = QHBoxLayout()
        head.addWidget(self._title, 1)
        head.addWidget(self._new)
        layout = QVBoxLayout(self)
        layout.addLayout(head)
        layout.addWidget(self._search)
        layout.addWidget(self._nothing)
        layout.addWidget(self._view, 1)

    def _connect(self) -> None:
        self._new.clicked.connect(self.new_asked)
        self._search.textChanged.connect(lambda: self._soon.start(FIND_AFTER_MS))
        self._search.returnPressed.connect(self._view.setFocus)
        self._view.clicked.connect(self._on_chosen)
        self._view.activated.connect(self._on_chosen)
        self._view.customContextMenuRequested.connect(self._show_menu)
        self._delegate.renamed.connect(self._shelf.rename)
        self._shelf.changed.connect(self.refresh)
        self._shelf.found.connect(self._on_found)
        self._wording.changed.connect(self.retell)
        self._look.changed.connect(self.redress)

    # ---- what it shows ------------------------------------------------------------------------

    @property
    def search_field(self) -> QLineEdit:
        """Where words are typed."""
        return self._search

    @property
    def view(self) -> QListView:
        """The list."""
        return self._view

    def refresh(self) -> None:
        """Read the list anew."""
        self._shelf.find(self._search.text())

    def mark_open(self, chat_id: str) -> None:
        """Mark the chat that is open.

        Args:
            chat_id: Of it; one that is in no list marks none.
        """
        self._open_id = chat_id
        self._mark()

    def _mark(self) -> None:
        index = self._rows.index_of(self._open_id)
        if index.isValid():
            self._view.setCurrentIndex(index)
        else:
            self._view.clearSelection()

    def _on_found(self, words: str, found: Sequence[Found]) -> None:
        if words != self._search.text():
            return  # a later search is under way
        self._rows.set_found(found)
        self._mark()
        self._nothing.setVisible(not found)
        self._tell_nothing()

    def _tell_nothing(self) -> None:
        words = self._search.text().strip()
        key = "chat.nothing_found" if words else "chat.no_chats"
        self._nothing.setText(self._wording.text(key, words=words))

    # ---- what is done -------------------------------------------------------------------------

    def _on_chosen(self, index: QModelIndex) -> None:
        chat = index.data(CHAT_ROLE)
        if chat is not None:
            self.chosen.emit(chat.chat_id)

    def _show_menu(self, place: QPoint) -> None:
        index = self._view.indexAt(place)
        chat: Chat | None = index.data(CHAT_ROLE)
        if chat is not None:
            menu = self.menu_for(chat)
            menu.exec(self._view.viewport().mapToGlobal(place))

    def menu_for(self, chat: Chat) -> QMenu:
        """Return what can be done with a chat.

        Args:
            chat: Of the list.
        """
        text, chat_id = self._wording.text, chat.chat_id
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.addAction(text("chat.rename"), lambda: self._view.edit(self._rows.index_of(chat_id)))
        menu.addAction(
            text("chat.export_markdown"), lambda: self.export_asked.emit(chat_id, "markdown")
        )
        menu.addAction(text("chat.export_json"), lambda: self.export_asked.emit(chat_id, "json"))
        menu.addSeparator()
        menu.addAction(text("chat.delete"), lambda: self._delete(chat))
        return menu

    def _delete(self, chat: Chat) -> None:
        self._shelf.delete(chat.chat_id)
        self.deleted.emit(chat)

    # ---- how it looks -------------------------------------------------------------------------

    def retell(self) -> None:
        """Say everything in the language that is chosen."""
        text = self._wording.text
        self._title.setText(text("chat.chats"))
        self._new.setAccessibleName(text("chat.new_chat"))
        self._new.setToolTip(f"{text('chat.new_chat')} (Ctrl+N)")
        self._search.setPlaceholderText(text("chat.search"))
        self._search.setAccessibleName(text("chat.search_chats"))
        self._view.setAccessibleName(text("chat.chats"))
        self._tell_nothing()

    def redress(self) -> None:
        """Take over theme and scale."""
        look = self._look
        self.layout().setContentsMargins(*map(look.space, (2, 3, 2, 2)))
        self.layout().setSpacing(look.space(2))
        side = look.px(20)
        self._new.setIcon(look.icon("plus"))
        self._new.setIconSize(QSize(side, side))
        self._title.setFont(look.font("lead", bold=True))
        self._nothing.setFont(look.font("small"))
        self._search.setFont(look.font())
        self.setFixedWidth(look.px(PANE_PX))
        self._view.doItemsLayout()

"""The page people talk on: everything of it made and joined."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Qt
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QHBoxLayout, QMenu, QStackedWidget, QVBoxLayout, QWidget

from app.chat.desk import Desk
from app.chat.exporting import Exporting
from app.chat.input.composer import Composer
from app.chat.link_question import ask_to_open
from app.chat.notices import Notices
from app.chat.panes.banner import Banner
from app.chat.panes.chat_list import ChatList
from app.chat.panes.chat_settings import ChatSettings
from app.chat.panes.empty import EmptyChat
from app.chat.panes.head import Head
from app.chat.shelf import Shelf
from app.chat.store import ChatStore
from app.chat.talk import Talk
from app.chat.turns import Turns
from app.chat.view.conversation_view import ConversationView
from app.chat.view.message_view import Tools
from app.chat.view.slices import Slices
from app.look.tokens import COLUMN_PX
from app.page import Page
from app.places import app_folder

if TYPE_CHECKING:
    from app.chat.records import Chat
    from app.surroundings import Surroundings

WATCHER = "chat"


class ChatPage(Page):
    """Chats on the left, the open one beside them.

    Attributes:
        store: Keeps chats.
        turns: Answers under way.
        desk: The open chat.
    """

    title_key = "chat.title"
    icon_name = "chat"

    def __init__(self, surroundings: Surroundings, parent: QWidget | None = None) -> None:
        """Begin with a new chat.

        Args:
            surroundings: What pages share.
            parent: Owns it.
        """
        super().__init__(surroundings, parent)
        about = surroundings
        look, wording = about.look, about.wording
        self.store = ChatStore(app_folder(about.data_dir), self)
        self.turns = Turns(self.store, about.answering, about.loading, about.status, self)
        self.shelf = Shelf(self.store, self)
        self.desk = Desk(self.store, self.shelf, self.turns, self)
        self.list = ChatList(self.shelf, look, wording, self)
        self._right = QWidget(self)
        self.head = Head(look, wording, self._right)
        self.banner = Banner(look, wording, self._right)
        self._stack = QStackedWidget(self._right)
        self.view = ConversationView(Tools(look=look, wording=wording, slices=Slices(self)), self)
        self.empty = EmptyChat(look, wording, self)
        self.composer = Composer(look, wording, self._right)
        self.settings = ChatSettings(look, wording, self)
        self.settings.hide()
        self._exporting = Exporting(self.shelf, wording, self.banner, self)
        self._lay_out()
        self.talk = Talk(self.desk, self.turns, self.view, self.composer, about, self)
        self._notices = Notices(self.store, self.banner, about, self)
        self._join()
        self._add_keys()

    def _lay_out(self) -> None:
        self._stack.addWidget(self.empty)
        self._stack.addWidget(self.view)
        self._composer_row = QHBoxLayout()
        self._composer_row.addStretch(1)
        self._composer_row.addWidget(self.composer, 100)
        self._composer_row.addStretch(1)
        right = QVBoxLayout(self._right)
        right.setContentsMargins(0, 0, 0, 0)
        right.setSpacing(0)
        right.addWidget(self.head)
        right.addWidget(self.banner)
        right.addWidget(self._stack, 1)
        right.addLayout(self._composer_row)
        whole = QHBoxLayout(self)
        whole.setContentsMargins(0, 0, 0, 0)
        whole.setSpacing(0)
        whole.addWidget(self.list)
        whole.addWidget(self._right, 1)
        whole.addWidget(self.settings)
        self._redress()

    def _join(self) -> None:
        about, desk = self.surroundings, self.desk
        self.list.new_asked.connect(self.new_chat)
        self.list.chosen.connect(self._on_chosen)
        self.list.export_asked.connect(self._exporting.export)
        self.list.deleted.connect(self._on_deleted)
        self.head.models_asked.connect(lambda: about.navigation.go("models"))
        self.head.pool_asked.connect(lambda: about.navigation.go("pool"))
        self.head.settings_asked.connect(self._toggle_settings)
        self.head.more_asked.connect(self._show_menu)
        self.empty.models_asked.connect(lambda: about.navigation.go("models"))
        self.empty.pool_asked.connect(lambda: about.navigation.go("pool"))
        self.settings.prompt_changed.connect(desk.set_prompt)
        self.settings.sampling_changed.connect(desk.set_sampling)
        self.settings.closed.connect(self.settings.hide)
        self.view.link_asked.connect(lambda link: ask_to_open(link, about.wording, self))
        self.talk.models_asked.connect(lambda: about.navigation.go("models"))
        self.talk.refused.connect(self._notices.say_refused)
        desk.opened.connect(self._on_opened)
        desk.path_changed.connect(self._show_stack)
        about.status.changed.connect(self._on_status)
        about.status.silent.connect(self._on_status)
        about.answering.pace_changed.connect(self.head.show_pace)
        about.look.changed.connect(self._redress)
        self._on_opened()

    def _add_keys(self) -> None:
        shortcut = QShortcut(QKeySequence(Qt.Key.Key_Escape), self)
        shortcut.setContext(Qt.ShortcutContext.WidgetWithChildrenShortcut)
        shortcut.activated.connect(self._escape)

    # ---- the page -----------------------------------------------------------------------------

    def shown(self) -> None:
        """Be told that people see it now."""
        self.surroundings.status.watch(WATCHER)
        self.composer.editor.setFocus()

    def hidden(self) -> None:
        """Be told that they no longer do."""
        self.settings.flush()
        self.surroundings.status.unwatch(WATCHER)

    def closing(self) -> None:
        """Put everything on disk: the program ends."""
        self.settings.flush()
        self.turns.save()
        self.store.close()

    def new_chat(self) -> None:
        """Open a new chat."""
        self.settings.flush()
        self.desk.begin()
        self.composer.editor.setFocus()

    # ---- what is done -------------------------------------------------------------------------

    def _on_chosen(self, chat_id: str) -> None:
        self.settings.flush()
        self.desk.open(chat_id)

    def _on_deleted(self, chat: Chat) -> None:
        self._notices.say_deleted(chat, self.shelf)

    def _on_opened(self) -> None:
        self.settings.show_chat(self.desk.chat)
        self.list.mark_open(self.desk.chat.chat_id)
        self._show_stack()

    def _show_stack(self) -> None:
        is_empty = not len(self.desk.tree)
        self._stack.setCurrentWidget(self.empty if is_empty else self.view)
        self.list.mark_open(self.desk.chat.chat_id)

    def _on_status(self) -> None:
        facts = self.turns.facts
        self.head.show_facts(facts)
        self.empty.show_facts(facts)

    def _toggle_settings(self) -> None:
        self.settings.setVisible(self.settings.isHidden())
        if self.settings.isVisible():
            self.settings.prompt.setFocus()

    def _show_menu(self) -> None:
        menu = self.chat_menu()
        button = self.head.more_button
        menu.popup(button.mapToGlobal(button.rect().bottomLeft()))

    def chat_menu(self) -> QMenu:
        """Return what can be done with the open chat."""
        menu = self.list.menu_for(self.desk.chat)
        if not len(self.desk.tree):
            for action in menu.actions():
                action.setEnabled(False)
        return menu

    def search(self) -> None:
        """Begin to search the chats."""
        field = self.list.search_field
        field.setFocus()
        field.selectAll()

    def _escape(self) -> None:
        """Take back one thing at a time, the nearest first; an answer is stopped last."""
        if self.composer.editor.is_composing:
            return
        if self.list.search_field.hasFocus():
            self.list.search_field.clear()
            self.composer.editor.setFocus()
        elif self.settings.isVisible() and self.settings.isAncestorOf(self.focusWidget()):
            self.settings.hide()
            self.composer.editor.setFocus()
        elif self.talk.is_editing:
            self.talk.cancel_editing()
        else:
            self.desk.stop()

    def _redress(self) -> None:
        look = self.surroundings.look
        self.composer.setMaximumWidth(look.px(COLUMN_PX))
        margins = (look.space(6), look.space(1), look.space(6), look.space(3))
        self._composer_row.setContentsMargins(*margins)

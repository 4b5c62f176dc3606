"""The list of chats: found, renamed, deleted, brought back."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal

from app.safe_text import one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from app.chat.records import Chat, Found, Message
    from app.chat.store import ChatStore

TITLE_CHARACTERS = 120


class Shelf(QObject):
    """All chats.

    Attributes:
        changed: The list is no longer as it was; ``find`` it again.
        found: Carries the words that were searched for, and a list of ``Found``.
        renamed: Carries a chat's id and its title.
        deleted: Carries a chat's id.

    Thread: the main one.
    """

    changed = Signal()
    found = Signal(str, object)
    renamed = Signal(str, str)
    deleted = Signal(str)

    def __init__(self, store: ChatStore, parent: QObject | None = None) -> None:
        """Begin; nothing is read before ``find``.

        Args:
            store: Keeps chats.
            parent: Owns it.
        """
        super().__init__(parent)
        self._store = store

    def find(self, words: str) -> None:
        """Look for chats; ``found`` carries them.

        Args:
            words: Of a title or a text; empty for all.
        """

        def tell(found: list[Found]) -> None:
            self.found.emit(words, found)

        self._store.do(lambda database: database.find(words), tell)

    def read(self, chat_id: str, on_read: Callable[[Chat, list[Message]], None]) -> None:
        """Read a whole chat.

        Args:
            chat_id: Of it.
            on_read: Told the chat and its messages; not called where there is none.
        """

        def tell(found: tuple[Chat, list[Message]] | None) -> None:
            if found is not None:
                on_read(*found)

        self._store.do(lambda database: database.read_chat(chat_id), tell)

    def rename(self, chat_id: str, title: str) -> None:
        """Give a chat a title.

        Args:
            chat_id: Of it.
            title: Chosen by a person; nothing happens where it is empty.
        """
        title = one_line(title, TITLE_CHARACTERS)
        if title:
            self.renamed.emit(chat_id, title)
            self._store.do(lambda database: database.rename_chat(chat_id, title), self._tell)

    def delete(self, chat_id: str) -> None:
        """Take a chat from the list; it can be brought back for 30 days.

        Args:
            chat_id: Of it.
        """
        now_s = time.time()
        self.deleted.emit(chat_id)
        self._store.do(lambda database: database.delete_chat(chat_id, now_s), self._tell)

    def restore(self, chat_id: str) -> None:
        """Bring a chat back.

        Args:
            chat_id: Of it.
        """
        self._store.do(lambda database: database.restore_chat(chat_id), self._tell)

    def _tell(self, _: None) -> None:
        self.changed.emit()

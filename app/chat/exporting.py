"""A chat written into a file a person chooses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QStandardPaths
from PySide6.QtWidgets import QFileDialog, QWidget

from app.chat.export import as_json, as_markdown, file_name
from app.chat.tree import MessageTree

if TYPE_CHECKING:
    from app.chat.panes.banner import Banner
    from app.chat.records import Chat, Message
    from app.chat.shelf import Shelf
    from app.wording.wording import Wording

ENDINGS = {"markdown": "md", "json": "json"}
TOLD_FOR_MS = 8000


class Exporting(QObject):
    """Asks where, writes, and says so."""

    def __init__(self, shelf: Shelf, wording: Wording, banner: Banner, parent: QWidget) -> None:
        """Begin.

        Args:
            shelf: The chats.
            wording: Of everything.
            banner: Says what became of it.
            parent: Above which is asked where.
        """
        super().__init__(parent)
        self._shelf = shelf
        self._wording = wording
        self._banner = banner
        self._window = parent

    def export(self, chat_id: str, form: str) -> None:
        """Ask where, and write; returns at once.

        Args:
            chat_id: Of the chat.
            form: ``markdown`` or ``json``.
        """
        self._shelf.read(chat_id, lambda chat, messages: self._ask(chat, messages, form))

    def _ask(self, chat: Chat, messages: list[Message], form: str) -> None:
        folder = QStandardPaths.writableLocation(QStandardPaths.StandardLocation.DocumentsLocation)
        suggested = str(Path(folder) / file_name(chat.title, ENDINGS[form]))
        dialog = QFileDialog(self._window, "", suggested)
        dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
        dialog.setDefaultSuffix(ENDINGS[form])
        dialog.selectFile(suggested)
        dialog.fileSelected.connect(lambda file: self.write(chat, messages, form, Path(file)))
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()

    def write(self, chat: Chat, messages: list[Message], form: str, file: Path) -> None:
        """Write a chat.

        Args:
            chat: Which.
            messages: All of it.
            form: ``markdown`` or ``json``.
            file: Where; what is there is replaced.
        """
        text = self._wording.text
        if form == "json":
            content = as_json(chat, messages)
        else:
            names = {
                "user": text("chat.you"),
                "assistant": text("chat.model"),
                "system": text("chat.system"),
            }
            path = MessageTree(messages, chat.leaf_id).path()
            content = as_markdown(chat, path, names).encode()
        try:
            file.write_bytes(content)
        except OSError as exc:
            reason = exc.strerror or str(exc)
            self._banner.say("export", lambda: text("chat.export_failed", reason=reason))
        else:
            told = str(file)
            self._banner.say("export", lambda: text("chat.exported", file=told), for_ms=TOLD_FOR_MS)

"""The list of chats as rows: days as headings, chats below them."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from PySide6.QtCore import QAbstractListModel, QModelIndex, QPersistentModelIndex, Qt

from app.safe_text import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from app.chat.records import Found
    from app.wording.wording import Wording

CHAT_ROLE = Qt.ItemDataRole.UserRole + 1  # the ``Chat``; None for a heading
EXCERPT_ROLE = Qt.ItemDataRole.UserRole + 2
_Index = QModelIndex | QPersistentModelIndex


class Row(NamedTuple):
    """A heading, or a chat."""

    heading: str
    found: Found | None


def section_of(changed_s: float, today: date) -> str:
    """Return the key of the heading a chat stands under.

    Args:
        changed_s: Unix time of its newest message.
        today: Here.
    """
    day = datetime.fromtimestamp(changed_s).astimezone().date()
    if day >= today:
        return "chat.today"
    if day == today - timedelta(days=1):
        return "chat.yesterday"
    return "chat.this_week" if day > today - timedelta(days=7) else "chat.earlier"


def rows_of(found: Sequence[Found], today: date) -> list[Row]:
    """Return the rows of a list.

    Args:
        found: The newest first.
        today: Here.
    """
    rows: list[Row] = []
    last = ""
    for one in found:
        section = section_of(one.chat.changed_s, today)
        if section != last:
            rows.append(Row(section, None))
            last = section
        rows.append(Row("", one))
    return rows


class ChatRows(QAbstractListModel):
    """The rows, as Qt's views ask for them."""

    def __init__(self, wording: Wording) -> None:
        """Begin empty.

        Args:
            wording: Of headings.
        """
        super().__init__()
        self._wording = wording
        self._rows: list[Row] = []
        wording.changed.connect(self._on_wording)

    def set_found(self, found: Sequence[Found]) -> None:
        """Show a list.

        Args:
            found: The newest first.
        """
        rows = rows_of(found, datetime.now().astimezone().date())
        if rows == self._rows:
            return
        self.beginResetModel()
        self._rows = rows
        self.endResetModel()

    def index_of(self, chat_id: str) -> QModelIndex:
        """Return where a chat stands; an index that is not valid where it doesn't.

        Args:
            chat_id: Of it.
        """
        for number, row in enumerate(self._rows):
            if row.found is not None and row.found.chat.chat_id == chat_id:
                return self.index(number)
        return QModelIndex()

    def rowCount(self, parent: _Index | None = None) -> int:
        """Return how many rows there are.

        Args:
            parent: Of a tree; a list has none.
        """
        return 0 if parent is not None and parent.isValid() else len(self._rows)

    def flags(self, index: _Index) -> Qt.ItemFlag:
        """Return what can be done with a row.

        Args:
            index: Of it.
        """
        if self._rows[index.row()].found is None:
            return Qt.ItemFlag.ItemIsEnabled
        return Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemIsSelectable | Qt.ItemFlag.ItemIsEditable

    def data(self, index: _Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:  # noqa: ANN401
        """Return what is known of a row.

        Args:
            index: Of it.
            role: Of Qt's, or one of ours.
        """
        row = self._rows[index.row()]
        if row.found is None:
            words = {Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.AccessibleTextRole}
            return self._wording.text(row.heading) if role in words else None
        chat = row.found.chat
        title = one_line(chat.title) or self._wording.text("chat.untitled")
        answers: dict[int, object] = {
            Qt.ItemDataRole.DisplayRole: title,
            Qt.ItemDataRole.AccessibleTextRole: title,
            Qt.ItemDataRole.ToolTipRole: title,
            Qt.ItemDataRole.EditRole: one_line(chat.title),
            CHAT_ROLE: chat,
            EXCERPT_ROLE: one_line(row.found.excerpt),
        }
        return answers.get(role)

    def _on_wording(self) -> None:
        if self._rows:
            self.dataChanged.emit(self.index(0), self.index(len(self._rows) - 1))

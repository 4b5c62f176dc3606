"""Items drawn one below the other: what is whole stays as it is, only the end changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Signal

from app.chat.markdown.items import Code, Line, Rule, Table
from app.chat.view.code_view import CodeView
from app.chat.view.fitted import Column, Fitted
from app.chat.view.prose_view import ProseView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from app.chat.markdown.items import Item
    from app.chat.view.slices import Slices
    from app.look.look import Look
    from app.wording.wording import Wording

FULL_CHARACTERS = 5000  # lines are written into a document of Qt's until it has so many


class ItemsView(Column):
    """A text.

    Attributes:
        link_asked: Carries the address of a link that was clicked.
    """

    link_asked = Signal(str)

    def __init__(
        self, look: Look, wording: Wording, slices: Slices, parent: Fitted | None = None
    ) -> None:
        """Begin empty.

        Args:
            look: Theme and sizes.
            wording: Of buttons and menus.
            slices: Works off what takes long.
            parent: Owns it.
        """
        super().__init__(parent, look.space(2))
        self._look = look
        self._wording = wording
        self._slices = slices
        self._items: list[Item] = []
        self._firsts: list[int] = []  # the number of each piece's first item

    @property
    def shown_items(self) -> Sequence[Item]:
        """What is drawn."""
        return self._items

    def set_items(self, kept: int, items: Sequence[Item]) -> None:
        """Replace the end.

        Args:
            kept: Items at the beginning that stay.
            items: What stands behind them now.
        """
        kept = min(kept, len(self._items))
        if items and self._grows_code(kept, items[0]):
            kept, items = kept + 1, items[1:]
        if kept < len(self._items):
            self._truncate(kept)
        place = 0
        while place < len(items):
            place = self._write_some(items, place)

    def _grows_code(self, kept: int, item: Item) -> bool:
        """Let a block of code at the end grow where it stands; return whether it was one."""
        if kept != len(self._items) - 1 or not isinstance(item, Code):
            return False
        view = self._pieces[-1]
        if not isinstance(view, CodeView):
            return False
        view.set_code(item)
        self._items[-1] = item
        return True

    @property
    def _pieces(self) -> Sequence[Fitted]:
        return self.items

    def _truncate(self, kept: int) -> None:
        while self._firsts and self._firsts[-1] >= kept:
            self._firsts.pop()
        self.truncate(len(self._firsts))
        if self._firsts:
            view = self._pieces[-1]
            if isinstance(view, ProseView):
                view.keep(kept - self._firsts[-1])
        del self._items[kept:]

    def _write_some(self, items: Sequence[Item], place: int) -> int:
        """Write items from a place on, as many as go into one piece; return the next place."""
        item = items[place]
        match item:
            case Code():
                code = CodeView(self._look, self._wording, self._slices, self)
                self._begin(code)
                code.set_code(item)
            case Table():
                table = self._new_prose()
                self._begin(table)
                table.write_table(item)
            case Line() | Rule():
                return self._write_lines(items, place)
        self._items.append(item)
        return place + 1

    def _write_lines(self, items: Sequence[Item], place: int) -> int:
        view = self._open_prose()
        end, room = place, FULL_CHARACTERS - view.num_characters
        while (
            end < len(items) and isinstance(items[end], Line | Rule) and (room > 0 or end == place)
        ):
            item = items[end]
            room -= sum(len(run.text) for run in item.runs) if isinstance(item, Line) else 0
            end += 1
        view.write(items[place:end])
        self._items.extend(items[place:end])
        return end

    def _open_prose(self) -> ProseView:
        """Return the piece lines are written into, beginning one if the last can't take more."""
        if self._pieces:
            last = self._pieces[-1]
            is_table = isinstance(self._items[-1], Table) if self._items else False
            if (
                isinstance(last, ProseView)
                and not is_table
                and last.num_characters < FULL_CHARACTERS
            ):
                return last
        view = self._new_prose()
        self._begin(view)
        return view

    def _new_prose(self) -> ProseView:
        view = ProseView(self._look, self._wording, self)
        view.link_asked.connect(self.link_asked)
        return view

    def _begin(self, view: Fitted) -> None:
        self._firsts.append(len(self._items))
        self.append(view)

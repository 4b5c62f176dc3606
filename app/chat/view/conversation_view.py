"""The messages of a chat, scrolled; text that comes is drawn thirty times a second at most."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import shiboken6
from PySide6.QtCore import QTimer, Signal
from PySide6.QtWidgets import QFrame, QScrollArea, QWidget

from app.chat.view.lazy_column import LazyColumn
from app.chat.view.message_view import AnswerView, MessageView, UserView, Version
from app.chat.view.row import Buttons
from app.chat.view.slices import Slices
from app.look.tokens import COLUMN_PX

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from PySide6.QtGui import QResizeEvent

    from app.chat.records import Message
    from app.chat.view.message_view import Tools

FLUSH_MS = 33  # thirty times a second
MAX_FLUSH_MS = 250
FLUSH_CHARACTERS = 600  # drawn at once; more comes with the next turn
SETTLE_FOR_S = 0.012
AT_ONCE = 2  # messages made at once: each takes some milliseconds; the others follow
FIRST_MESSAGES, MORE_MESSAGES = 12, 10
NEAR_TOP_PX = 120


class ConversationView(QScrollArea):
    """One chat.

    Attributes:
        acted: Carries what was pressed, and the message's id.
        link_asked: Carries the address of a link that was clicked.
    """

    acted = Signal(str, str)
    link_asked = Signal(str)

    def __init__(self, tools: Tools, parent: QWidget | None = None) -> None:
        """Begin empty.

        Args:
            tools: To draw with.
            parent: Owns it.
        """
        super().__init__(parent)
        self._tools = tools
        self.setFrameShape(QFrame.Shape.NoFrame)
        self._content = QWidget()
        self.setWidget(self._content)
        self._disposal = Slices(self)
        self._is_settling = False
        self._soon = _single_shot(self, self._settle)
        self._column, self._earlier = self._new_column()
        self._views: dict[str, MessageView] = {}
        self._path: list[Message] = []
        self._versions: dict[str, Version] = {}
        self._first = 0  # of the path, that is drawn
        self._sticks = True  # to the bottom
        self._wanted = ""  # the message that was read before everything was drawn anew
        self._live: AnswerView | None = None
        self._text_came: list[str] = []
        self._flush = _single_shot(self, self._draw_text)
        self._flush_ms = FLUSH_MS
        self.verticalScrollBar().valueChanged.connect(self._on_scrolled)

    # ---- what is shown ------------------------------------------------------------------------

    def show_path(
        self, path: Sequence[Message], versions: dict[str, Version], live_id: str | None
    ) -> None:
        """Show a branch; what it has in common with the one shown stays as it is.

        Args:
            path: From the chat's first message on.
            versions: Of messages that have several.
            live_id: Of the answer that still grows; None where none does.
        """
        num_same = 0
        for old, new in zip(self._path, path, strict=False):
            if old.message_id != new.message_id:
                break
            num_same += 1
        if len(path) - num_same > AT_ONCE:
            self.clear()
        self._path, self._versions = list(path), versions
        for message_id in [m for m in self._views if m not in {p.message_id for p in path}]:
            self._drop(message_id)
        self._live = None
        if not self._views:
            self._first = max(0, len(path) - AT_ONCE)
            self._sticks = True
            self._tools.slices.add(self, self._adding_earlier(max(0, len(path) - FIRST_MESSAGES)))
        for message in path[max(num_same if self._views else 0, self._first) :]:
            self._add(message, live_id, at_end=True)
        for message_id, view in self._views.items():
            view.set_version(versions.get(message_id, Version()))
        self._tell_earlier()
        self._settle_soon()

    def clear(self) -> None:
        """Show nothing; what was shown goes a little at a time."""
        self._tools.slices.drop()
        old = self._column
        old.hide()
        self._disposal.add(old, _disposing(old))
        self._column, self._earlier = self._new_column()
        self._views.clear()
        self._path, self._live, self._first = [], None, 0
        self._text_came.clear()
        self._settle_soon()

    def _new_column(self) -> tuple[LazyColumn, Buttons]:
        look = self._tools.look
        column = LazyColumn(self._content, look.space(6))
        column.refit.connect(self._settle_soon)
        earlier = Buttons(look, column)
        earlier.pressed.connect(self._show_earlier)
        column.insert(0, earlier)
        column.show()
        return column, earlier

    def view_of(self, message_id: str) -> MessageView | None:
        """Return what shows a message; None for one that is not drawn.

        Args:
            message_id: Of it.
        """
        return self._views.get(message_id)

    @property
    def views(self) -> Sequence[MessageView]:
        """Everything drawn, from the top."""
        return [view for view in self._column.items if isinstance(view, MessageView)]

    def redraw(self) -> None:
        """Draw everything anew: theme, scale or language is another one."""
        current = {message_id: view.message for message_id, view in self._views.items()}
        path = [current.get(message.message_id, message) for message in self._path]
        live_id = None if self._live is None else self._live.message_id
        was_first, versions = self._first, self._versions
        anchor = None if self._sticks else self._column.anchor_at(self._top())
        read_id = (
            anchor.child.message_id if anchor and isinstance(anchor.child, MessageView) else ""
        )
        self.clear()
        self.show_path(path, versions, live_id)
        self._tools.slices.add(self, self._adding_earlier(was_first))
        if read_id:
            self._sticks, self._wanted = False, read_id
            self._tools.slices.add(self, self._returning())

    def follow(self) -> None:
        """Scroll to the end, and stay there."""
        self._sticks = True
        self._settle_soon()

    def retell(self) -> None:
        """Say everything that is not the messages' own text, anew."""
        for view in self._views.values():
            view.retell()
        self._tell_earlier()

    # ---- an answer that grows -----------------------------------------------------------------

    def grow(self, message_id: str, text: str) -> None:
        """Take text that came; it is drawn a little later.

        Args:
            message_id: Of the answer that grows.
            text: That came.
        """
        if self._live is not None and self._live.message_id == message_id:
            self._text_came.append(text)
            if not self._flush.isActive():
                self._flush.start(self._flush_ms)

    def tell_progress(self, message: Message, sentence: str) -> None:
        """Say how far an answer is.

        Args:
            message: As it is now.
            sentence: Safe to show.
        """
        view = self._views.get(message.message_id)
        if isinstance(view, AnswerView):
            view.tell_progress(message, sentence)

    def finish(self, message: Message) -> None:
        """Say that an answer ended; what has not been drawn of it is drawn a little at a time.

        Args:
            message: As it ended.
        """
        view = self._views.get(message.message_id)
        if not isinstance(view, AnswerView):
            return
        text = "".join(self._text_came) if view is self._live else ""
        if view is self._live:
            self._text_came.clear()
            self._live = None
        self._tools.slices.add(view, _finishing(view, text, message))

    def _draw_text(self) -> None:
        began_s = time.perf_counter()
        text = "".join(self._text_came)
        self._text_came.clear()
        if self._live is None or not text:
            return
        if not self._tools.slices.is_idle:  # its beginning is still being drawn
            self._text_came.append(text)
        else:
            self._live.grow(text[:FLUSH_CHARACTERS])
            if len(text) > FLUSH_CHARACTERS:
                self._text_came.append(text[FLUSH_CHARACTERS:])
            self._settle()
        cost_ms = (time.perf_counter() - began_s) * 1000
        self._flush_ms = int(min(max(FLUSH_MS, 3 * cost_ms), MAX_FLUSH_MS))
        if self._text_came:
            self._flush.start(self._flush_ms if self._tools.slices.is_idle else FLUSH_MS)

    # ---- views --------------------------------------------------------------------------------

    def _add(self, message: Message, live_id: str | None, *, at_end: bool) -> None:
        kind = UserView if message.role == "user" else AnswerView
        view = kind(message, self._tools, self._column)
        view.acted.connect(self.acted)
        view.link_asked.connect(self.link_asked)
        view.version = self._versions.get(message.message_id, Version())
        self._views[message.message_id] = view
        if isinstance(view, AnswerView) and message.message_id == live_id:
            view.is_live = True
            self._live = view
        self._column.insert(len(self._column.items) if at_end else 1, view)
        view.build()

    def _drop(self, message_id: str) -> None:
        view = self._views.pop(message_id)
        self._column.take(list(self._column.items).index(view)).deleteLater()

    def _tell_earlier(self) -> None:
        words = self._tools.wording.text("chat.show_earlier")
        self._earlier.show_only([("earlier", "", words)] if self._first else [])

    def _returning(self) -> Iterator[None]:
        """Bring back what was read, once everything stands above it again."""
        while not self._settle():
            yield
        self._wanted = ""

    def _show_earlier(self) -> None:
        first = max(0, self._first - MORE_MESSAGES)
        self._tools.slices.add(self, self._adding_earlier(first))

    def _adding_earlier(self, first: int) -> Iterator[None]:
        while self._first > first:
            self._first -= 1
            self._add(self._path[self._first], None, at_end=False)
            yield
        self._tell_earlier()

    # ---- where everything is ------------------------------------------------------------------

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Lay out for the new width."""
        super().resizeEvent(event)
        self._settle()

    def _settle_soon(self) -> None:
        if not self._soon.isActive() and not self._is_settling:
            self._soon.start(0)

    def _settle(self) -> bool:
        """Give everything its place, without moving what is read; return whether all has one."""
        look = self._tools.look
        bar = self.verticalScrollBar()
        width = self.viewport().width()
        margin = look.space(6)
        inner = max(1, min(look.px(COLUMN_PX), width - 2 * margin))
        top = self._top()
        anchor = None if self._sticks else self._column.anchor_at(top)
        if self._sticks:
            top = max(0, self._column.total_height - self.viewport().height())
        self._is_settling = True
        until_s = time.perf_counter() + SETTLE_FOR_S
        is_done = self._column.settle(inner, top, top + self.viewport().height(), until_s)
        height = self._column.total_height
        self._column.setGeometry((width - inner) // 2, margin, inner, height)
        self._content.resize(width, height + 2 * margin)
        if self._sticks:
            bar.setValue(bar.maximum())
        elif (wanted := self._views.get(self._wanted)) is not None:
            bar.setValue(wanted.y() + margin)
        elif anchor is not None and anchor.child in self._column.items:
            bar.setValue(anchor.child.y() + anchor.offset + margin)
        self._is_settling = False
        if not is_done:
            self._settle_soon()
        return is_done

    def _top(self) -> int:
        """Return where in the column the sight begins."""
        return self.verticalScrollBar().value() - self._tools.look.space(6)

    def _on_scrolled(self, value: int) -> None:
        if self._is_settling or self._wanted:
            return
        bar = self.verticalScrollBar()
        self._sticks = value >= bar.maximum() - self._tools.look.space(4)
        if value < NEAR_TOP_PX and self._first and self._tools.slices.is_idle:
            self._show_earlier()
        self._settle_soon()


def _disposing(column: LazyColumn) -> Iterator[None]:
    """Delete a column at once but in pieces: what is only marked is all deleted in one turn."""
    for child in list(column.items):
        shiboken6.delete(child)
        yield
    column.deleteLater()
    yield


def _finishing(view: AnswerView, text: str, message: Message) -> Iterator[None]:
    yield from view.text_view.feeding(text, is_whole=False)
    view.finish(message)
    yield


def _single_shot(parent: QWidget, slot: object) -> QTimer:
    timer = QTimer(parent)
    timer.setSingleShot(True)
    timer.timeout.connect(slot)
    return timer

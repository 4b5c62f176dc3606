"""The field with its button and its line of hints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QSize, Qt, QTimer, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QToolButton, QVBoxLayout, QWidget

from app.chat.input.editor import Editor
from app.chat.request import estimated_tokens

if TYPE_CHECKING:
    from app.look.look import Look
    from app.wording.wording import Wording

COUNT_AFTER_MS = 250  # of quiet: counting a long text takes a few milliseconds
COUNTED_FROM = 400  # characters; shorter texts fit every model


class Composer(QFrame):
    """Where a message is written and sent.

    Attributes:
        send_asked: A person wants to send; carries the text.
        stop_asked: A person wants the answer that runs to end.
        cancelled: A person no longer wants to edit an earlier message.
    """

    send_asked = Signal(str)
    stop_asked = Signal()
    cancelled = Signal()

    def __init__(self, look: Look, wording: Wording, parent: QWidget | None = None) -> None:
        """Begin empty.

        Args:
            look: Theme and sizes.
            wording: Of everything.
            parent: Owns it.
        """
        super().__init__(parent)
        self.setObjectName("composer")
        self._look = look
        self._wording = wording
        self._is_running = False
        self._is_editing = False
        self._room_tokens = 0  # that this chat still has; 0 where that isn't known
        self._factor = 1.0
        self._num_tokens = 0
        self._box = QFrame(self)
        self._box.setObjectName("composerBox")
        self.editor = Editor(look, wording, self._box)
        self._button = QToolButton(self._box)
        self._button.setObjectName("sendButton")
        self._hint = QLabel(self)
        self._hint.setObjectName("note")
        self._hint.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        self._cancel = QToolButton(self)
        self._cancel.setObjectName("wordButton")
        self._cancel.hide()
        self._lay_out()
        self._count_soon = QTimer(self)
        self._count_soon.setSingleShot(True)
        self._count_soon.timeout.connect(self._count)
        self.editor.sent.connect(self._on_sent)
        self.editor.text_changed.connect(self._on_changed)
        self.editor.height_changed.connect(self._on_height)
        self._button.clicked.connect(self._on_button)
        self._cancel.clicked.connect(self.cancelled)
        wording.changed.connect(self.retell)
        look.changed.connect(self._redress)
        self._redress()

    def _lay_out(self) -> None:
        box = QHBoxLayout(self._box)
        box.addWidget(self.editor, 1)
        box.addWidget(self._button, 0, Qt.AlignmentFlag.AlignBottom)
        below = QHBoxLayout()
        below.addStretch(1)
        below.addWidget(self._hint)
        below.addWidget(self._cancel)
        below.addStretch(1)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.addWidget(self._box)
        outer.addLayout(below)

    # ---- what it is told ----------------------------------------------------------------------

    def set_running(self, is_running: bool) -> None:
        """Say whether an answer of this chat runs.

        Args:
            is_running: Whether one does.
        """
        if is_running != self._is_running:
            self._is_running = is_running
            self.retell()

    def set_editing(self, is_editing: bool) -> None:
        """Say whether an earlier message is being edited.

        Args:
            is_editing: Whether one is.
        """
        self._is_editing = is_editing
        self._cancel.setVisible(is_editing)
        self.retell()

    def set_room(self, room_tokens: int, factor: float) -> None:
        """Say how much may be written.

        Args:
            room_tokens: That this model takes in one message; 0 where that isn't known.
            factor: How this model counts, against our guess.
        """
        if (room_tokens, factor) != (self._room_tokens, self._factor):
            self._room_tokens, self._factor = room_tokens, factor
            self._count()

    @property
    def hint(self) -> str:
        """What its line says."""
        return self._hint.text()

    @property
    def num_tokens(self) -> int:
        """About how many tokens the text has, as last counted."""
        return self._num_tokens

    # ---- what is done -------------------------------------------------------------------------

    def _on_sent(self) -> None:
        text = self.editor.message()
        if text.strip() and not self._is_running:
            self.send_asked.emit(text)

    def _on_button(self) -> None:
        if self._is_running:
            self.stop_asked.emit()
        else:
            self._on_sent()
        self.editor.setFocus()

    def _on_changed(self) -> None:
        self._button.setEnabled(self._is_running or not self.editor.document().isEmpty())
        self._count_soon.start(COUNT_AFTER_MS)

    def _on_height(self) -> None:
        height = self.editor.needed_height()
        if height != self.editor.height():
            self.editor.setFixedHeight(height)

    def _count(self) -> None:
        text = self.editor.message()
        num = 0 if len(text) < COUNTED_FROM else round(estimated_tokens(text) * self._factor)
        if num != self._num_tokens:
            self._num_tokens = num
        self.retell()

    # ---- how it looks -------------------------------------------------------------------------

    def retell(self) -> None:
        """Say everything in the language that is chosen."""
        text = self._wording.text
        words = text("chat.stop" if self._is_running else "chat.send")
        self._button.setAccessibleName(words)
        self._button.setToolTip(words)
        self._button.setIcon(self._look.icon("stop" if self._is_running else "send", "on_heart"))
        self._button.setEnabled(self._is_running or not self.editor.document().isEmpty())
        self._cancel.setText(text("chat.cancel"))
        self._hint.setText(self._hint_now())
        is_too_long = bool(self._num_tokens and 0 < self._room_tokens < self._num_tokens)
        name = "alarmNote" if is_too_long else "note"
        if self._hint.objectName() != name:
            self._hint.setObjectName(name)
            self._hint.style().polish(self._hint)

    def _hint_now(self) -> str:
        text, number = self._wording.text, self._wording.locale.toString
        num, excess = self._num_tokens, self._num_tokens - self._room_tokens
        if num and self._room_tokens and excess > 0:
            return text("chat.hint_too_long", n=num, num=number(num), excess=number(excess))
        if self._is_editing:
            return text("chat.editing")
        if self._is_running:
            return text("chat.hint_running")
        if num:
            return text("chat.hint_tokens", n=num, num=number(num))
        return text("chat.hint")

    def _redress(self) -> None:
        look = self._look
        side = look.px(20)
        self._button.setIconSize(QSize(side, side))
        self._button.setFixedSize(look.space(9), look.space(9))
        self._box.layout().setContentsMargins(*map(look.space, (3, 2, 2, 2)))
        self.layout().setSpacing(look.space(1))
        self._hint.setFont(look.font("small"))
        self._cancel.setFont(look.font("small"))
        self._on_height()
        self.retell()

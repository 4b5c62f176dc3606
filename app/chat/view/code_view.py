"""A block of code: its language, a button that copies it, and its lines in colour."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QColor, QGuiApplication, QTextCharFormat, QTextCursor, QTextLayout
from PySide6.QtWidgets import QFrame, QLabel, QPlainTextEdit, QToolButton

from app.chat.markdown.items import Code
from app.chat.view.fitted import Fitted
from app.chat.view.highlight import colour_in, is_short_enough, lexer_for, spans, window_of
from app.chat.view.writing import LONGEST_PIECE
from app.safe_text import one_line, shown, without_unseen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from PySide6.QtGui import QContextMenuEvent, QTextBlock, QWheelEvent

    from app.chat.view.slices import Slices
    from app.look.look import Look
    from app.wording.wording import Wording

WINDOW_CHARACTERS = 1200  # of a growing block's end are coloured anew each time
_LONGEST_LANGUAGE = 24


class _CodeEdit(QPlainTextEdit):
    """Lines that can be selected, as many high as there are."""

    def __init__(self, look: Look, parent: QFrame) -> None:
        super().__init__(parent)
        self.setReadOnly(True)
        self.setUndoRedoEnabled(False)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setTextInteractionFlags(
            Qt.TextInteractionFlag.TextSelectableByMouse
            | Qt.TextInteractionFlag.TextSelectableByKeyboard
        )
        self.setFont(look.font(fixed=True))
        self.setLayoutDirection(Qt.LayoutDirection.LeftToRight)
        option = self.document().defaultTextOption()
        option.setTextDirection(Qt.LayoutDirection.LeftToRight)
        self.document().setDefaultTextOption(option)
        self.document().setDocumentMargin(look.space(2))

    def wheelEvent(self, event: QWheelEvent) -> None:
        if abs(event.angleDelta().x()) > abs(event.angleDelta().y()):
            super().wheelEvent(event)
        else:
            event.ignore()  # the chat scrolls

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        event.ignore()

    def needed_height(self) -> int:
        lines = self.blockCount() * self.fontMetrics().lineSpacing()
        bar = self.horizontalScrollBar()
        bar_height = bar.sizeHint().height() if bar.maximum() > bar.minimum() else 0
        return lines + 2 * int(self.document().documentMargin()) + bar_height + 2


class CodeView(Fitted):
    """One block of code.

    Attributes:
        copied: Its text was put on the clipboard.
    """

    copied = Signal()

    def __init__(self, look: Look, wording: Wording, slices: Slices, parent: Fitted) -> None:
        """Begin empty.

        Args:
            look: Theme and sizes.
            wording: Of its button.
            slices: Works off the colouring.
            parent: Owns it.
        """
        super().__init__(parent)
        self._look = look
        self._wording = wording
        self._slices = slices
        self._code = Code("")
        self._drawn = ""  # what the lines hold
        self._num_passes = 0  # a later colouring ends an earlier one
        self._frame = QFrame(self)
        self._frame.setObjectName("code")
        self._language = QLabel(self._frame)
        self._language.setObjectName("codeLanguage")
        self._button = QToolButton(self._frame)
        self._button.setText(wording.text("chat.copy_code"))
        self._button.setAccessibleName(wording.text("chat.copy_code"))
        self._button.clicked.connect(self.copy)
        self._edit = _CodeEdit(look, self._frame)

    @property
    def code(self) -> Code:
        """What it shows."""
        return self._code

    @property
    def edit(self) -> QPlainTextEdit:
        """Its lines."""
        return self._edit

    def copy(self) -> None:
        """Put what is seen on the clipboard, and nothing that isn't."""
        QGuiApplication.clipboard().setText(without_unseen(self._code.text))
        self._button.setText(self._wording.text("chat.copied"))
        self.copied.emit()

    def set_code(self, code: Code) -> None:
        """Show code; where it begins as what is shown does, only the rest is added.

        Args:
            code: As far as it has come.
        """
        was, self._code = self._code, code
        if was.language != code.language or not self._drawn:
            self._language.setText(one_line(code.language, _LONGEST_LANGUAGE))
            self._edit.setAccessibleName(self._wording.text("chat.code"))
        drawn = _drawable(code.text)
        if drawn.startswith(self._drawn):
            cursor = QTextCursor(self._edit.document())
            cursor.movePosition(QTextCursor.MoveOperation.End)
            cursor.insertText(drawn[len(self._drawn) :])
        else:
            self._edit.setPlainText(drawn)
        self._drawn = drawn
        self._colour()
        self.refit.emit()

    def fit(self, width: int) -> int:
        """Lay out for a width; return the height that takes.

        Args:
            width: In logical pixels.
        """
        space = self._look.space
        left, top = self._code.depth * space(6), space(1)
        inner = max(0, width - left)
        button = self._button.sizeHint()
        head = button.height() + space(1)
        self._button.setGeometry(
            inner - button.width() - space(1), space(1), button.width(), button.height()
        )
        self._language.setGeometry(space(3), space(1), inner // 2, button.height())
        self._edit.resize(inner - 2, self._edit.height())
        height = self._edit.needed_height()
        self._edit.setGeometry(1, head, inner - 2, height)
        self._frame.setGeometry(left, top, inner, head + height + 1)
        return top + head + height + 1 + top

    # ---- colour -------------------------------------------------------------------------------

    def _colour(self) -> None:
        """Colour the end at once; all of it, a little at a time, once nothing more comes."""
        lexer = lexer_for(self._code.language)
        if lexer is None or not is_short_enough(self._drawn[-WINDOW_CHARACTERS * 4 :]):
            return
        self._num_passes += 1
        if self._code.is_whole and len(self._drawn) > WINDOW_CHARACTERS:
            if is_short_enough(self._drawn):
                self._slices.add(self, self._colouring(0, self._num_passes))
            return
        begin = window_of(self._drawn, WINDOW_CHARACTERS)
        for _ in self._colouring(begin, self._num_passes):
            continue

    def _colouring(self, begin: int, number: int) -> Iterator[None]:
        lexer = lexer_for(self._code.language)
        if lexer is None:
            return
        document = self._edit.document()
        block = document.findBlock(begin)
        ranges: list[QTextLayout.FormatRange] = []
        for start, length, light, dark in spans(lexer, self._drawn[begin:]):
            if number != self._num_passes:
                return
            place, end = begin + start, begin + start + length
            form = QTextCharFormat()
            form.setForeground(QColor(colour_in(self._look.theme, light, dark)))
            while place < end and block.isValid():
                block_end = block.position() + block.length() - 1
                if place > block_end or (place == block_end and place < end):
                    _set_formats(block, ranges)
                    ranges = []
                    block = block.next()
                    place = max(place, block.position())
                    yield
                    continue
                piece = QTextLayout.FormatRange()
                piece.start = place - block.position()
                piece.length = min(end, block_end) - place
                piece.format = form
                ranges.append(piece)
                place += piece.length
        if block.isValid():
            _set_formats(block, ranges)
        self._edit.viewport().update()


def _set_formats(block: QTextBlock, ranges: list[QTextLayout.FormatRange]) -> None:
    block.layout().setFormats(ranges)
    block.document().markContentsDirty(block.position(), block.length())


def _drawable(text: str) -> str:
    """Return code as it is drawn: safe, and without a line that takes long to lay out."""
    safe = shown(text)
    if len(safe) <= LONGEST_PIECE:
        return safe
    return "\n".join(
        line[begin : begin + LONGEST_PIECE]
        for line in safe.split("\n")
        for begin in range(0, max(1, len(line)), LONGEST_PIECE)
    )

"""The field a message is written in."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from PySide6.QtCore import QMimeData, Qt, QTimer, QUrl, Signal
from PySide6.QtGui import QFontMetricsF, QTextCursor, QTextImageFormat
from PySide6.QtWidgets import QFrame, QTextEdit

from app.chat.input.pasted import MAX_LINE, SIGN, PastedTexts, is_long, plain
from app.chat.input.sign import draw_sign, sign_names

if TYPE_CHECKING:
    from PySide6.QtGui import QInputMethodEvent, QKeyEvent

    from app.chat.input.pasted import Pasted
    from app.look.look import Look
    from app.wording.wording import Wording

MAX_SHOWN_LINES = 9  # then it scrolls
_ENTER = {Qt.Key.Key_Return, Qt.Key.Key_Enter}


class Editor(QTextEdit):
    """A field that grows with its text, knows input methods, and stays quick with long texts.

    Attributes:
        sent: Enter was pressed; the text is still there.
        height_changed: It needs another height.
        text_changed: Its text is another one.
    """

    sent = Signal()
    height_changed = Signal()
    text_changed = Signal()

    def __init__(self, look: Look, wording: Wording, parent: QFrame | None = None) -> None:
        """Begin empty.

        Args:
            look: Theme and sizes.
            wording: Of its placeholder and its signs.
            parent: Owns it.
        """
        super().__init__(parent)
        self._look = look
        self._wording = wording
        self._pasted = PastedTexts()
        self._preedit = ""
        self._folds = False
        self.setAcceptRichText(False)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setObjectName("editor")
        self.viewport().setAutoFillBackground(False)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setTabChangesFocus(True)
        self.document().setDocumentMargin(look.space(1))
        self.textChanged.connect(self._on_changed)
        wording.changed.connect(self.retell)
        look.changed.connect(self.redress)
        self.redress()
        self.retell()

    # ---- its text -----------------------------------------------------------------------------

    @property
    def is_composing(self) -> bool:
        """Whether an input method holds letters that are not the text's yet."""
        return bool(self._preedit)

    def message(self) -> str:
        """Return the text, long pasted texts in their places."""
        text = self.toPlainText()
        if SIGN not in text:
            return text
        names = iter(self._sign_names())
        pieces = text.split(SIGN)
        whole = [pieces[0]]
        for piece in pieces[1:]:
            pasted = self._pasted.named(next(names, ""))
            whole.append("" if pasted is None else pasted.text)
            whole.append(piece)
        return "".join(whole)

    def pasted_texts(self) -> list[Pasted]:
        """Return the long texts in it, in order."""
        found = (self._pasted.named(name) for name in self._sign_names())
        return [pasted for pasted in found if pasted is not None]

    def set_message(self, text: str) -> None:
        """Put a text in; a long one stands as one sign.

        Args:
            text: Any.
        """
        self.clear_message()
        self._insert(text)

    def clear_message(self) -> None:
        """Empty it."""
        self.clear()
        self._pasted.clear()

    def _sign_names(self) -> list[str]:
        names: list[str] = []
        block = self.document().begin()
        while block.isValid():
            if SIGN in block.text():
                names.extend(sign_names(block))
            block = block.next()
        return names

    # ---- what comes in ------------------------------------------------------------------------

    def canInsertFromMimeData(self, source: QMimeData) -> bool:
        """Take text only.

        Args:
            source: What is offered.
        """
        return source.hasText()

    def insertFromMimeData(self, source: QMimeData) -> None:
        """Take pasted or dropped text.

        Args:
            source: What was pasted or dropped.
        """
        self._insert(source.text())

    def createMimeDataFromSelection(self) -> QMimeData:
        """Give away text, long pasted texts in their places."""
        data = QMimeData()
        text = self.textCursor().selection().toPlainText()
        whole = self.message() if text == self.toPlainText() else text.replace(SIGN, "")
        data.setText(whole)
        return data

    def _insert(self, text: str) -> None:
        text = plain(text)
        if is_long(text):
            self._insert_sign(self.textCursor(), text)
        else:
            self.textCursor().insertText(text)
        self.ensureCursorVisible()

    def _insert_sign(self, cursor: QTextCursor, text: str) -> None:
        pasted = self._pasted.add(text)
        self._draw_sign(pasted)
        form = QTextImageFormat()
        form.setName(pasted.name)
        form.setVerticalAlignment(QTextImageFormat.VerticalAlignment.AlignMiddle)
        cursor.insertImage(form)

    def loadResource(self, kind: int, name: QUrl | str) -> object:
        """Load nothing but the pictures of our own signs.

        Args:
            kind: Of what.
            name: Of which.
        """
        return None

    def _on_changed(self) -> None:
        if not self._folds and self.textCursor().block().length() > MAX_LINE:
            QTimer.singleShot(0, self, self._fold_long_line)
        self.height_changed.emit()
        self.text_changed.emit()

    def _fold_long_line(self) -> None:
        """Make a sign of a line that has become long piece by piece."""
        block = self.textCursor().block()
        if block.length() <= MAX_LINE or self.is_composing or SIGN in block.text():
            return
        self._folds = True
        cursor = QTextCursor(block)
        cursor.movePosition(QTextCursor.MoveOperation.EndOfBlock, QTextCursor.MoveMode.KeepAnchor)
        text = cursor.selectedText()
        cursor.removeSelectedText()
        self._insert_sign(cursor, text)
        self._folds = False

    # ---- keys ---------------------------------------------------------------------------------

    def inputMethodEvent(self, event: QInputMethodEvent) -> None:
        """Follow what an input method is doing.

        Args:
            event: Of the input method.
        """
        self._preedit = event.preeditString()
        super().inputMethodEvent(event)
        self.height_changed.emit()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Send on Enter, but never what an input method still holds.

        Args:
            event: Of the key.
        """
        if event.key() not in _ENTER:
            super().keyPressEvent(event)
        elif self.is_composing:
            event.accept()  # it confirms a word; the input method has seen it
        elif event.modifiers() & Qt.KeyboardModifier.ShiftModifier:
            self.textCursor().insertBlock()
            self.ensureCursorVisible()
        elif event.isAutoRepeat():
            event.accept()
        else:
            self.sent.emit()

    # ---- how it looks -------------------------------------------------------------------------

    def needed_height(self) -> int:
        """Return how high it should be for its text."""
        line = QFontMetricsF(self.font()).lineSpacing()
        margin = 2 * self.document().documentMargin()
        wanted = self.document().size().height()
        # Half a pixel too few, and it scrolls.
        return math.ceil(max(line + margin, min(wanted, MAX_SHOWN_LINES * line + margin)))

    def retell(self) -> None:
        """Say everything in the language that is chosen; what is being written stays."""
        self.setPlaceholderText(self._wording.text("chat.ask_anything"))
        self.setAccessibleName(self._wording.text("chat.ask_anything"))
        self._redraw_signs()

    def redress(self) -> None:
        """Take over theme and scale."""
        self.setFont(self._look.font())
        self._redraw_signs()
        self.height_changed.emit()

    def _redraw_signs(self) -> None:
        signs = self.pasted_texts()
        for pasted in signs:
            self._draw_sign(pasted)
        if signs:
            document = self.document()
            document.markContentsDirty(0, document.characterCount())

    def _draw_sign(self, pasted: Pasted) -> None:
        draw_sign(self.document(), pasted, self._look, self._wording, self.devicePixelRatioF())

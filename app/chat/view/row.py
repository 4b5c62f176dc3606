"""Small rows under and between messages: figures, notes, buttons."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QRect, QSize, Qt, Signal
from PySide6.QtWidgets import QLabel, QToolButton, QWidget

from app.chat.view.fitted import Fitted

if TYPE_CHECKING:
    from collections.abc import Callable

    from app.look.look import Look


class Note(Fitted):
    """One sentence, over as many lines as it takes; nothing where it is empty."""

    def __init__(self, look: Look, parent: Fitted, name: str = "note") -> None:
        """Begin empty.

        Args:
            look: Sizes.
            parent: Owns it.
            name: Of its kind in the style sheet.
        """
        super().__init__(parent)
        self._label = QLabel(self)
        self._label.setObjectName(name)
        self._label.setWordWrap(True)
        self._label.setTextFormat(Qt.TextFormat.PlainText)
        self._label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._label.setFont(look.font("small"))

    @property
    def text(self) -> str:
        """What it says."""
        return self._label.text()

    def say(self, text: str) -> None:
        """Say something else.

        Args:
            text: Safe to show; empty for nothing.
        """
        if text != self._label.text():
            self._label.setText(text)
            self.refit.emit()

    def fit(self, width: int) -> int:
        """Lay out for a width; return the height that takes.

        Args:
            width: In logical pixels.
        """
        height = self._label.heightForWidth(width) if self._label.text() else 0
        self._label.setGeometry(0, 0, width, height)
        return height


class Buttons(Fitted):
    """Small buttons in a row.

    Attributes:
        pressed: Carries the name of the one that was pressed.
    """

    pressed = Signal(str)

    def __init__(self, look: Look, parent: Fitted, *, to_right: bool = False) -> None:
        """Begin without any.

        Args:
            look: Sizes and icons.
            parent: Owns it.
            to_right: They stand on the right.
        """
        super().__init__(parent)
        self._look = look
        self._to_right = to_right
        self._shown: list[QWidget] = []
        self._known: dict[str, QToolButton] = {}

    def show_only(self, buttons: list[tuple[str, str, str]]) -> None:
        """Show these and no others.

        Args:
            buttons: Each one's name, icon (empty for words) and words; an empty name is a label.
        """
        for widget in self._shown:
            if isinstance(widget, QLabel):
                widget.deleteLater()
            else:
                widget.hide()
        self._shown = [self._made(*button) for button in buttons]
        for widget in self._shown:
            widget.show()
        self.refit.emit()

    def button(self, name: str) -> QToolButton | None:
        """Return a button that is shown.

        Args:
            name: Of it.
        """
        found = self._known.get(name)
        return found if found in self._shown else None

    def _made(self, name: str, icon: str, words: str) -> QWidget:
        if not name:
            label = QLabel(words, self)
            label.setObjectName("note")
            label.setFont(self._look.font("small"))
            return label
        button = self._known.get(name)
        if button is None:
            button = self._known[name] = QToolButton(self)
            button.clicked.connect(_pressing(self, name))
        button.setAccessibleName(words)
        button.setToolTip(words if icon else "")
        button.setFont(self._look.font("small"))
        if icon:
            side = self._look.px(16)
            button.setObjectName("quietButton")
            button.setIcon(self._look.icon(icon, "quiet"))
            button.setIconSize(QSize(side, side))
        else:
            button.setObjectName("wordButton")
            button.setText(words)
        return button

    def fit(self, width: int) -> int:
        """Lay out for a width; return the height that takes.

        Args:
            width: In logical pixels.
        """
        if not self._shown:
            return 0
        sizes = [widget.sizeHint() for widget in self._shown]
        gap = self._look.space(1)
        height = max(size.height() for size in sizes)
        left = 0
        if self._to_right:
            left = width - sum(size.width() for size in sizes) - gap * (len(sizes) - 1)
        for widget, size in zip(self._shown, sizes, strict=True):
            top = (height - size.height()) // 2
            widget.setGeometry(QRect(left, top, size.width(), size.height()))
            left += size.width() + gap
        return height


def _pressing(buttons: Buttons, name: str) -> Callable[[], None]:
    def press() -> None:
        buttons.pressed.emit(name)

    return press

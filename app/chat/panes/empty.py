"""What an empty chat shows: what it is for, and the next step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

if TYPE_CHECKING:
    from app.chat.pool_facts import PoolFacts
    from app.look.look import Look
    from app.wording.wording import Wording

FLOWER_PX = 72


class EmptyChat(QWidget):
    """Shown before the first message.

    Attributes:
        models_asked: A person wants to choose a model.
        pool_asked: A person wants to add PCs.
    """

    models_asked = Signal()
    pool_asked = Signal()

    def __init__(self, look: Look, wording: Wording, parent: QWidget) -> None:
        """Begin.

        Args:
            look: Theme and sizes.
            wording: Of everything.
            parent: Owns it.
        """
        super().__init__(parent)
        self._look = look
        self._wording = wording
        self._has_model = True
        self._flower = QLabel(self)
        self._title = QLabel(self)
        self._text = QLabel(self)
        self._more = QLabel(self)
        self._models = QPushButton(self)
        self._pool = QPushButton(self)
        buttons = QHBoxLayout()
        buttons.addStretch(1)
        buttons.addWidget(self._models)
        buttons.addWidget(self._pool)
        buttons.addStretch(1)
        layout = QVBoxLayout(self)
        layout.setSpacing(look.space(3))
        layout.addStretch(2)
        for label in (self._flower, self._title, self._text, self._more):
            label.setAlignment(Qt.AlignmentFlag.AlignHCenter)
            label.setWordWrap(label is not self._flower)
            layout.addWidget(label)
        layout.addLayout(buttons)
        layout.addStretch(3)
        self._text.setObjectName("quiet")
        self._more.setObjectName("quiet")
        self._models.clicked.connect(self.models_asked)
        self._pool.clicked.connect(self.pool_asked)
        wording.changed.connect(self.retell)
        look.changed.connect(self.redress)
        self.redress()

    def show_facts(self, facts: PoolFacts) -> None:
        """Show what is missing.

        Args:
            facts: Of the pool, as told last.
        """
        self._has_model = facts.is_loaded or not facts.is_known
        self._more.setVisible(not self._has_model)
        self._models.setVisible(not self._has_model)
        self._pool.setVisible(facts.is_known and not facts.num_others)

    def retell(self) -> None:
        """Say everything in the language that is chosen."""
        text = self._wording.text
        self._title.setText(text("chat.empty_title"))
        self._text.setText(text("chat.empty_text"))
        self._more.setText(text("chat.empty_no_model"))
        self._models.setText(text("chat.choose_model"))
        self._pool.setText(text("chat.add_pcs"))

    def redress(self) -> None:
        """Take over theme and scale."""
        look = self._look
        side = look.px(FLOWER_PX)
        icon = look.icon("daisy")
        self._flower.setPixmap(icon.pixmap(QSize(side, side), self.devicePixelRatioF()))
        self._title.setFont(look.font("title", bold=True))
        for widget in (self._text, self._more, self._models, self._pool):
            widget.setFont(look.font())
        self.retell()

"""The line above a conversation: which model, how many PCs, how fast."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QToolButton, QWidget

if TYPE_CHECKING:
    from app.chat.pool_facts import PoolFacts
    from app.look.look import Look
    from app.wording.wording import Wording

SEPARATOR = " · "
ICON_PX = 18


class Head(QFrame):
    """The line.

    Attributes:
        models_asked: A person wants another model.
        pool_asked: A person wants to see the pool.
        settings_asked: A person wants this chat's settings.
        more_asked: A person wants the chat's menu.
    """

    models_asked = Signal()
    pool_asked = Signal()
    settings_asked = Signal()
    more_asked = Signal()

    def __init__(self, look: Look, wording: Wording, parent: QWidget) -> None:
        """Begin knowing nothing.

        Args:
            look: Theme and sizes.
            wording: Of everything.
            parent: Owns it.
        """
        super().__init__(parent)
        self.setObjectName("head")
        self._look = look
        self._wording = wording
        self._facts: PoolFacts | None = None
        self._pace = 0.0
        self.model_button = QToolButton(self)
        self.model_button.setObjectName("modelButton")
        self.model_button.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextOnly)
        self.pool_button = QToolButton(self)
        self.pool_button.setObjectName("wordButton")
        self.pool_button.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        self.settings_button = QToolButton(self)
        self.settings_button.setObjectName("quietButton")
        self.more_button = QToolButton(self)
        self.more_button.setObjectName("quietButton")
        self._middle = QLabel(self)
        layout = QHBoxLayout(self)
        layout.addWidget(self.model_button)
        layout.addWidget(self._middle, 1)
        layout.addWidget(self.pool_button)
        layout.addWidget(self.settings_button)
        layout.addWidget(self.more_button)
        self.model_button.clicked.connect(self.models_asked)
        self.pool_button.clicked.connect(self.pool_asked)
        self.settings_button.clicked.connect(self.settings_asked)
        self.more_button.clicked.connect(self.more_asked)
        wording.changed.connect(self.retell)
        look.changed.connect(self.redress)
        self.redress()

    def show_facts(self, facts: PoolFacts) -> None:
        """Show how the pool is.

        Args:
            facts: As told last.
        """
        self._facts = facts
        self.retell()

    def show_pace(self, pace: float) -> None:
        """Show how fast answers come.

        Args:
            pace: Tokens a second; 0 while none runs.
        """
        self._pace = pace
        self.retell()

    def retell(self) -> None:
        """Say everything in the language that is chosen."""
        text, number = self._wording.text, self._wording.locale.toString
        facts = self._facts
        model = (facts.model if facts is not None else "") or text("chat.no_model")
        if facts is not None and facts.is_loaded and facts.phase != "ready":
            model += SEPARATOR + text("chat.header_loading")
        self.model_button.setText(f"{model} ▾")
        self.model_button.setAccessibleName(f"{text('chat.choose_model')}: {model}")
        parts: list[str] = []
        if facts is not None and facts.num_online:
            num = facts.num_online
            parts.append(text("chat.header_pcs", n=num, num=number(num)))
        if self._pace:
            parts.append(text("chat.rate", rate=number(self._pace, "f", 1)))
        words = SEPARATOR.join(parts)
        self.pool_button.setText(words)
        # A style sheet's tool button makes too little room for words beside an icon.
        room = self.pool_button.fontMetrics().horizontalAdvance(words)
        self.pool_button.setMinimumWidth(room + self._look.px(ICON_PX) + self._look.space(8))
        self.pool_button.setVisible(bool(parts))
        for button, key in (
            (self.settings_button, "chat.settings"),
            (self.more_button, "chat.more"),
        ):
            button.setAccessibleName(text(key))
            button.setToolTip(text(key))

    def redress(self) -> None:
        """Take over theme and scale."""
        look = self._look
        self.layout().setContentsMargins(*map(look.space, (4, 2, 3, 2)))
        side = look.px(ICON_PX)
        for button, icon in (
            (self.settings_button, "dials"),
            (self.more_button, "more"),
            (self.pool_button, "daisy"),
        ):
            button.setIcon(look.icon(icon, "quiet"))
            button.setIconSize(QSize(side, side))
        self.model_button.setFont(look.font("body", bold=True))
        self.pool_button.setFont(look.font("small"))
        self.retell()

"""How one chat is answered: system prompt and sampling."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace
from PySide6.QtCore import QSize, Qt, QTimer, Signal
from PySide6.QtWidgets import (
    QDoubleSpinBox,
    QFormLayout,
    QFrame,
    QHBoxLayout,
    QLabel,
    QPlainTextEdit,
    QPushButton,
    QSpinBox,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from app.chat.records import Sampling

if TYPE_CHECKING:
    from app.chat.records import Chat
    from app.look.look import Look
    from app.wording.wording import Wording

PANE_PX = 280
TELL_AFTER_MS = 400  # of quiet while the prompt is typed
MAX_TOKENS = 1_000_000
MAX_SEED = 2**31 - 1
PROMPT_CHARACTERS = 20_000


class ChatSettings(QFrame):
    """The pane on the right.

    Attributes:
        prompt_changed: Carries the system prompt.
        sampling_changed: Carries the ``Sampling``.
        closed: A person wants it gone.
    """

    prompt_changed = Signal(str)
    sampling_changed = Signal(object)
    closed = Signal()

    def __init__(self, look: Look, wording: Wording, parent: QWidget) -> None:
        """Begin with what holds for every chat.

        Args:
            look: Theme and sizes.
            wording: Of everything.
            parent: Owns it.
        """
        super().__init__(parent)
        self.setObjectName("chatSettings")
        self._look = look
        self._wording = wording
        self._sampling = Sampling()
        self._is_filling = False
        self._title = QLabel(self)
        self._close = QToolButton(self)
        self._close.setObjectName("quietButton")
        self._prompt_label = QLabel(self)
        self.prompt = QPlainTextEdit(self)
        self.prompt.setTabChangesFocus(True)
        self.temperature = _dial(self, 0.0, 2.0, 0.1)
        self.top_p = _dial(self, 0.01, 1.0, 0.05)
        self.max_tokens = _count(self, MAX_TOKENS, 64)
        self.seed = _count(self, MAX_SEED, 1)
        self._reset = QPushButton(self)
        self._labels = {name: QLabel(self) for name in _FIELDS}
        self._soon = QTimer(self)
        self._soon.setSingleShot(True)
        self._soon.timeout.connect(self._tell_prompt)
        self._lay_out()
        self._connect()
        self.redress()

    def _lay_out(self) -> None:
        head = QHBoxLayout()
        head.addWidget(self._title, 1)
        head.addWidget(self._close)
        form = self._form = QFormLayout()
        form.setFieldGrowthPolicy(QFormLayout.FieldGrowthPolicy.AllNonFixedFieldsGrow)
        for name, label in self._labels.items():
            field = getattr(self, name)
            label.setBuddy(field)
            form.addRow(label, field)
        layout = QVBoxLayout(self)
        layout.addLayout(head)
        layout.addWidget(self._prompt_label)
        layout.addWidget(self.prompt, 1)
        layout.addLayout(form)
        layout.addWidget(self._reset, 0, Qt.AlignmentFlag.AlignRight)
        layout.addStretch(1)
        self._prompt_label.setBuddy(self.prompt)

    def _connect(self) -> None:
        self._close.clicked.connect(self.closed)
        self._reset.clicked.connect(self._on_reset)
        self.prompt.textChanged.connect(self._on_prompt)
        for name in _FIELDS:
            getattr(self, name).valueChanged.connect(self._on_dial)
        self._wording.changed.connect(self.retell)
        self._look.changed.connect(self.redress)

    def show_chat(self, chat: Chat) -> None:
        """Show a chat's settings.

        Args:
            chat: Which.
        """
        self._soon.stop()
        self._fill(chat.system_prompt, chat.sampling)

    def _fill(self, system_prompt: str, sampling: Sampling) -> None:
        self._is_filling = True
        self._sampling = sampling
        self.prompt.setPlainText(system_prompt)
        self.temperature.setValue(sampling.temperature)
        self.top_p.setValue(sampling.top_p)
        self.max_tokens.setValue(sampling.max_tokens or 0)
        self.seed.setValue(-1 if sampling.seed is None else min(sampling.seed, MAX_SEED))
        self._is_filling = False

    def flush(self) -> None:
        """Tell now what was typed last."""
        if self._soon.isActive():
            self._soon.stop()
            self._tell_prompt()

    def _on_prompt(self) -> None:
        if not self._is_filling:
            self._soon.start(TELL_AFTER_MS)

    def _tell_prompt(self) -> None:
        self.prompt_changed.emit(self.prompt.toPlainText()[:PROMPT_CHARACTERS])

    def _on_dial(self) -> None:
        if self._is_filling:
            return
        seed = self.seed.value()
        self._sampling = replace(
            self._sampling,
            temperature=round(self.temperature.value(), 2),
            top_p=round(self.top_p.value(), 2),
            max_tokens=self.max_tokens.value() or None,
            seed=None if seed < 0 else seed,
        )
        self.sampling_changed.emit(self._sampling)

    def _on_reset(self) -> None:
        self._soon.stop()
        self._fill("", Sampling())
        self._tell_prompt()
        self.sampling_changed.emit(self._sampling)

    def retell(self) -> None:
        """Say everything in the language that is chosen."""
        text = self._wording.text
        self._title.setText(text("chat.settings"))
        self._close.setAccessibleName(text("chat.close"))
        self._prompt_label.setText(text("chat.system_prompt"))
        self.prompt.setPlaceholderText(text("chat.system_prompt_hint"))
        self.prompt.setAccessibleName(text("chat.system_prompt"))
        for name, label in self._labels.items():
            label.setText(text(f"chat.{name}"))
            getattr(self, name).setAccessibleName(text(f"chat.{name}"))
        self.temperature.setToolTip(text("chat.temperature_hint"))
        self.top_p.setToolTip(text("chat.top_p_hint"))
        self.max_tokens.setSpecialValueText(text("chat.max_tokens_none"))
        self.seed.setSpecialValueText(text("chat.seed_none"))
        self._reset.setText(text("chat.reset"))

    def redress(self) -> None:
        """Take over theme and scale."""
        look = self._look
        self.setFixedWidth(look.px(PANE_PX))
        self.layout().setContentsMargins(*map(look.space, (4, 3, 3, 3)))
        self.layout().setSpacing(look.space(2))
        self._form.setVerticalSpacing(look.space(2))
        self._form.setHorizontalSpacing(look.space(3))
        self._title.setFont(look.font("lead", bold=True))
        self._close.setIcon(look.icon("close", "quiet"))
        side = look.px(16)
        self._close.setIconSize(QSize(side, side))
        for widget in (self.prompt, self._prompt_label, self._reset, *self._labels.values()):
            widget.setFont(look.font())
        for name in _FIELDS:
            box = getattr(self, name)
            box.setFont(look.font())
            box.lineEdit().setTextMargins(look.space(1), 0, look.space(1), 0)
        self.retell()


_FIELDS = ("temperature", "top_p", "max_tokens", "seed")


def _dial(parent: QWidget, least: float, most: float, step: float) -> QDoubleSpinBox:
    box = QDoubleSpinBox(parent)
    box.setRange(least, most)
    box.setSingleStep(step)
    box.setDecimals(2)
    return box


def _count(parent: QWidget, most: int, step: int) -> QSpinBox:
    box = QSpinBox(parent)
    box.setRange(-1 if step == 1 else 0, most)
    box.setSingleStep(step)
    return box

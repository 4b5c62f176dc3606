"""One PC of the pool: what it is called, whether it is there, and what can be done about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QVBoxLayout, QWidget

from app.parts.action import Action
from app.parts.text import Text
from app.safe_text import one_line, without_unseen

if TYPE_CHECKING:
    from PySide6.QtGui import QKeyEvent

    from app.look.look import Look
    from app.wording.wording import Wording
    from engine.messages.roster_control import PcLine

LONGEST_NAME = 63
State = Literal["shown", "renaming", "asking"]


class PcRow(QWidget):
    """A row.

    Attributes:
        renamed: Carries the new name.
        removed: It is to be removed, and that was confirmed; of this PC: it is to leave.
    """

    renamed = Signal(str)
    removed = Signal()

    def __init__(
        self, look: Look, wording: Wording, pc: PcLine, parent: QWidget | None = None
    ) -> None:
        """Begin with what is known.

        Args:
            look: Followed.
            wording: Words.
            pc: Which.
            parent: Owns it.
        """
        super().__init__(parent)
        self._wording = wording
        self._pc = pc
        self._may_change = False
        self._state: State = "shown"
        self.name = Text(look, bold=True)
        self.facts = Text(look, "small", "quiet")
        self.rename = Action(look, "quiet")
        self.remove = Action(look, "quiet")
        self.field = QLineEdit()
        self.field.setMaxLength(LONGEST_NAME)
        self.save = Action(look, "chief")
        self.question = Text(look)
        self.confirm = Action(look, "chief")
        self.cancel = Action(look)
        self._build()
        self.rename.clicked.connect(lambda: self._become("renaming"))
        self.remove.clicked.connect(lambda: self._become("asking"))
        self.cancel.clicked.connect(lambda: self._become("shown"))
        self.save.clicked.connect(self._on_save)
        self.field.returnPressed.connect(self._on_save)
        self.confirm.clicked.connect(self._on_confirm)
        wording.changed.connect(self.say)
        look.changed.connect(self.say)
        self.say()

    def _build(self) -> None:
        facts = QVBoxLayout()
        facts.setSpacing(0)
        facts.addWidget(self.name)
        facts.addWidget(self.facts)
        first = QHBoxLayout()
        first.addLayout(facts, 1)
        for part in (self.rename, self.remove):
            first.addWidget(part)
        second = QHBoxLayout()
        second.addWidget(self.field, 1)
        for part in (self.save, self.confirm, self.cancel):
            second.addWidget(part)
        second.addStretch(0)
        rows = QVBoxLayout(self)
        rows.setContentsMargins(0, 0, 0, 0)
        rows.addLayout(first)
        rows.addWidget(self.question)
        rows.addLayout(second)

    def show_pc(self, pc: PcLine, *, may_change: bool, is_alone: bool) -> None:
        """Show what is known now; what a person is writing stays.

        Args:
            pc: The same PC.
            may_change: This PC is an owner of the pool.
            is_alone: Nobody else is in it: there is nothing to leave.
        """
        self._pc, self._may_change = pc, may_change
        self.rename.setEnabled(may_change)
        self.remove.setVisible(not is_alone if pc.is_own else may_change)
        self.say()

    def say(self) -> None:
        """Set every word, and show what holds."""
        say, name = self._wording.text, one_line(self._pc.name, 60)
        own = "own" if self._pc.is_own else "other"
        self.name.setText(name)
        here = "own" if self._pc.is_own else "online" if self._pc.is_online else "offline"
        self.facts.setText(f"{say(f'devices.pc_{here}')} · {say(f'devices.role_{self._pc.role}')}")
        self.rename.say(say("devices.rename"), say("devices.rename_hint"))
        self.rename.setAccessibleName(say("devices.rename_name", pc=name))
        self.remove.say(say(f"devices.remove_{own}"))
        self._align()
        self.remove.setAccessibleName(say(f"devices.remove_{own}_name", pc=name))
        self.field.setAccessibleName(say("devices.new_name", pc=name))
        self.question.setText(say(f"devices.ask_{own}", pc=name))
        self.save.say(say("devices.save"))
        self.confirm.say(say(f"devices.confirm_{own}"))
        self.cancel.say(say("devices.cancel"))
        self._show_state()

    def _align(self) -> None:
        """Give the last button the room of either word, so that rows stand below each other."""
        advance = self.remove.fontMetrics().horizontalAdvance
        words = [self._wording.text(f"devices.remove_{own}") for own in ("own", "other")]
        self.remove.setMinimumWidth(0)
        missing = max(map(advance, words)) - advance(self.remove.text())
        self.remove.setMinimumWidth(self.remove.sizeHint().width() + missing)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Let Esc end writing and asking."""
        if event.key() == Qt.Key.Key_Escape and self._state != "shown":
            self._become("shown")
        else:
            super().keyPressEvent(event)

    def _become(self, state: State) -> None:
        before, self._state = self._state, state
        self._show_state()
        if state == "renaming":
            self.field.setText(self._pc.name)
            self.field.selectAll()
            self.field.setFocus()
        elif state == "asking":
            self.cancel.setFocus()  # what can't be undone is never where the key is already
        else:
            (self.rename if before == "renaming" else self.remove).setFocus()

    def _show_state(self) -> None:
        is_shown, is_asking = self._state == "shown", self._state == "asking"
        for part in (self.field, self.save):
            part.setVisible(self._state == "renaming")
        self.question.setVisible(is_asking)
        self.confirm.setVisible(is_asking)
        self.cancel.setVisible(not is_shown)

    def _on_save(self) -> None:
        name = " ".join(without_unseen(self.field.text()).split())
        if name and name != self._pc.name:
            self.renamed.emit(name)
        self._become("shown")

    def _on_confirm(self) -> None:
        self._become("shown")
        self.removed.emit()

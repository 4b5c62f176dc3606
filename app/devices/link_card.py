"""Letting another PC in by a link, which is text to copy: for PCs without a screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QWidget

from app.devices.refusal import Refusal
from app.parts.action import Action
from app.parts.card import Card
from app.parts.text import Text
from app.safe_text import one_line
from engine.messages.limits import MAX_LINK_LENGTH

if TYPE_CHECKING:
    from app.bridge.problem import Problem
    from app.devices.pairing import Pairing
    from app.look.look import Look
    from app.wording.wording import Wording


class LinkCard(Card):
    """The link."""

    def __init__(
        self, look: Look, wording: Wording, pairing: Pairing, parent: QWidget | None = None
    ) -> None:
        """Begin without a link.

        Args:
            look: Followed.
            wording: Words.
            pairing: Asked.
            parent: Owns it.
        """
        super().__init__(look, parent)
        self._wording = wording
        self._num_waiting = 0
        self._pc = ""  # that came by a link last
        self._is_copied = False
        self._heading = Text(look, "lead", bold=True)
        self._hint = Text(look, "small", "quiet")
        self.link = QLineEdit()
        self.link.setReadOnly(True)
        self.link.hide()
        self.waiting = Text(look, "small", "quiet")
        self.used = Text(look)
        self.refusal = Refusal(look, wording)
        self.make = Action(look)
        self.copy = Action(look, "plain", "copy")
        self.copy.hide()
        self.withdraw = Action(look)
        buttons = QHBoxLayout()
        for button in (self.copy, self.make, self.withdraw):
            buttons.addWidget(button)
        buttons.addStretch(1)
        parts = (self._heading, self._hint, self.link, self.waiting, self.used, self.refusal)
        for part in parts:
            self.rows.addWidget(part)
        self.rows.addLayout(buttons)
        self.rows.setAlignment(Qt.AlignmentFlag.AlignTop)
        self._connect(pairing)
        self.say()

    def _connect(self, pairing: Pairing) -> None:
        self.make.clicked.connect(pairing.make_link)
        self.withdraw.clicked.connect(pairing.withdraw_links)
        self.copy.clicked.connect(self._on_copy)
        pairing.link_made.connect(self._on_link)
        pairing.links_changed.connect(self._on_waiting)
        pairing.link_used.connect(self._on_used)
        pairing.refused.connect(self._on_refused)
        self._wording.changed.connect(self.say)

    def forget(self) -> None:
        """Show the link no longer: it is a secret."""
        self.link.clear()
        self.link.hide()
        self.copy.hide()

    def say(self) -> None:
        """Set every word."""
        say = self._wording.text
        self._heading.setText(say("devices.link_heading"))
        self._hint.setText(say("devices.link_hint"))
        self.make.say(say("devices.make_link"))
        self.copy.say(say("devices.copied" if self._is_copied else "devices.copy_link"))
        self.withdraw.say(say("devices.withdraw_links"))
        self.link.setAccessibleName(say("devices.link_name"))
        self.waiting.setText(say("devices.links_waiting", n=self._num_waiting))
        self.used.setText(say("devices.joined", pc=self._pc))
        self.waiting.setVisible(self._num_waiting > 0)
        self.withdraw.setVisible(self._num_waiting > 0)
        self.used.setVisible(bool(self._pc))

    def _on_link(self, link: str) -> None:
        self.link.setText(one_line(link, MAX_LINK_LENGTH))
        self.link.setCursorPosition(0)
        self.link.show()
        self.copy.show()
        self.refusal.forget()
        self._is_copied, self._pc = False, ""
        self.say()

    def _on_waiting(self, num: int) -> None:
        self._num_waiting = num
        if num == 0:
            self.forget()
        self.say()

    def _on_used(self, pc: str) -> None:
        self._pc = one_line(pc, 40)
        self.say()

    def _on_refused(self, asked: str, problem: Problem) -> None:
        if asked == "link":
            self.refusal.refuse(problem)

    def _on_copy(self) -> None:
        QGuiApplication.clipboard().setText(self.link.text())
        self._is_copied = True
        self.say()

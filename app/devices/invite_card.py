"""Letting another PC in: a code with its countdown, and a link for PCs without a screen."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, QTimer
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QWidget

from app.devices.code import shown_code, time_left
from app.parts.action import Action
from app.parts.bar import Bar
from app.parts.card import Card
from app.parts.text import Text
from app.safe_text import one_line

if TYPE_CHECKING:
    from app.devices.pairing import Invitation, Pairing
    from app.look.look import Look
    from app.wording.wording import Wording

_TICK_MS = 250


class InviteCard(Card):
    """The code."""

    def __init__(
        self, look: Look, wording: Wording, pairing: Pairing, parent: QWidget | None = None
    ) -> None:
        """Begin without a code.

        Args:
            look: Followed.
            wording: Words.
            pairing: Asked.
            parent: Owns it.
        """
        super().__init__(look, parent)
        self._wording = wording
        self._pairing = pairing
        self._code = ""
        self._until_s = self._lasts_s = 0.0
        self._ending = ""  # key of what became of the last code
        self._values: dict[str, object] = {}
        self._heading = Text(look, "lead", bold=True)
        self._hint = Text(look, "small", "quiet")
        self.code = Text(look, "display", bold=True).selectable()
        self.left = Text(look, "small", "quiet")
        self._bar = Bar(look)
        self.ended = Text(look)
        self.show_code = Action(look, "chief")
        self.hide_code = Action(look)
        buttons = QHBoxLayout()
        buttons.addWidget(self.show_code)
        buttons.addWidget(self.hide_code)
        buttons.addStretch(1)
        for part in (self._heading, self._hint, self.code, self._bar, self.left, self.ended):
            self.rows.addWidget(part)
        self.rows.addLayout(buttons)
        self._tick = QTimer(self)
        self._tick.setInterval(_TICK_MS)
        self._tick.timeout.connect(self._count)
        self.show_code.clicked.connect(pairing.invite)
        self.hide_code.clicked.connect(pairing.withdraw)
        pairing.invited.connect(self._on_invited)
        pairing.invitation_ended.connect(lambda how: self._end(f"code_{how}"))
        pairing.let_in.connect(lambda name: self._end("joined", pc=one_line(name, 40)))
        wording.changed.connect(self.say)
        self.say()

    @property
    def is_open(self) -> bool:
        """Whether a code is valid."""
        return bool(self._code)

    def say(self) -> None:
        """Set every word, and show what holds."""
        say = self._wording.text
        self._heading.setText(say("devices.invite_heading"))
        self._hint.setText(say("devices.invite_hint"))
        again = "new_code" if self._ending else "show_code"
        self.show_code.say(say(f"devices.{again}"))
        self.hide_code.say(say("devices.hide_code"))
        self.code.setText(shown_code(self._code))
        self.code.setAccessibleName(say("devices.code_name", code=" ".join(self._code)))
        for part in (self.code, self._bar, self.left, self.hide_code):
            part.setVisible(self.is_open)
        self.show_code.setVisible(not self.is_open)
        self.ended.setVisible(bool(self._ending) and not self.is_open)
        if self._ending:
            self.ended.setText(say(f"devices.{self._ending}", **self._values))
        self._count()

    def _on_invited(self, invitation: Invitation) -> None:
        self._code, self._lasts_s = invitation.code, max(0.1, invitation.lasts_s)
        self._until_s = time.monotonic() + invitation.lasts_s
        self._ending = ""
        self._tick.start()
        self.say()

    def _end(self, key: str, **values: object) -> None:
        self._code, self._ending, self._values = "", key, values
        self._tick.stop()
        self.say()

    def _count(self) -> None:
        if not self.is_open:
            return
        now_s = time.monotonic()
        left = time_left(self._until_s, now_s)
        if left is None:
            self._end("code_expired")  # whatever the node says: nobody should type it any more
            return
        self._bar.show_share((self._until_s - now_s) / self._lasts_s)
        self.left.setText(self._wording.text("devices.left", time=left))


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
        self._heading = Text(look, "lead", bold=True)
        self._hint = Text(look, "small", "quiet")
        self.link = QLineEdit()
        self.link.setReadOnly(True)
        self.link.hide()
        self.make = Action(look)
        self.copy = Action(look, "plain", "copy")
        self.copy.hide()
        buttons = QHBoxLayout()
        buttons.addWidget(self.make)
        buttons.addWidget(self.copy)
        buttons.addStretch(1)
        for part in (self._heading, self._hint, self.link):
            self.rows.addWidget(part)
        self.rows.addLayout(buttons)
        self.rows.setAlignment(Qt.AlignmentFlag.AlignTop)
        self.make.clicked.connect(pairing.make_link)
        self.copy.clicked.connect(self._on_copy)
        pairing.link_made.connect(self._on_link)
        wording.changed.connect(self.say)
        self.say()

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
        self.copy.say(say("devices.copy_link"))
        self.link.setAccessibleName(say("devices.link_name"))

    def _on_link(self, link: str) -> None:
        self.link.setText(one_line(link, 1024))
        self.link.setCursorPosition(0)
        self.link.show()
        self.copy.show()

    def _on_copy(self) -> None:
        QGuiApplication.clipboard().setText(self.link.text())
        self.copy.say(self._wording.text("devices.copied"))

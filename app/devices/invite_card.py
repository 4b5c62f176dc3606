"""Letting another PC in by a code: shown with its countdown, and what became of it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QHBoxLayout, QWidget

from app.devices.code import shown_code, time_left
from app.devices.refusal import Refusal
from app.parts.action import Action
from app.parts.bar import Bar
from app.parts.card import Card
from app.parts.text import Text
from app.safe_text import one_line

if TYPE_CHECKING:
    from app.bridge.problem import Problem
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
        self._invitation: Invitation | None = None
        self._until_s = 0.0
        self._ending = ""  # key of what became of the last code
        self._pc = ""  # that typed it
        self._heading = Text(look, "lead", bold=True)
        self._hint = Text(look, "small", "quiet")
        self.code = Text(look, "display", bold=True).selectable()
        self.left = Text(look, "small", "quiet")
        self._bar = Bar(look)
        self.address = Text(look, "small", "quiet").selectable()
        self.ended = Text(look)
        self.refusal = Refusal(look, wording)
        self.show_code = Action(look, "chief")
        self.hide_code = Action(look)
        buttons = QHBoxLayout()
        buttons.addWidget(self.show_code)
        buttons.addWidget(self.hide_code)
        buttons.addStretch(1)
        shown = (self.code, self._bar, self.left, self.address)
        for part in (self._heading, self._hint, *shown, self.ended, self.refusal):
            self.rows.addWidget(part)
        self.rows.addLayout(buttons)
        self._tick = QTimer(self, interval=_TICK_MS)
        self._tick.timeout.connect(self._count)
        self._connect(pairing)
        self.say()

    def _connect(self, pairing: Pairing) -> None:
        self.show_code.clicked.connect(pairing.invite)
        self.hide_code.clicked.connect(pairing.withdraw)
        pairing.invited.connect(self._on_invited)
        pairing.invitation_ended.connect(self._on_ended)
        pairing.refused.connect(self._on_refused)
        self._wording.changed.connect(self.say)

    @property
    def is_open(self) -> bool:
        """Whether a code is valid."""
        return self._invitation is not None

    def say(self) -> None:
        """Set every word, and show what holds."""
        say = self._wording.text
        code = "" if self._invitation is None else self._invitation.code
        address = "" if self._invitation is None else one_line(self._invitation.address, 80)
        self._heading.setText(say("devices.invite_heading"))
        self._hint.setText(say("devices.invite_hint"))
        again = "new_code" if self._ending else "show_code"
        self.show_code.say(say(f"devices.{again}"))
        self.hide_code.say(say("devices.hide_code"))
        self.code.setText(shown_code(code))
        self.code.setAccessibleName(say("devices.code_name", code=" ".join(code)))
        self.address.setText(say("devices.own_address", address=address))
        for part in (self.code, self._bar, self.left, self.hide_code):
            part.setVisible(self.is_open)
        self.address.setVisible(bool(address))
        self.show_code.setVisible(not self.is_open)
        self.ended.setVisible(bool(self._ending) and not self.is_open)
        if self._ending:
            self.ended.setText(say(f"devices.{self._ending}", pc=self._pc))
        self._count()

    def _on_invited(self, invitation: Invitation) -> None:
        had_focus = self.show_code.hasFocus()
        self._invitation = invitation
        self._until_s = time.monotonic() + invitation.lasts_s
        self._ending = ""
        self.refusal.forget()
        self._tick.start()
        self.say()
        if had_focus:
            self.hide_code.setFocus()

    def _on_ended(self, how: str, pc: str) -> None:
        if not self.is_open and self._ending:
            return  # it has been said
        self._pc = one_line(pc, 40)
        self._end("joined" if how == "used" and pc else f"code_{how}")

    def _on_refused(self, asked: str, problem: Problem) -> None:
        if asked == "invite":
            self.refusal.refuse(problem)

    def _end(self, key: str) -> None:
        had_focus = self.hide_code.hasFocus()
        self._invitation, self._ending = None, key
        self._tick.stop()
        self.say()
        if had_focus:
            self.show_code.setFocus()

    def _count(self) -> None:
        if self._invitation is None:
            return
        now_s = time.monotonic()
        left = time_left(self._until_s, now_s)
        if left is None:
            self._end("code_expired")  # whatever the node says: nobody should type it any more
            return
        self._bar.show_share((self._until_s - now_s) / max(0.1, self._invitation.lasts_s))
        self.left.setText(self._wording.text("devices.left", time=left))

"""The page that adds PCs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtWidgets import QVBoxLayout

from app.devices.invite_card import InviteCard, LinkCard
from app.devices.join_card import JoinCard
from app.devices.pairing import UNAVAILABLE, Pairing
from app.page import Page
from app.parts.column import Column
from app.parts.fields import field_sheet
from app.parts.notice import Notice
from app.parts.text import Text
from app.wording.problems import problem_words

if TYPE_CHECKING:
    from PySide6.QtWidgets import QWidget

    from app.bridge.problem import Problem
    from app.surroundings import Surroundings


class DevicesPage(Page):
    """Add a PC."""

    title_key = "devices.title"
    icon_name = "devices"

    def __init__(
        self,
        surroundings: Surroundings,
        parent: QWidget | None = None,
        pairing: Pairing | None = None,
    ) -> None:
        """Build it, unseen.

        Args:
            surroundings: What pages share.
            parent: Owns it.
            pairing: What is asked; None for what this version's node knows.
        """
        super().__init__(surroundings, parent)
        look, wording = surroundings.look, surroundings.wording
        self._pairing = pairing or Pairing(self)
        self._problem: Problem | None = None
        self._heading = Text(look, "title", bold=True)
        self._intro = Text(look, "body", "quiet")
        self.notice = Notice(look)
        self.invite = InviteCard(look, wording, self._pairing)
        self.link = LinkCard(look, wording, self._pairing)
        self.join = JoinCard(look, wording, self._pairing)
        column = Column(look, 640)
        for part in (self._heading, self._intro, self.notice):
            column.add(part)
        for card in (self.invite, self.link, self.join):
            column.add(card, gap=2)
        column.rows.addStretch(1)
        whole = QVBoxLayout(self)
        whole.setContentsMargins(0, 0, 0, 0)
        whole.addWidget(column)
        self._pairing.refused.connect(self._on_refused)
        self.notice.acted.connect(lambda: surroundings.navigation.go("pool"))
        wording.changed.connect(self._say)
        look.changed.connect(self._dress)
        self._dress()
        self._say()

    def shown(self) -> None:
        """Look for pools nearby."""
        self._pairing.look_around()

    def hidden(self) -> None:
        """Put away what is secret; a code that is open stays so until its time is over."""
        self.link.forget()

    def _on_refused(self, problem: Problem) -> None:
        self._problem = problem
        if problem.code == UNAVAILABLE:
            self.join.stop_looking()
        self._say()

    def _say(self) -> None:
        say = self.surroundings.wording.text
        self._heading.setText(say("devices.heading"))
        self._intro.setText(say("devices.intro"))
        is_unavailable = self._problem is not None and self._problem.code == UNAVAILABLE
        for card in (self.invite, self.link, self.join):
            card.setVisible(not is_unavailable)
        self._intro.setVisible(not is_unavailable)
        if self._problem is None:
            return
        self.notice.name_buttons(
            say("devices.to_pool"), say("devices.details"), say("devices.close")
        )
        if is_unavailable:
            self.notice.name_buttons(say("devices.to_pool"), "", "")
            self.notice.tell(say("devices.unavailable"), say("devices.unavailable_advice"))
        else:
            words = problem_words(self._problem, self.surroundings.wording)
            self.notice.tell(words.what, words.advice, words.details)

    def _dress(self) -> None:
        self.setStyleSheet(field_sheet(self.surroundings.look))

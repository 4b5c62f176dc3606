"""The page that adds PCs, and shows those that are in the pool."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtWidgets import QVBoxLayout

from app.bridge.node_process import NodeState
from app.devices.invite_card import InviteCard
from app.devices.join_card import JoinCard
from app.devices.link_card import LinkCard
from app.devices.pairing import Pairing
from app.devices.pcs_card import PcsCard
from app.page import Page
from app.parts.column import Column
from app.parts.fields import field_sheet
from app.parts.notice import Notice
from app.parts.text import Text

if TYPE_CHECKING:
    from PySide6.QtWidgets import QWidget

    from app.surroundings import Surroundings

_AWAY = {NodeState.ABSENT, NodeState.FAILED}


class DevicesPage(Page):
    """Add a PC."""

    title_key = "devices.title"
    icon_name = "devices"

    def __init__(self, surroundings: Surroundings, parent: QWidget | None = None) -> None:
        """Build it, unseen.

        Args:
            surroundings: What pages share.
            parent: Owns it.
        """
        super().__init__(surroundings, parent)
        look, wording = surroundings.look, surroundings.wording
        self.pairing = Pairing(surroundings.data_dir, self)
        self._has_others = False
        self._is_owner = True
        self._heading = Text(look, "title", bold=True)
        self._intro = Text(look, "body", "quiet")
        self.notice = Notice(look)
        self.pcs = PcsCard(look, wording, self.pairing)
        self.limit = Text(look, "body", "quiet")  # why something can't be done here
        self.invite = InviteCard(look, wording, self.pairing)
        self.link = LinkCard(look, wording, self.pairing)
        self.join = JoinCard(look, wording, self.pairing)
        column = Column(look, 640)
        for part in (self._heading, self._intro, self.notice):
            column.add(part)
        for card in (self.invite, self.link, self.join, self.limit, self.pcs):
            column.add(card, gap=2)
        column.rows.addStretch(1)
        whole = QVBoxLayout(self)
        whole.setContentsMargins(0, 0, 0, 0)
        whole.addWidget(column)
        self.pcs.told.connect(self._on_told)
        surroundings.node.state_changed.connect(self._say)
        self.notice.acted.connect(surroundings.node.start)
        wording.changed.connect(self._say)
        look.changed.connect(self._dress)
        self._dress()
        self._say()

    def shown(self) -> None:
        """Look who is in the pool and who is near."""
        self.pairing.watch()

    def hidden(self) -> None:
        """Put away what is secret; a code that is open stays so until its time is over."""
        self.pairing.unwatch()
        self.link.forget()

    def _on_told(self, has_others: bool, is_owner: bool) -> None:
        self._has_others, self._is_owner = has_others, is_owner
        self._say()

    def _say(self) -> None:
        say = self.surroundings.wording.text
        self._heading.setText(say("devices.heading"))
        self._intro.setText(say("devices.intro"))
        for card in (self.invite, self.link):
            card.setVisible(self._is_owner)
        self.join.setVisible(not self._has_others)
        limits = [
            *(() if self._is_owner else ("limit_member",)),
            *(("limit_in_pool",) if self._has_others else ()),
        ]
        self.limit.setText("\n".join(say(f"devices.{key}") for key in limits))
        self.limit.setVisible(bool(limits))
        if self.surroundings.node.state in _AWAY:
            self.notice.name_buttons(say("devices.start_node"), "", "")
            self.notice.tell(say("devices.node_away"), "")
        else:
            self.notice.hide()

    def _dress(self) -> None:
        self.setStyleSheet(field_sheet(self.surroundings.look))

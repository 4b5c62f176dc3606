"""Who is in the pool: every PC with what can be done about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QVBoxLayout

from app.devices.pc_row import PcRow
from app.devices.refusal import Refusal
from app.parts.card import Card
from app.parts.text import Text

if TYPE_CHECKING:
    from PySide6.QtWidgets import QWidget

    from app.bridge.problem import Problem
    from app.devices.pairing import Pairing
    from app.look.look import Look
    from app.wording.wording import Wording
    from engine.domain import NodeId
    from engine.messages.roster_control import PcLine, PcsListed


class PcsCard(Card):
    """The list.

    Attributes:
        told: Carries whether others are in the pool, and whether this PC is an owner of it.
    """

    told = Signal(bool, bool)

    def __init__(
        self, look: Look, wording: Wording, pairing: Pairing, parent: QWidget | None = None
    ) -> None:
        """Begin with nobody known; hidden until somebody is.

        Args:
            look: Followed.
            wording: Words.
            pairing: Asked.
            parent: Owns it.
        """
        super().__init__(look, parent)
        self._look = look
        self._wording = wording
        self._pairing = pairing
        self.pcs: dict[NodeId, PcRow] = {}
        self._listed: PcsListed | None = None
        self._heading = Text(look, "lead", bold=True)
        self._hint = Text(look, "small", "quiet")
        self.refusal = Refusal(look, wording)
        self._list = QVBoxLayout()
        for part in (self._heading, self._hint):
            self.rows.addWidget(part)
        self.rows.addLayout(self._list)
        self.rows.addWidget(self.refusal)
        pairing.pcs_seen.connect(self._on_pcs)
        pairing.refused.connect(self._on_refused)
        wording.changed.connect(self.say)
        self.hide()
        self.say()

    @property
    def num_pcs(self) -> int:
        """In the pool, this one included; 0 before they are known."""
        return 0 if self._listed is None else len(self._listed.pcs)

    def say(self) -> None:
        """Set every word."""
        say, num = self._wording.text, self.num_pcs
        self._heading.setText(say("devices.pcs_heading", n=num))
        self._hint.setText(say("devices.pcs_alone" if num <= 1 else "devices.pcs_hint"))

    def _on_pcs(self, listed: PcsListed) -> None:
        self._listed = listed
        own = next((pc for pc in listed.pcs if pc.is_own), None)
        is_owner, is_alone = own is not None and own.role == "owner", len(listed.pcs) <= 1
        ordered = sorted(listed.pcs, key=lambda pc: (not pc.is_own, pc.name, pc.node_id))
        for node_id in set(self.pcs) - {pc.node_id for pc in ordered}:
            row = self.pcs.pop(node_id)
            self._list.removeWidget(row)
            row.deleteLater()
        for number, pc in enumerate(ordered):
            row = self.pcs.get(pc.node_id) or self._new_row(pc)
            if self._list.indexOf(row) != number:
                self._list.insertWidget(number, row)
            row.show_pc(pc, may_change=is_owner, is_alone=is_alone)
        self.say()
        self.show()
        self.told.emit(not is_alone, is_owner)

    def _new_row(self, pc: PcLine) -> PcRow:
        row = PcRow(self._look, self._wording, pc)
        self.pcs[pc.node_id] = row
        row.renamed.connect(lambda name: self._on_rename(pc.node_id, name))
        row.removed.connect(lambda: self._on_remove(pc))
        return row

    def _on_rename(self, node_id: NodeId, name: str) -> None:
        self.refusal.forget()
        self._pairing.rename(node_id, name)

    def _on_remove(self, pc: PcLine) -> None:
        self.refusal.forget()
        if pc.is_own:
            self._pairing.leave()
        else:
            self._pairing.remove(pc.node_id)

    def _on_refused(self, asked: str, problem: Problem) -> None:
        if asked == "pcs":
            self.refusal.refuse(problem)

"""Everything known of one PC: the exact figures, one click below the picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QGridLayout, QHBoxLayout, QScrollArea, QWidget

from app.parts.action import Action
from app.parts.card import Card
from app.parts.text import Text
from app.pool.words import PoolWords, layers_text, memory_text, number_text
from app.safe_text import one_line

if TYPE_CHECKING:
    from PySide6.QtGui import QKeyEvent

    from app.look.look import Look
    from app.pool.ring import PcFacts, Ring
    from app.wording.wording import Wording
    from engine.domain import NodeId


class PcDetails(Card):
    """The details of one PC, or of none.

    Attributes:
        closed: They are no longer wanted.
    """

    closed = Signal()

    def __init__(self, look: Look, wording: Wording, parent: QWidget | None = None) -> None:
        """Begin hidden.

        Args:
            look: Followed.
            wording: Words.
            parent: Owns it.
        """
        super().__init__(look, parent)
        self._look = look
        self._wording = wording
        self._words = PoolWords(wording)
        self._node_id: NodeId | None = None
        self._told: list[tuple[str, str]] = []
        self._cells: list[tuple[Text, Text]] = []
        self._name = Text(look, "lead", bold=True)
        self._close = Action(look, "quiet", "close")
        self._close.clicked.connect(self._put_away)
        top = QHBoxLayout()
        top.addWidget(self._name, 1)
        top.addWidget(self._close, 0, Qt.AlignmentFlag.AlignTop)
        self._marks = Text(look, "small", "quiet")
        facts = QWidget()
        self._grid = QGridLayout(facts)
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setColumnStretch(1, 1)
        scrolled = QScrollArea()  # at 250 % there is not room for all of it
        scrolled.setFrameShape(QFrame.Shape.NoFrame)
        scrolled.setWidgetResizable(True)
        scrolled.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        scrolled.setWidget(facts)
        self.rows.addLayout(top)
        self.rows.addWidget(self._marks)
        self.rows.addWidget(scrolled, 1)
        look.changed.connect(self._widen)
        self._widen()
        self.hide()

    @property
    def node_id(self) -> NodeId | None:
        """Whose details are shown."""
        return self._node_id

    @property
    def told(self) -> list[tuple[str, str]]:
        """What is shown: names and values."""
        return self._told

    def open_for(self, node_id: NodeId, ring: Ring) -> None:
        """Show a PC's details.

        Args:
            node_id: Of it.
            ring: The pool.
        """
        self._node_id = node_id
        self.show_ring(ring)
        if self._node_id is not None:
            self.show()

    def show_ring(self, ring: Ring) -> None:
        """Follow the pool; a PC that is no longer in it has no details.

        Args:
            ring: As it is now.
        """
        pc = None if self._node_id is None else ring.pc(self._node_id)
        if pc is None:
            if self._node_id is not None:
                self._put_away()
            return
        self._name.setText(self._words.name(pc))
        marks = self._words.marks(pc)
        self._marks.setText(" · ".join(marks))
        self._marks.setVisible(bool(marks))
        self._close.setToolTip(self._words.text("details_close"))
        self._close.setAccessibleName(self._words.text("details_close"))
        self.setAccessibleName(self._words.text("details_title"))
        self._told = [(name, value) for name, value in self._rows(pc, ring) if value]
        self._fill()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Close with Esc."""
        if event.key() == Qt.Key.Key_Escape:
            self._put_away()
        else:
            super().keyPressEvent(event)

    def _put_away(self) -> None:
        self._node_id = None
        self.hide()
        self.closed.emit()

    def _rows(self, pc: PcFacts, ring: Ring) -> list[tuple[str, str]]:
        words = self._words
        link = next((link for link in ring.links if link.sender == pc.node_id), None)
        rows = [
            ("role", words.role(pc)),
            ("why", words.reason(pc)),
            ("device", ", ".join(one_line(device) for device in pc.devices)),
            ("layers", self._layers(pc, ring)),
            ("stage", self._stage(pc)),
            *self._memory(pc),
            ("link", "" if link is None else words.link(link)),
            ("connection", words.text(f"link_{pc.link_kind}") if pc.link_kind in _KINDS else ""),
            ("power", words.text("power_battery" if pc.on_battery else "power_mains")),
            ("answers", str(pc.active_requests) if pc.active_requests else ""),
            ("address", ", ".join(pc.addresses)),
            ("heard", self._heard(pc)),
            ("id", pc.node_id),
            ("notes", words.text("list_comma").join(words.notes(pc))),
        ]
        return [(words.text(f"detail_{name}"), value) for name, value in rows]

    def _layers(self, pc: PcFacts, ring: Ring) -> str:
        if not pc.layers:
            return ""
        shown = layers_text(pc.layers)
        return self._words.text("detail_layers_value", layers=shown, num_layers=ring.num_layers)

    def _stage(self, pc: PcFacts) -> str:
        if pc.stage_ms is None or pc.layer_ms is None:
            return ""
        return self._words.text(
            "detail_stage_value", ms=number_text(pc.stage_ms), layer_ms=f"{pc.layer_ms:.2f}"
        )

    def _memory(self, pc: PcFacts) -> list[tuple[str, str]]:
        memory = pc.memory
        if memory is None:
            return []
        parts = {
            "memory_total": memory.total,
            "memory_system": memory.system,
            "memory_used": memory.used,
            "memory_lendable": memory.lendable,
            "memory_kept": memory.kept,
            "memory_needed": pc.needed_bytes,
        }
        return [(name, memory_text(num)) for name, num in parts.items() if num]

    def _heard(self, pc: PcFacts) -> str:
        if pc.is_here or pc.state == "gone":
            return ""
        return self._words.text("detail_heard_value", seconds=f"{max(0.0, pc.heard_ago_s):.0f}")

    def _fill(self) -> None:
        """Put the rows into the grid; labels are kept from one second to the next."""
        while len(self._cells) < len(self._told):
            row = len(self._cells)
            pair = Text(self._look, "small", "quiet"), Text(self._look, "small").selectable()
            self._cells.append(pair)
            for column, label in enumerate(pair):
                self._grid.addWidget(label, row, column, Qt.AlignmentFlag.AlignTop)
        for number, pair in enumerate(self._cells):
            is_used = number < len(self._told)
            for label, text in zip(pair, self._told[number] if is_used else ("", ""), strict=True):
                if label.text() != text:
                    label.setText(text)
                label.setVisible(is_used)
        self._grid.setRowStretch(len(self._cells), 1)

    def _widen(self) -> None:
        self.setFixedWidth(self._look.px(288))
        self._grid.setHorizontalSpacing(self._look.space(3))
        self._grid.setVerticalSpacing(self._look.space(1.5))


_KINDS = frozenset({"wired", "wireless"})

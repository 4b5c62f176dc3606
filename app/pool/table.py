"""The pool as a table: the facts of the picture, for screen readers and for those who count."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QPersistentModelIndex, Qt, Signal
from PySide6.QtWidgets import QAbstractItemView, QHeaderView, QTableView, QWidget

from app.pool.ring import Ring
from app.pool.words import PoolWords, layers_text, memory_text, number_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from app.look.look import Look
    from app.pool.memory_parts import MemoryParts
    from app.pool.ring import PcFacts
    from app.wording.wording import Wording

    Index = QModelIndex | QPersistentModelIndex

_COLUMNS = (
    "pc",
    "state",
    "device",
    "layers",
    "system",
    "lent",
    "used",
    "free",
    "ms",
    "link",
    "notes",
)
_NUMBERS = frozenset({"layers", "system", "lent", "used", "free", "ms"})
_ROOT = QModelIndex()


class PoolTableModel(QAbstractTableModel):
    """One row for each PC: those of the ring in its order, then the others."""

    def __init__(self, wording: Wording, parent: QWidget | None = None) -> None:
        """Begin with an empty pool.

        Args:
            wording: Words.
            parent: Owns it.
        """
        super().__init__(parent)
        self._words = PoolWords(wording)
        self._ring = Ring()
        wording.changed.connect(self._say_again)

    def show_ring(self, ring: Ring) -> None:
        """Show a pool; rows stay selected while the same PCs are in it.

        Args:
            ring: As it is now.
        """
        same = [pc.node_id for pc in ring.pcs] == [pc.node_id for pc in self._ring.pcs]
        if not same:
            self.beginResetModel()
        self._ring = ring
        if not same:
            self.endResetModel()
        elif ring.pcs:
            last = self.index(len(ring.pcs) - 1, len(_COLUMNS) - 1)
            self.dataChanged.emit(self.index(0, 0), last)

    def node_id(self, row: int) -> str:
        """Return the id of a row's PC.

        Args:
            row: Of it.
        """
        return self._ring.pcs[row].node_id

    def rowCount(self, parent: Index = _ROOT) -> int:
        """Return how many PCs there are."""
        return 0 if parent.isValid() else len(self._ring.pcs)

    def columnCount(self, parent: Index = _ROOT) -> int:
        """Return how many facts each has."""
        return 0 if parent.isValid() else len(_COLUMNS)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:  # noqa: ANN401
        """Return a fact in words, its alignment, or the whole row as one sentence."""
        if not index.isValid() or index.row() >= len(self._ring.pcs):
            return None
        pc, column = self._ring.pcs[index.row()], _COLUMNS[index.column()]
        if role in {Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.AccessibleTextRole}:
            return self._cell(pc, column)
        if role in {Qt.ItemDataRole.ToolTipRole, Qt.ItemDataRole.AccessibleDescriptionRole}:
            return self._words.sentence(pc)
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return _side_of(column)
        return None

    def headerData(
        self,
        section: int,
        orientation: Qt.Orientation,
        role: int = Qt.ItemDataRole.DisplayRole,
    ) -> Any:  # noqa: ANN401
        """Return a column's name, which stands where its cells stand."""
        if role == Qt.ItemDataRole.TextAlignmentRole and orientation == Qt.Orientation.Horizontal:
            return _side_of(_COLUMNS[section])
        if role != Qt.ItemDataRole.DisplayRole:
            return None
        if orientation == Qt.Orientation.Vertical:
            return str(section + 1)
        return self._words.text(f"column_{_COLUMNS[section]}")

    def _cell(self, pc: PcFacts, column: str) -> str:
        told: dict[str, Callable[[], str]] = {
            "pc": lambda: self._words.name(pc),
            "state": lambda: self._words.role(pc),
            "device": lambda: ", ".join(pc.devices),
            "layers": lambda: layers_text(pc.layers),
            "ms": lambda: "" if pc.stage_ms is None else number_text(pc.stage_ms),
            "link": lambda: self._link(pc),
            "notes": lambda: self._notes(pc),
        }
        if column in told:
            return told[column]()
        return "" if pc.memory is None else memory_text(_part(pc.memory, column))

    def _link(self, pc: PcFacts) -> str:
        return next((self._words.link(n) for n in self._ring.links if n.sender == pc.node_id), "")

    def _notes(self, pc: PcFacts) -> str:
        reason = self._words.reason(pc) if pc.role != "stage" else ""
        parts = [*self._words.marks(pc), *([reason] if reason else []), *self._words.notes(pc)]
        return self._words.text("list_comma").join(parts)

    def _say_again(self) -> None:
        self.headerDataChanged.emit(Qt.Orientation.Horizontal, 0, len(_COLUMNS) - 1)
        self.show_ring(self._ring)


def _side_of(column: str) -> int:
    side = Qt.AlignmentFlag.AlignRight if column in _NUMBERS else Qt.AlignmentFlag.AlignLeft
    return int(side | Qt.AlignmentFlag.AlignVCenter)


def _part(memory: MemoryParts, column: str) -> int:
    return {
        "system": memory.system,
        "lent": memory.lent,
        "used": memory.used,
        "free": memory.free,
    }[column]


class PoolTable(QTableView):
    """The table.

    Attributes:
        chosen: Carries the id of the PC whose details are wanted.
    """

    chosen = Signal(str)

    def __init__(self, look: Look, wording: Wording, parent: QWidget | None = None) -> None:
        """Begin with an empty pool.

        Args:
            look: Followed.
            wording: Words.
            parent: Owns it.
        """
        super().__init__(parent)
        self._look = look
        self._wording = wording
        self.facts = PoolTableModel(wording, self)
        self.setModel(self.facts)
        self.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setShowGrid(False)
        self.setTabKeyNavigation(False)
        self.verticalHeader().hide()
        self.horizontalHeader().setHighlightSections(False)
        self.horizontalHeader().setStretchLastSection(True)
        self.horizontalHeader().setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        self.activated.connect(self._on_activated)
        self.clicked.connect(self._on_activated)
        look.changed.connect(self._dress)
        wording.changed.connect(self._dress)
        self._dress()

    def _on_activated(self, index: QModelIndex) -> None:
        self.chosen.emit(self.facts.node_id(index.row()))

    def _dress(self) -> None:
        look = self._look
        self.setFont(look.font("small"))
        self.horizontalHeader().setFont(look.font("small", bold=True))
        self.verticalHeader().setDefaultSectionSize(look.px(30))
        self.setAccessibleName(self._wording.text("pool.table_name"))
        colours = {
            name: look.colour(name).name()
            for name in ("paper", "surface", "raised", "line", "ink", "quiet", "link")
        }
        self.setStyleSheet(_SHEET.format(pad=look.space(2), size=look.px(12), **colours))


_SHEET = (
    "QTableView {{ font-size: {size}px; background: {surface}; color: {ink};"
    " border: 1px solid {line};"
    " selection-background-color: {raised}; selection-color: {ink}; }} "
    "QTableView:focus {{ border: 1px solid {link}; }} "
    "QTableView::item {{ padding: 0 {pad}px; border-bottom: 1px solid {line}; }} "
    "QHeaderView::section {{ font-size: {size}px; font-weight: 600; color: {quiet};"
    " background: {paper}; border: none;"
    " border-bottom: 1px solid {line}; padding: {pad}px; }} "
    "QHeaderView, QTableCornerButton::section {{ background: {paper}; border: none; }}"
)

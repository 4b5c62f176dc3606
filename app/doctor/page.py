"""The doctor's page: what is wrong and what to do, who hears whom, adapters, devices, versions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, QTimer
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QFileDialog, QHBoxLayout, QLabel, QVBoxLayout, QWidget

from app.doctor.bundle import without_names, write_bundle
from app.doctor.trials import Trials
from app.doctor.words import DoctorWords, cell_sign
from app.page import Page
from app.parts.action import Action
from app.parts.card import Card
from app.parts.column import Column
from app.parts.grid import Grid
from app.parts.text import Text
from app.safe_text import one_line
from engine.errors import StorageError
from engine.pool.findings import findings_of, hearing_of

if TYPE_CHECKING:
    from app.look.look import Look
    from app.surroundings import Surroundings
    from engine.messages.pool_status import PoolStatus
    from engine.pool.findings import Finding

_WATCHER = "doctor page"
_COPIED_MS = 2000
_SIGNS = {"wrong": ("wrong", "alarm"), "hint": ("hint", "link"), "good": ("good", "leaf")}
_GRIDS = ("hearing", "adapters", "tried", "devices", "versions")
_LOOKING_MS = 4000  # until no answer means that there is no node


class DoctorPage(Page):
    """What is found."""

    title_key = "doctor.title"
    icon_name = "doctor"

    def __init__(self, surroundings: Surroundings, parent: QWidget | None = None) -> None:
        """Build it, unseen.

        Args:
            surroundings: What pages share.
            parent: Owns it.
        """
        super().__init__(surroundings, parent)
        look = surroundings.look
        self._words = DoctorWords(surroundings.wording)
        self._status: PoolStatus | None = None
        self._is_looking = False
        self._heading = Text(look, "title", bold=True)
        self._told = Text(look, "small", "quiet")
        self.trials = Trials(surroundings.data_dir, self)
        self.run = Action(look, "chief")
        self.copy = Action(look, "plain", "copy")
        self.save = Action(look)
        self.start = Action(look, "chief")
        self._findings: list[FindingRow] = []
        self._findings_rows = QVBoxLayout()
        self._headings = {name: Text(look, "lead", bold=True) for name in ("findings", *_GRIDS)}
        hinted = ("hearing", "tried", "devices")
        self._hints = {name: Text(look, "small", "quiet") for name in hinted}
        self.grids = {name: Grid(look) for name in _GRIDS}
        self._cards: dict[str, Card] = {}
        self._said_again = QTimer(self)
        self._said_again.setSingleShot(True)
        self._said_again.timeout.connect(self._say_buttons)
        self._patience = QTimer(self)
        self._patience.setSingleShot(True)
        self._patience.timeout.connect(self._on_late)
        self._build()
        self._connect()
        self._say()

    def shown(self) -> None:
        """Ask this PC's node."""
        self.surroundings.status.watch(_WATCHER)
        if self._status is None:
            self._is_looking = True
            self._patience.start(_LOOKING_MS)
            self._say()

    def hidden(self) -> None:
        """Ask it no longer."""
        self.surroundings.status.unwatch(_WATCHER)
        self._patience.stop()
        self.trials.stop()
        self._say_buttons()

    @property
    def sentences(self) -> list[str]:
        """What is told of each finding."""
        return [row.sentence for row in self._findings if row.is_used]

    # ---- building ----------------------------------------------------------------------------

    def _build(self) -> None:
        look = self.surroundings.look
        column = Column(look, 820)
        top = QHBoxLayout()
        top.addWidget(self._heading, 1)
        for button in (self.start, self.run, self.copy, self.save):
            top.addWidget(button)
        column.add(top)
        column.add(self._told)
        column.add(self._headings["findings"], gap=2)
        column.add(self._findings_rows)
        for name, grid in self.grids.items():
            column.add(self._headings[name], gap=4)
            card = Card(look)
            if name in self._hints:
                card.rows.addWidget(self._hints[name])
            card.rows.addWidget(grid)
            self._cards[name] = card
            column.add(card)
        column.rows.addStretch(1)
        whole = QVBoxLayout(self)
        whole.setContentsMargins(0, 0, 0, 0)
        whole.addWidget(column)

    def _connect(self) -> None:
        shared = self.surroundings
        shared.wording.changed.connect(self._say)
        shared.status.changed.connect(self._on_status)
        shared.status.silent.connect(self._on_silent)
        self.copy.clicked.connect(self._on_copy)
        self.save.clicked.connect(self._on_save)
        self.start.clicked.connect(shared.node.start)
        self.run.clicked.connect(self.trials.run)
        self.trials.changed.connect(self._say)

    # ---- what comes --------------------------------------------------------------------------

    def _on_status(self, status: PoolStatus) -> None:
        self._status = status
        self._is_looking = False
        if self.isVisible():
            self._say()

    def _on_silent(self) -> None:
        self._status = None
        self._say()

    def _on_late(self) -> None:
        self._is_looking = False
        self._say()

    def showEvent(self, event: object) -> None:
        """Show what came meanwhile."""
        super().showEvent(event)  # type: ignore[arg-type]
        self._say()

    def _on_copy(self) -> None:
        QGuiApplication.clipboard().setText(self._words.report(self._status, self.trials.tried))
        self.copy.say(self._words.text("copied"))
        self._said_again.start(_COPIED_MS)

    def _on_save(self) -> None:
        dialog = QFileDialog(self, self._words.text("save_title"), "daisy-diagnostics.zip")
        dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
        dialog.setDefaultSuffix("zip")
        dialog.fileSelected.connect(self.save_to)
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()

    def save_to(self, file: str) -> None:
        """Write the bundle, and say where, or why not.

        Args:
            file: The zip to make.
        """
        try:
            status = None if self._status is None else without_names(self._status)
            tried = self.trials.tried
            report, versions = self._words.report(status, tried), self._words.versions(tried)
            write_bundle(Path(file), report, status, dict(versions))
        except StorageError as error:
            self._told.be("alarm")
            self._told.setText(self._words.text("save_failed", reason=one_line(error.what)))
        else:
            self._told.be("quiet")
            self._told.setText(self._words.text("saved", file=file))

    # ---- what is shown -----------------------------------------------------------------------

    def _say(self) -> None:
        words = self._words
        self._heading.setText(words.text("heading"))
        if self._is_looking:
            self._told.setText(words.text("looking"))
        elif self._told.text() in {"", words.text("looking")}:
            self._told.setText("")
        self._told.setVisible(bool(self._told.text()))
        for name, heading in self._headings.items():
            heading.setText(words.text(f"{name}_heading"))
        for name, hint in self._hints.items():
            hint.setText(words.text(f"{name}_hint"))
        self._say_buttons()
        self._show_findings()
        for name in ("hearing", "adapters", "devices"):
            is_known = self._status is not None
            self._headings[name].setVisible(is_known)
            self._cards[name].setVisible(is_known)
        if self._status is not None:
            self._show_hearing(self._status)
            self._show_adapters(self._status)
            columns = [words.text(f"column_{name}") for name in ("pc", "devices", "measured")]
            self.grids["devices"].show_rows(columns, words.devices(self._status))
        self._show_tried()
        self.grids["versions"].show_rows((), words.versions(self.trials.tried))

    def _show_tried(self) -> None:
        rows = self._words.tried_devices(self.trials.tried)
        for part in (self._headings["tried"], self._cards["tried"]):
            part.setVisible(self._status is not None or bool(rows))
        heading = [self._words.text(f"column_{name}") for name in ("device", "kind", "result")]
        if not rows:
            heading = [self._words.text("running" if self.trials.is_running else "untried")]
        details = self._words.device_details(self.trials.tried)
        tips = [
            ["", "", f"{row[2]} {told}" if told else ""]
            for row, (_, told) in zip(rows, details, strict=True)
        ]
        self.grids["tried"].show_rows(heading, rows, tips)

    def _say_buttons(self) -> None:
        words = self._words
        is_running = self.trials.is_running
        self.run.say(words.text("running" if is_running else "run"), words.text("run_hint"))
        self.run.setEnabled(not is_running)
        self.run.setVisible(self._status is not None)
        self.copy.say(words.text("copy"))
        self.save.say(words.text("save"), words.text("save_hint"))
        self.start.say(words.text("start_node"))
        self.start.setVisible(self._status is None and not self._is_looking)

    def _show_findings(self) -> None:
        tried = self.trials.tried
        found = () if self._is_looking else findings_of(self._status, tried)
        port = None if tried.network is None else tried.network.port
        while len(self._findings) < len(found):
            row = FindingRow(self.surroundings.look)
            self._findings.append(row)
            self._findings_rows.addWidget(row)
        for number, row in enumerate(self._findings):
            if number < len(found):
                what, advice = self._words.finding(found[number], port)
                severity = self._words.text(f"severity_{found[number].severity}")
                row.show_finding(found[number], severity, what, advice)
            else:
                row.clear()
        self._headings["findings"].setVisible(bool(found))

    def _show_hearing(self, status: PoolStatus) -> None:
        hearing = hearing_of(status)
        names = [one_line(name, 24) for name in hearing.names]
        rows, tips = [], []
        for name, cells in zip(names, hearing.cells, strict=True):
            rows.append([name, *(cell_sign(cell) for cell in cells)])
            tips.append([
                name,
                *(
                    self._cell_tip(name, other, cell)
                    for other, cell in zip(names, cells, strict=True)
                ),
            ])
        self.grids["hearing"].show_rows(["", *names], rows, tips)

    def _cell_tip(self, hearer: str, other: str, cell: bool | None) -> str:
        if cell is None:
            return hearer
        key = "hearing_cell" if cell else "hearing_cell_not"
        return self._words.text(key, hearer=hearer, other=other)

    def _show_adapters(self, status: PoolStatus) -> None:
        words = self._words
        rows = [words.adapter(adapter, self.trials.tried) for adapter in status.adapters]
        columns = ("adapter", "state", "address", "heard", "reason")
        heading = [words.text(f"column_{name}") for name in columns]
        if not rows:
            heading = [words.text("adapters_unknown")]
        self.grids["adapters"].show_rows(heading, rows)


class FindingRow(Card):
    """One finding: a sign, a word for it, what was found, and what to do."""

    def __init__(self, look: Look, parent: QWidget | None = None) -> None:
        """Begin empty.

        Args:
            look: Followed.
            parent: Owns it.
        """
        super().__init__(look, parent)
        self._look = look
        self._severity = "hint"
        self.is_used = False
        self.sentence = ""
        self._sign = QLabel()
        self._what = Text(look, "body").selectable()
        self._advice = Text(look, "small", "quiet").selectable()
        words = QVBoxLayout()
        words.addWidget(self._what)
        words.addWidget(self._advice)
        beside = QHBoxLayout()
        beside.addWidget(self._sign, 0, Qt.AlignmentFlag.AlignTop)
        beside.addLayout(words, 1)
        self.rows.addLayout(beside)
        look.changed.connect(self._draw)

    def show_finding(self, found: Finding, severity: str, what: str, advice: str) -> None:
        """Show one.

        Args:
            found: Which.
            severity: Its severity in a word.
            what: What was found.
            advice: What to do; empty for nothing.
        """
        self.is_used = True
        self._severity = found.severity
        self.sentence = f"{severity}: {what} {advice}".rstrip()
        self._what.setText(what)
        self._advice.setText(advice)
        self._advice.setVisible(bool(advice))
        self._sign.setAccessibleName(severity)
        self._sign.setToolTip(severity)
        self.setAccessibleName(self.sentence)
        self._draw()
        self.show()

    def clear(self) -> None:
        """Show nothing."""
        self.is_used = False
        self.hide()

    def _draw(self) -> None:
        icon, colour = _SIGNS[self._severity]
        side, ratio = self._look.px(20), self.devicePixelRatioF()
        pixmap = self._look.pixmap(icon, round(side * ratio), colour)
        pixmap.setDevicePixelRatio(ratio)
        self._sign.setPixmap(pixmap)

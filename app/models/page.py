"""The models' page: what runs, what can be opened, what would fit, and how far a loading one is."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QTimer, QUrl
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QFileDialog, QHBoxLayout, QVBoxLayout, QWidget

from app.bridge.node_process import NodeState
from app.models.catalogue import read_catalogue
from app.models.fit import fit, usable_bytes
from app.models.kept_card import KeptCard
from app.models.load_progress import LoadProgress
from app.models.load_view import LoadView
from app.models.model_row import ModelRow
from app.page import Page
from app.parts.action import Action
from app.parts.card import Card
from app.parts.column import Column
from app.parts.notice import Notice
from app.parts.text import Text
from app.places import RESOURCES
from app.pool.ring import BUSY_PHASES, ring_of
from app.pool.words import memory_text
from app.safe_text import one_line
from app.wording.problems import problem_words
from engine.messages.pool_control import DeploymentReport

if TYPE_CHECKING:
    from PySide6.QtGui import QDragEnterEvent, QDropEvent

    from app.bridge.problem import Problem
    from app.surroundings import Surroundings
    from engine.messages.pool_status import PoolStatus

_WATCHER = "models page"
_TICK_MS = 500
# What helps with which error; everything else is tried again.
_ACTIONS = {
    "insufficient_memory": "add_pc",
    "model": "other",
    "model_not_found": "other",
    "model_file": "other",
    "model_unsupported": "other",
    "tokenizer": "other",
    "compile": "doctor",
    "golden_step": "doctor",
}


class ModelsPage(Page):
    """Models here, and what would fit."""

    title_key = "models.title"
    icon_name = "models"

    def __init__(self, surroundings: Surroundings, parent: QWidget | None = None) -> None:
        """Build it, unseen.

        Args:
            surroundings: What pages share.
            parent: Owns it.

        Fails with ``StorageError`` where the catalogue can't be read.
        """
        super().__init__(surroundings, parent)
        look, wording = surroundings.look, surroundings.wording
        self._status: PoolStatus | None = None
        self._load = LoadProgress(0.0)
        self._is_own = False  # what loads was asked for here
        self._own_name = ""
        self._source: str | None = None  # asked for last
        self._problem: Problem | None = None
        self._heading = Text(look, "title", bold=True)
        self._room = Text(look, "body", "quiet")
        self._start = Action(look, "chief")
        self._card = Card(look)
        self._running = Text(look, "lead", bold=True)
        self._chat = Action(look, "chief")
        self._unload = Action(look)
        self.notice = Notice(look)
        self.loading = LoadView(look, wording)
        self._import_heading = Text(look, "lead", bold=True)
        self._import_hint = Text(look, "small", "quiet")
        self._folder = Action(look, "plain", "folder")
        self._file = Action(look, "plain", "import")
        self.kept = KeptCard(look, wording, surroundings.data_dir)
        self._catalogue_heading = Text(look, "lead", bold=True)
        self._catalogue_note = Text(look, "small", "quiet")
        catalogue = read_catalogue(RESOURCES / "catalogue.json")
        self.models = [ModelRow(look, wording, model) for model in catalogue]
        self._tick = QTimer(self)
        self._tick.setInterval(_TICK_MS)
        self._tick.timeout.connect(self._show_loading)
        self.setAcceptDrops(True)
        self._build()
        self._connect()
        self._say()

    def shown(self) -> None:
        """Follow the pool."""
        self.surroundings.status.watch(_WATCHER)
        self.kept.watch()

    def hidden(self) -> None:
        """Follow it no longer."""
        self.surroundings.status.unwatch(_WATCHER)
        self.kept.unwatch()
        self._tick.stop()

    def load(self, source: str | None) -> None:
        """Ask the pool to run a model.

        Args:
            source: A folder or a GGUF on this PC; None for the embedded model.
        """
        self._source = source
        self._own_name = "" if source is None else Path(source).name
        self._is_own = True
        self._load = LoadProgress(time.monotonic())
        self._problem = None
        self.notice.hide()
        self.surroundings.loading.load(source)
        self._say()

    # ---- building ----------------------------------------------------------------------------

    def _build(self) -> None:
        look = self.surroundings.look
        column = Column(look)
        running = self._card
        beside = QHBoxLayout()
        beside.addWidget(self._running, 1)
        beside.addWidget(self._chat)
        beside.addWidget(self._unload)
        running.rows.addLayout(beside)
        buttons = QHBoxLayout()
        buttons.addWidget(self._folder)
        buttons.addWidget(self._file)
        buttons.addStretch(1)
        start = QHBoxLayout()
        start.addWidget(self._room, 1)
        start.addWidget(self._start)
        column.add(self._heading)
        column.add(start)
        for part in (running, self.notice, self.loading):
            column.add(part)
        column.add(self._import_heading, gap=4)
        column.add(self._import_hint)
        column.add(buttons)
        column.add(self.kept, gap=4)
        column.add(self._catalogue_heading, gap=4)
        column.add(self._catalogue_note)
        for row in self.models:
            column.add(row)
        column.rows.addStretch(1)
        whole = QVBoxLayout(self)
        whole.setContentsMargins(0, 0, 0, 0)
        whole.addWidget(column)

    def _connect(self) -> None:
        shared = self.surroundings
        shared.wording.changed.connect(self._say)
        shared.status.changed.connect(self._on_status)
        shared.status.silent.connect(self._on_silent)
        shared.node.state_changed.connect(self._say)
        shared.loading.reported.connect(self._on_report)
        shared.loading.failed.connect(self._on_failed)
        shared.loading.done.connect(self._on_done)
        shared.loading.busy_changed.connect(self._say)
        self.loading.cancelled.connect(self._on_cancelled)
        self.notice.acted.connect(self._on_act)
        self._start.clicked.connect(shared.node.start)
        self._chat.clicked.connect(lambda: shared.navigation.go("chat"))
        self._unload.clicked.connect(shared.loading.unload)
        self._folder.clicked.connect(self._choose_folder)
        self._file.clicked.connect(self._choose_file)
        for row in self.models:
            row.load_wanted.connect(lambda: self.load(None))
            row.page_wanted.connect(
                lambda source=row.model.source: QDesktopServices.openUrl(QUrl(source))
            )

    # ---- choosing ----------------------------------------------------------------------------

    def _choose_folder(self) -> None:
        dialog = QFileDialog(self, self._text("choose_folder"))
        dialog.setFileMode(QFileDialog.FileMode.Directory)
        self._choose_with(dialog)

    def _choose_file(self) -> None:
        dialog = QFileDialog(self, self._text("choose_file"), "", self._text("file_kinds"))
        dialog.setFileMode(QFileDialog.FileMode.ExistingFile)
        self._choose_with(dialog)

    def _choose_with(self, dialog: QFileDialog) -> None:
        """Open a dialog without waiting for it: the window goes on."""
        dialog.fileSelected.connect(self.load)
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        """Take one local file or folder."""
        if len(event.mimeData().urls()) == 1 and event.mimeData().urls()[0].isLocalFile():
            event.acceptProposedAction()

    def dropEvent(self, event: QDropEvent) -> None:
        """Load what was dropped, or say why not."""
        path = Path(event.mimeData().urls()[0].toLocalFile())
        if path.is_dir() or path.suffix.lower() == ".gguf":
            self.load(str(path))
            return
        name = one_line(path.name, 60)
        self._name_buttons("other")
        self.notice.tell(self._text("drop_unknown", name=name), self._text("drop_unknown_advice"))

    # ---- what comes --------------------------------------------------------------------------

    def _on_status(self, status: PoolStatus) -> None:
        self._status = status
        self.kept.see(status)
        record = status.deployment
        if not self.surroundings.loading.is_busy:
            if record is not None and record.phase in BUSY_PHASES:
                report = DeploymentReport(deployment=record, progress=status.progress)
                self._see_foreign(report)
            else:
                self._is_own = False
        if self.isVisible():
            self._say()

    def _see_foreign(self, report: DeploymentReport) -> None:
        """Follow what somebody else asked the pool to load."""
        if self._is_own or self.loading.isHidden():
            self._load = LoadProgress(time.monotonic())
        self._is_own = False
        self._load.see(report, time.monotonic(), is_recorded=True)

    def _on_silent(self) -> None:
        self._status = None
        self._say()

    def _on_report(self, report: DeploymentReport) -> None:
        record = report.deployment
        is_recorded = (
            record is not None
            and record.wish is not None
            and report.wish_id is not None
            and record.wish.wish_id == report.wish_id
        )
        if is_recorded and record is not None and record.wish is not None:
            self._own_name = record.wish.model.name
        self._load.see(report, time.monotonic(), is_recorded=is_recorded)
        self._show_loading()

    def _on_failed(self, problem: Problem) -> None:
        self._problem = problem
        self._is_own = False
        self._tell_problem()
        self._say()

    def _on_done(self) -> None:
        self._is_own = False
        self._say()

    def _on_cancelled(self) -> None:
        loading = self.surroundings.loading
        if loading.is_busy:
            loading.cancel()
        else:
            loading.unload()

    def _on_act(self) -> None:
        action = self._action()
        if action == "add_pc":
            self.surroundings.navigation.go("devices")
        elif action == "doctor":
            self.surroundings.navigation.go("doctor")
        elif action == "again":
            self.load(self._source)
        else:
            self.notice.hide()
            self._folder.setFocus()

    # ---- what is shown -----------------------------------------------------------------------

    def showEvent(self, event: object) -> None:
        """Show what came meanwhile."""
        super().showEvent(event)  # type: ignore[arg-type]
        self._say()

    def _text(self, key: str, /, **values: object) -> str:
        return self.surroundings.wording.text(f"models.{key}", **values)

    def _names(self) -> dict[str, str]:
        if self._status is None:
            return {}
        return {pc.node_id: pc.name for pc in ring_of(self._status).pcs}

    def _say(self) -> None:
        self._heading.setText(self._text("heading"))
        self._say_room()
        self._say_running()
        self._import_heading.setText(self._text("import_heading"))
        self._import_hint.setText(self._text("import_hint"))
        self._folder.say(self._text("import_folder"))
        self._file.say(self._text("import_file"))
        self._catalogue_heading.setText(self._text("catalogue_heading"))
        self._catalogue_note.setText(self._text("catalogue_note"))
        can_load = self._status is not None and not self.surroundings.loading.is_busy
        for button in (self._folder, self._file):
            button.setEnabled(can_load)
        names = self._names()
        for row in self.models:
            row.show_fit(fit(row.model, self._status), names, can_load=can_load)
        self._tell_problem()
        self._show_loading()

    def _say_room(self) -> None:
        is_away = self.surroundings.node.state in {NodeState.ABSENT, NodeState.FAILED}
        must_start = self._status is None and is_away
        self._start.say(self._text("start_node"))
        self._start.setVisible(must_start)
        if self._status is None:
            self._room.setText(self._text("node_away" if must_start else "room_unknown"))
            return
        room = usable_bytes(self._status)
        self._room.setText(self._text("room", n=len(room), lent=memory_text(sum(room.values()))))

    def _say_running(self) -> None:
        ring = None if self._status is None else ring_of(self._status)
        is_running = ring is not None and ring.is_running
        if ring is None or not is_running:
            self._running.setText(self._text("running_none"))
        else:
            name, count = one_line(ring.model_name, 60), len(ring.petals)
            key = "running_one" if count == 1 else "running"
            self._running.setText(self._text(key, model=name, n=count))
        self._chat.say(self._text("chat"))
        self._chat.setVisible(is_running)
        self._unload.say(self._text("unload"), self._text("unload_hint"))
        self._unload.setVisible(is_running)
        self._unload.setEnabled(not self.surroundings.loading.is_busy)

    def _show_loading(self) -> None:
        record = None if self._status is None else self._status.deployment
        is_foreign = record is not None and record.phase in BUSY_PHASES
        is_busy = self.surroundings.loading.is_busy and self._is_own
        self.loading.setVisible(is_busy or is_foreign)
        self._card.setVisible(not (is_busy or is_foreign))
        if not (is_busy or is_foreign):
            self._tick.stop()
            return
        if self.isVisible() and not self._tick.isActive():
            self._tick.start()
        model = self._own_name
        if not is_busy and record is not None and record.wish is not None:
            model = record.wish.model.name
        picture = self._load.picture(time.monotonic())
        self.loading.show_picture(picture, model, self._names(), can_cancel=True)

    def _tell_problem(self) -> None:
        if self._problem is None:
            return
        words = problem_words(self._problem, self.surroundings.wording)
        self._name_buttons(self._action())
        self.notice.tell(words.what, words.advice, words.details)

    def _action(self) -> str:
        if self._problem is None:
            return "other"
        return _ACTIONS.get(self._problem.code, "again")

    def _name_buttons(self, action: str) -> None:
        self.notice.name_buttons(
            self._text(f"action_{action}"),
            self._text("failed_details"),
            self._text("failed_close"),
        )

"""The settings: each takes effect at once, or says when it will."""

from __future__ import annotations

import socket
import sys
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, QUrl
from PySide6.QtGui import QDesktopServices, QGuiApplication
from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QSystemTrayIcon, QVBoxLayout

from app.page import Page
from app.parts.action import Action
from app.parts.card import Card
from app.parts.column import Column
from app.parts.fields import Choice, Number, Switch, field_sheet
from app.parts.text import Text
from app.pool.words import memory_text
from app.safe_text import one_line, without_unseen
from app.settings.autostart import autostart_of_this_pc
from app.settings.keys_card import KeysCard
from app.settings.lending_card import LendingCard
from engine.config import data_folder
from engine.errors import StorageError

if TYPE_CHECKING:
    from PySide6.QtWidgets import QLayout, QWidget

    from app.settings.autostart import Autostart
    from app.surroundings import Surroundings
    from engine.messages.pool import NodeReport
    from engine.messages.pool_status import PoolStatus

_WATCHER = "settings page"
_GIB = 1 << 30
_MAX_GIB = 4096
_LONGEST_NAME = 63  # bytes that others show of it
_SCALES = (100, 110, 125, 150, 175, 200, 225, 250)


class SettingsPage(Page):
    """What a person can choose."""

    title_key = "settings.title"
    icon_name = "settings"

    def __init__(
        self,
        surroundings: Surroundings,
        parent: QWidget | None = None,
        autostart: Autostart | None = None,
    ) -> None:
        """Build it, unseen.

        Args:
            surroundings: What pages share.
            parent: Owns it.
            autostart: The system's switch; None for this system's own.
        """
        super().__init__(surroundings, parent)
        self._autostart = autostart or autostart_of_this_pc(start_command(surroundings))
        self._report: NodeReport | None = None
        self._is_saying = False
        self._labels: dict[str, Text] = {}
        self.language = Choice(surroundings.look)
        self.theme = Choice(surroundings.look)
        self.scale = Choice(surroundings.look)
        self.motion = Switch(surroundings.look)
        self.autostart = Switch(surroundings.look)
        self.starts_node = Switch(surroundings.look)
        self.on_close = Choice(surroundings.look)
        self.pc_name = QLineEdit()
        self.is_limited = Switch(surroundings.look)
        self.limit = Number()
        self.open_folder = Action(surroundings.look, "plain", "folder")
        self.copy_folder = Action(surroundings.look, "plain", "copy")
        self.folder = Text(surroundings.look).selectable()
        self.trouble = Text(surroundings.look, colour="alarm")
        self.trouble.hide()
        self.lending = LendingCard(surroundings.look, surroundings.wording, surroundings.lending)
        self.no_tray = Text(surroundings.look, "small", "quiet")
        self._column = Column(surroundings.look, 640)
        self._choices: dict[str, Choice] = {
            "language": self.language,
            "theme": self.theme,
            "on_close": self.on_close,
        }
        self._build()
        self._connect()
        self._say()

    def shown(self) -> None:
        """Look at what may have changed elsewhere."""
        self.surroundings.status.watch(_WATCHER)
        self.no_tray.setVisible(not QSystemTrayIcon.isSystemTrayAvailable())
        self._show_choices()

    def hidden(self) -> None:
        """Write what stands in the fields, and look no longer."""
        self.surroundings.status.unwatch(_WATCHER)
        self._on_name()

    # ---- building ----------------------------------------------------------------------------

    def _build(self) -> None:
        column = self._column
        for name, values in _CHOICES.items():
            for value in values:
                self._choices[name].addItem("", value)
        for percent in _SCALES:
            self.scale.addItem(f"{percent} %", percent)
        self.pc_name.setMaxLength(_LONGEST_NAME)
        self.limit.setRange(1, _MAX_GIB)
        column.add(self._text("heading", "title", bold=True))
        column.add(self.trouble)
        column.add(self._text("window_heading", "lead", bold=True), gap=3)
        column.add(
            self._card(
                self._row("language", self.language),
                self._row("theme", self.theme),
                self._row("scale", self.scale),
                self._check(self.motion, "motion_hint"),
            )
        )
        column.add(self._text("start_heading", "lead", bold=True), gap=4)
        column.add(
            self._card(
                self._check(self.autostart, "autostart_hint"),
                self._check(self.starts_node, "starts_node_hint"),
                self._row("on_close", self.on_close),
                _alone(self.no_tray),
            )
        )
        column.add(self._text("pc_heading", "lead", bold=True), gap=4)
        lend = QHBoxLayout()
        lend.addWidget(self.is_limited)
        lend.addWidget(self.limit)
        column.add(
            self._card(
                self._row("pc_name", self.pc_name),
                self._under("pc_name_hint"),
                self._row("lend", lend),
                self._under("lend_hint"),
                self._under("next_start"),
                self._under("now"),
            )
        )
        column.add(self.lending, gap=2)
        column.add(self._text("keys_heading", "lead", bold=True), gap=4)
        column.add(KeysCard(self.surroundings.look, self.surroundings.wording))
        column.add(self._text("data_heading", "lead", bold=True), gap=4)
        buttons = QHBoxLayout()
        buttons.addWidget(self.open_folder)
        buttons.addWidget(self.copy_folder)
        buttons.addStretch(1)
        column.add(self._card(self._under("data_folder"), _alone(self.folder), buttons))
        column.rows.addStretch(1)
        whole = QVBoxLayout(self)
        whole.setContentsMargins(0, 0, 0, 0)
        whole.addWidget(column)

    def _card(self, *rows: QLayout) -> Card:
        card = Card(self.surroundings.look)
        for row in rows:
            card.rows.addLayout(row)
        return card

    def _text(self, name: str, step: str = "body", *, bold: bool = False) -> Text:
        label = Text(self.surroundings.look, step, bold=bold)  # type: ignore[arg-type]
        self._labels[name] = label
        return label

    def _row(self, name: str, field: QWidget | QLayout) -> QHBoxLayout:
        """Return a name with its field beside it."""
        row = QHBoxLayout()
        label = self._text(name)
        row.addWidget(label, 1)
        if isinstance(field, QHBoxLayout):
            row.addLayout(field, 1)
        else:
            label.setBuddy(field)  # type: ignore[arg-type]
            row.addWidget(field, 1)  # type: ignore[arg-type]
        return row

    def _check(self, box: Switch, hint: str) -> QVBoxLayout:
        rows = QVBoxLayout()
        rows.addWidget(box)
        rows.addLayout(self._under(hint))
        return rows

    def _under(self, name: str) -> QHBoxLayout:
        label = Text(self.surroundings.look, "small", "quiet")
        self._labels[name] = label
        return _alone(label)

    def _connect(self) -> None:
        shared = self.surroundings
        shared.wording.changed.connect(self._say)
        shared.look.changed.connect(self._dress)
        shared.preferences.changed.connect(self._show_choices)
        shared.preferences.failed.connect(self._on_unwritten)
        shared.status.changed.connect(self._on_status)
        for name, field in self._choices.items():
            field.activated.connect(lambda _, name=name: self._on_choice(name))
        self.scale.activated.connect(self._on_scale)
        self.motion.clicked.connect(lambda on: shared.preferences.choose(has_motion=on))
        self.starts_node.clicked.connect(lambda on: shared.preferences.choose(starts_node=on))
        self.autostart.clicked.connect(self._on_autostart)
        self.pc_name.editingFinished.connect(self._on_name)
        self.is_limited.clicked.connect(self._on_limit)
        self.limit.valueChanged.connect(self._on_limit)
        self.open_folder.clicked.connect(
            lambda: QDesktopServices.openUrl(QUrl.fromLocalFile(str(shared.data_dir)))
        )
        self.copy_folder.clicked.connect(
            lambda: QGuiApplication.clipboard().setText(str(shared.data_dir))
        )

    # ---- choosing ----------------------------------------------------------------------------

    def _on_choice(self, name: str) -> None:
        self.surroundings.preferences.choose(**{name: self._choices[name].currentData()})

    def _on_scale(self) -> None:
        self.surroundings.preferences.choose(scale_percent=self.scale.currentData())

    def _on_autostart(self, on: bool) -> None:
        try:
            self._autostart.switch(on=on)
        except StorageError as error:
            self._tell("autostart_failed", error.what)
        self.autostart.setChecked(self._autostart.is_on())

    def _on_name(self) -> None:
        name = " ".join(without_unseen(self.pc_name.text()).split())
        while len(name.encode()) > _LONGEST_NAME:
            name = name[:-1]
        self.surroundings.preferences.choose(pc_name=name)

    def _on_limit(self) -> None:
        if self._is_saying:
            return
        self.limit.setEnabled(self.is_limited.isChecked())
        lend = self.limit.value() * _GIB if self.is_limited.isChecked() else None
        self.surroundings.preferences.choose(lend_bytes=lend)

    def _on_unwritten(self, reason: str) -> None:
        self._tell("not_saved", reason)

    def _on_status(self, status: PoolStatus) -> None:
        own = next((node.report for node in status.nodes if node.is_asked), None)
        if own is not None:
            self._report = own
            self._say_now()

    # ---- what is shown -----------------------------------------------------------------------

    def _tell(self, name: str, reason: str) -> None:
        self.trouble.setText(
            self.surroundings.wording.text(f"settings.{name}", reason=one_line(reason))
        )
        self.trouble.show()

    def _show_choices(self) -> None:
        """Show what is chosen; nothing is chosen by it."""
        choices = self.surroundings.preferences.choices
        self._is_saying = True
        for name, field in self._choices.items():
            field.setCurrentIndex(max(0, field.findData(getattr(choices, name))))
        self.scale.setCurrentIndex(max(0, self.scale.findData(choices.scale_percent)))
        self.motion.setChecked(choices.has_motion)
        self.starts_node.setChecked(choices.starts_node)
        self.autostart.setChecked(self._autostart.is_on())
        if not self.pc_name.hasFocus():
            self.pc_name.setText(choices.pc_name)
        self.is_limited.setChecked(choices.lend_bytes is not None)
        self.limit.setEnabled(choices.lend_bytes is not None)
        if choices.lend_bytes is not None:
            self.limit.setValue(max(1, choices.lend_bytes // _GIB))
        self._is_saying = False
        self._say_now()

    def _say(self) -> None:
        shared = self.surroundings
        say = shared.wording.text
        values = {"pc_name_hint": {"name": one_line(socket.gethostname(), 40)}}
        for name, label in self._labels.items():
            if name != "now":
                label.setText(say(f"settings.{name}", **values.get(name, {})))
        for name, field in self._choices.items():
            for index, value in enumerate(_CHOICES[name]):
                field.setItemText(index, say(f"settings.{name}_{value}"))
            field.setAccessibleName(say(f"settings.{name}"))
        self.scale.setAccessibleName(say("settings.scale"))
        self.pc_name.setAccessibleName(say("settings.pc_name"))
        self.limit.setAccessibleName(say("settings.lend"))
        self.limit.setSuffix(say("settings.lend_suffix"))
        for box, name in (
            (self.motion, "motion"),
            (self.autostart, "autostart"),
            (self.starts_node, "starts_node"),
            (self.is_limited, "lend_limited"),
        ):
            box.setText(say(f"settings.{name}"))
        self.open_folder.say(say("settings.open_folder"))
        self.copy_folder.say(say("settings.copy_folder"))
        self.folder.setText(str(shared.data_dir))
        self.no_tray.setText(say("tray.absent"))
        self._dress()
        self._show_choices()

    def _say_now(self) -> None:
        """Say what the running engine has, and whether a choice still waits for its next start."""
        label = self._labels["now"]
        label.setVisible(self._report is not None)
        if self._report is None:
            return
        say = self.surroundings.wording.text
        name, cap = one_line(self._report.name, 40), self._report.memory_cap_bytes
        told = [
            say("settings.now_all", name=name)
            if cap is None
            else say("settings.now", name=name, amount=memory_text(cap))
        ]
        choices = self.surroundings.preferences.choices
        wanted_name = choices.pc_name or self._report.name
        if cap != choices.lend_bytes or wanted_name != self._report.name:
            told.append(say("settings.restart_pending"))
        label.setText(("" if self.surroundings.wording.language == "zh" else " ").join(told))

    def _dress(self) -> None:
        look = self.surroundings.look
        self.setStyleSheet(field_sheet(look))
        for field in (*self._choices.values(), self.scale, self.pc_name, self.limit):
            field.setFont(look.font("body"))
        for box in (self.motion, self.autostart, self.starts_node, self.is_limited):
            box.setFont(look.font("body"))


def start_command(surroundings: Surroundings) -> tuple[str, ...]:
    """Return what starts Daisy in the tray, with this data folder.

    Args:
        surroundings: Of the window that runs.
    """
    command = (sys.executable, "-m", "app", "--hidden")
    if surroundings.data_dir == data_folder():
        return command
    return (*command, "--data", str(surroundings.data_dir))


def _alone(widget: QWidget) -> QHBoxLayout:
    row = QHBoxLayout()
    row.addWidget(widget, 1, Qt.AlignmentFlag.AlignTop)
    return row


_CHOICES = {
    "language": ("system", "en", "zh"),
    "theme": ("system", "light", "dark"),
    "on_close": ("ask", "keep", "quit"),
}

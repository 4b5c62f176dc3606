"""When this PC lends itself: the tray's submenu, which shows what holds and changes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtGui import QAction, QActionGroup
from PySide6.QtWidgets import QMenu, QWidget

from app.tray.lending_words import HOUR_S, lending_sentence

if TYPE_CHECKING:
    from app.bridge.lending import Lending
    from app.wording.wording import Wording

_RULES = ("now", "idle", "never")


class LendingMenu(QMenu):
    """The submenu; a choice is shown once the node has taken it."""

    def __init__(self, wording: Wording, lending: Lending, parent: QWidget | None = None) -> None:
        """Build it.

        Args:
            wording: Words.
            lending: Asked and followed.
            parent: Owns it.
        """
        super().__init__(parent)
        self._wording = wording
        self._lending = lending
        self.setToolTipsVisible(True)
        group = QActionGroup(self)
        self.rules = {name: QAction(self) for name in _RULES}
        for name, action in self.rules.items():
            action.setCheckable(True)
            action.triggered.connect(lambda _=False, name=name: self._on_rule(name))
            group.addAction(action)
            self.addAction(action)
        self.addSeparator()
        self.pause = QAction(self)
        self.pause.triggered.connect(self._on_pause)
        self.addAction(self.pause)
        self.addSeparator()
        self.told = QAction(self)  # a line to be read
        self.told.setEnabled(False)
        self.addAction(self.told)
        lending.changed.connect(self._say)
        wording.changed.connect(self._say)
        self._say()

    def _on_rule(self, name: str) -> None:
        self._lending.choose(name)  # type: ignore[arg-type] - one of the rules
        self._say()

    def _on_pause(self) -> None:
        report = self._lending.report
        is_paused = report is not None and report.paused_for_s is not None
        self._lending.pause(0.0 if is_paused else HOUR_S)

    def _say(self) -> None:
        say, report = self._wording.text, self._lending.report
        is_known = report is not None
        self.setTitle(say("tray.lend"))
        can_see_idle = self._lending.can_see_idle
        for name, action in self.rules.items():
            action.setText(say(f"tray.lend_{name}"))
            action.setEnabled(is_known and (name != "idle" or can_see_idle))
            action.setChecked(report is not None and report.rule == name)
        self.rules["idle"].setToolTip("" if can_see_idle else say("tray.idle_unknown"))
        is_paused = report is not None and report.paused_for_s is not None
        self.pause.setText(say("tray.resume" if is_paused else "tray.pause_hour"))
        self.pause.setEnabled(is_known)
        self.told.setText(lending_sentence(self._lending, self._wording))

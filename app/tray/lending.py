"""When this PC lends itself: shown truthfully, and open to choice once the node knows of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtGui import QAction, QActionGroup
from PySide6.QtWidgets import QMenu, QWidget

if TYPE_CHECKING:
    from app.wording.wording import Wording

_RULES = ("lend_now", "lend_idle", "lend_never")


class LendingMenu(QMenu):
    """The submenu.

    No message tells a node when to lend, so what can't be chosen is shown disabled with the
    reason, and what holds is checked: it lends now.
    """

    def __init__(self, wording: Wording, parent: QWidget | None = None) -> None:
        """Build it.

        Args:
            wording: Words.
            parent: Owns it.
        """
        super().__init__(parent)
        self._wording = wording
        self.setToolTipsVisible(True)
        group = QActionGroup(self)
        self.rules = {name: QAction(self) for name in _RULES}
        for action in self.rules.values():
            action.setCheckable(True)
            group.addAction(action)
            self.addAction(action)
        self.rules["lend_now"].setChecked(True)
        self.addSeparator()
        self.pause = QAction(self)
        self.addAction(self.pause)
        self.addSeparator()
        self.reason = QAction(self)  # a line to be read
        self.addAction(self.reason)
        for action in (*self.rules.values(), self.pause, self.reason):
            action.setEnabled(False)
        wording.changed.connect(self._say)
        self._say()

    def _say(self) -> None:
        say = self._wording.text
        self.setTitle(say("tray.lend"))
        reason = say("tray.lend_fixed")
        for name, action in self.rules.items():
            action.setText(say(f"tray.{name}"))
            action.setToolTip(reason)
        self.pause.setText(say("tray.pause_hour"))
        self.pause.setToolTip(reason)
        self.reason.setText(reason)

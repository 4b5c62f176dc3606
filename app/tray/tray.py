"""The tray: icon, tooltip and menu; and what is done where a desktop has no tray."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Qt, QTimer, Signal
from PySide6.QtGui import QAction, QGuiApplication
from PySide6.QtWidgets import QMenu, QSystemTrayIcon

from app.safe_text import one_line
from app.tray.icon import tray_icon
from app.tray.lending import LendingMenu
from app.tray.state import TrayState, tray_state

if TYPE_CHECKING:
    from collections.abc import Callable

    from app.surroundings import Surroundings

LOOK_AGAIN_MS = 1000
GIVE_UP_AFTER_S = 30.0  # a panel that starts after us is there by then
_WATCHER = "tray"
_PLACES = ("chat", "pool", "models")
_MORE_PLACES = (("add_pc", "devices"), ("settings", "settings"), ("doctor", "doctor"))


class Tray(QObject):
    """Daisy in the tray.

    Attributes:
        opened: The window is wanted, wherever it was last.
        quit_wanted: Everything should end.
        appeared: The icon is shown.
        absent: This desktop has no tray: the window must be the way in, and say so.

    Thread: the main one.
    """

    opened = Signal()
    quit_wanted = Signal()
    appeared = Signal()
    absent = Signal()

    def __init__(
        self,
        surroundings: Surroundings,
        parent: QObject | None = None,
        is_available: Callable[[], bool] = QSystemTrayIcon.isSystemTrayAvailable,
    ) -> None:
        """Begin unseen.

        Args:
            surroundings: What pages share.
            parent: Owns it.
            is_available: Tells whether the desktop has a tray now.
        """
        super().__init__(parent)
        self._surroundings = surroundings
        self._is_available = is_available
        self._state: TrayState | None = None
        self._rate: float | None = None
        self._is_shown = False
        self._has_given_up = False
        self._began_s = 0.0
        self.icon = QSystemTrayIcon(self)
        self.menu = QMenu()
        self.lending = LendingMenu(surroundings.wording, surroundings.lending, self.menu)
        self._actions: dict[str, QAction] = {}
        self._retry = QTimer(self)
        self._retry.setInterval(LOOK_AGAIN_MS)
        self._retry.timeout.connect(self._look)
        self._build_menu()
        self._connect()
        self._say()

    @property
    def state(self) -> TrayState | None:
        """What is told; None before ``begin``."""
        return self._state

    @property
    def is_shown(self) -> bool:
        """Whether the icon is in a tray."""
        return self._is_shown

    @property
    def is_absent(self) -> bool:
        """Whether this desktop was found to have no tray."""
        return self._has_given_up and not self._is_shown

    def begin(self) -> None:
        """Show the icon, as soon as there is a tray."""
        self._surroundings.status.watch(_WATCHER)
        self._began_s = time.monotonic()
        self._update()
        self._look()

    def end(self) -> None:
        """Take the icon away."""
        self._retry.stop()
        self._surroundings.status.unwatch(_WATCHER)
        self.icon.hide()
        self._is_shown = False

    # ---- a tray, or none ----------------------------------------------------------------------

    def _look(self) -> None:
        if self._is_available():
            self._retry.stop()
            self._is_shown = True
            self.icon.show()
            self.appeared.emit()
            return
        if not self._retry.isActive():
            self._retry.start()
        if not self._has_given_up and time.monotonic() - self._began_s >= GIVE_UP_AFTER_S:
            # It goes on looking: an extension may be switched on later.
            self._has_given_up = True
            self.absent.emit()

    # ---- what it tells ------------------------------------------------------------------------

    def _connect(self) -> None:
        shared = self._surroundings
        shared.status.changed.connect(self._update)
        shared.status.silent.connect(self._update)
        shared.node.state_changed.connect(self._update)
        shared.answering.running_changed.connect(self._update)
        shared.lending.changed.connect(self._update)
        shared.answering.pace_changed.connect(self._on_pace)
        shared.wording.changed.connect(self._say)
        QGuiApplication.styleHints().colorSchemeChanged.connect(self._draw)
        self.icon.activated.connect(self._on_activated)
        self.icon.setContextMenu(self.menu)

    def _on_pace(self, tokens_per_s: float) -> None:
        self._rate = tokens_per_s if tokens_per_s > 0 else None
        self._update()

    def _update(self) -> None:
        shared = self._surroundings
        state = tray_state(
            shared.node.state.value,
            shared.status.status,
            is_answering=shared.answering.num_running > 0,
            tokens_per_s=self._rate,
            is_paused=shared.lending.is_held_back,
        )
        if state == self._state:
            return
        self._state = state
        self._draw()
        self._tell()

    def _draw(self) -> None:
        if self._state is not None:
            scheme = QGuiApplication.styleHints().colorScheme()
            is_dark = scheme == Qt.ColorScheme.Dark
            self.icon.setIcon(tray_icon(self._state, is_dark=is_dark))

    def _tell(self) -> None:
        if self._state is not None:
            values = {
                name: one_line(value, 60) if isinstance(value, str) else value
                for name, value in self._state.values.items()
            }
            self.icon.setToolTip(self._surroundings.wording.text(self._state.sentence, **values))

    def _on_activated(self, reason: QSystemTrayIcon.ActivationReason) -> None:
        if reason in {
            QSystemTrayIcon.ActivationReason.Trigger,
            QSystemTrayIcon.ActivationReason.DoubleClick,
        }:
            self.opened.emit()

    # ---- the menu -----------------------------------------------------------------------------

    def _build_menu(self) -> None:
        navigation = self._surroundings.navigation
        for name in _PLACES:
            self._add(name, lambda _=False, name=name: navigation.go(name))
        self.menu.addSeparator()
        self.menu.addMenu(self.lending)
        for name, place in _MORE_PLACES:
            self._add(name, lambda _=False, place=place: navigation.go(place))
        self.menu.addSeparator()
        self._add("quit", self.quit_wanted.emit)

    def _add(self, name: str, do: Callable[..., object]) -> None:
        action = QAction(self.menu)
        action.triggered.connect(do)
        self.menu.addAction(action)
        self._actions[name] = action

    def action(self, name: str) -> QAction:
        """Return an entry of the menu.

        Args:
            name: Of its word in the tray's wording.
        """
        return self._actions[name]

    def _say(self) -> None:
        for name, action in self._actions.items():
            action.setText(self._surroundings.wording.text(f"tray.{name}"))
        self._tell()

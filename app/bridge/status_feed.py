"""The pool as this PC's node sees it, asked for once a second while something shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QTimer, Signal

from app.bridge.node_link import LinkState, NodeLink
from engine.messages.control import AskPoolStatus, PoolStatusReport

if TYPE_CHECKING:
    from pathlib import Path

    from engine.messages.pool_status import PoolStatus

ASK_EVERY_MS = 1000
ANSWER_WITHIN_MS = 5000


class StatusFeed(QObject):
    """Asks, and tells.

    Attributes:
        changed: Carries the ``PoolStatus``, each time one came.
        silent: The node did not answer in time, or is gone; the last status is old.

    Thread: the main one.
    """

    changed = Signal(object)
    silent = Signal()

    def __init__(self, data_dir: Path, parent: QObject | None = None) -> None:
        """Begin with nobody watching.

        Args:
            data_dir: Daisy's data folder, which the node has.
            parent: Owns it.
        """
        super().__init__(parent)
        self._watchers: set[str] = set()
        self._status: PoolStatus | None = None
        self._link = NodeLink(data_dir, self)
        self._link.opened.connect(self._ask)
        self._link.lost.connect(self._on_silent)
        self._link.received.connect(self._on_received)
        self._again = QTimer(self)
        self._again.setSingleShot(True)
        self._again.timeout.connect(self._ask)
        self._deadline = QTimer(self)
        self._deadline.setSingleShot(True)
        self._deadline.timeout.connect(self._on_silent)

    @property
    def status(self) -> PoolStatus | None:
        """The newest; None before one came, and after the node was silent."""
        return self._status

    def watch(self, who: str) -> None:
        """Want to be told; a second time does nothing.

        Args:
            who: A name of the watcher's own.
        """
        self._watchers.add(who)
        self._link.open()

    def unwatch(self, who: str) -> None:
        """Want it no longer.

        Args:
            who: As given to ``watch``.
        """
        self._watchers.discard(who)
        if not self._watchers:
            self._again.stop()
            self._deadline.stop()
            self._link.close()

    def refresh(self) -> None:
        """Ask at once: something has just changed."""
        self._ask()

    def _ask(self) -> None:
        if self._link.state is LinkState.OPEN and self._link.send(AskPoolStatus()):
            self._deadline.start(ANSWER_WITHIN_MS)

    def _on_received(self, message: object) -> None:
        if isinstance(message, PoolStatusReport):
            self._deadline.stop()
            self._status = message.status
            self._again.start(ASK_EVERY_MS)
            self.changed.emit(message.status)

    def _on_silent(self) -> None:
        self._status = None
        self._deadline.stop()
        self.silent.emit()
        if self._link.state is LinkState.OPEN:  # it hangs: another connection may not
            self._link.close()
            self._link.open()

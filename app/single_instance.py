"""One window a data folder: a second start raises the first one and ends.

The order matters: who answers is asked first, and only where nobody does is the lock taken and a
dead one's socket removed. Two that start at the same moment can't both hold the lock.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from PySide6.QtCore import QLockFile, QObject, Signal
from PySide6.QtNetwork import QLocalServer, QLocalSocket

if TYPE_CHECKING:
    from pathlib import Path

ANSWER_WITHIN_MS = 1000  # before there is a window: waiting here freezes nothing
LOCK_WITHIN_MS = 500
_RAISE = b"raise\n"


class SingleInstance(QObject):
    """This window's claim to be the only one.

    Attributes:
        raise_asked: Somebody started Daisy again.
    """

    raise_asked = Signal()

    def __init__(self, folder: Path, parent: QObject | None = None) -> None:
        """Begin without a claim.

        Args:
            folder: The window's own, in the data folder.
            parent: Owns it.
        """
        super().__init__(parent)
        folder.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]
        self._name = f"daisy-{digest}"
        self._lock = QLockFile(str(folder / "window.lock"))
        self._lock.setStaleLockTime(0)  # a lock whose process lives is never stale
        self._server = QLocalServer(self)
        self._server.setSocketOptions(QLocalServer.SocketOption.UserAccessOption)
        self._server.newConnection.connect(self._on_connection)

    def claim(self) -> bool:
        """Be the only one; or raise the one there is, and return False."""
        if self._raise_other():
            return False
        if not self._lock.tryLock(LOCK_WITHIN_MS):
            self._raise_other()  # it was starting a moment ago
            return False
        QLocalServer.removeServer(self._name)
        return self._server.listen(self._name)

    def release(self) -> None:
        """Give the claim up."""
        self._server.close()
        self._lock.unlock()

    def _raise_other(self) -> bool:
        socket = QLocalSocket()
        socket.connectToServer(self._name)
        if not socket.waitForConnected(ANSWER_WITHIN_MS):
            return False
        socket.write(_RAISE)
        socket.waitForBytesWritten(ANSWER_WITHIN_MS)
        socket.disconnectFromServer()
        return True

    def _on_connection(self) -> None:
        while (socket := self._server.nextPendingConnection()) is not None:
            socket.disconnected.connect(socket.deleteLater)
            self.raise_asked.emit()

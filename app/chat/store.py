"""The chats' keeper: one thread that owns the file, and a queue of what is to be done with it."""

from __future__ import annotations

import contextlib
import logging
import queue
import sqlite3
import threading
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from PySide6.QtCore import QObject, Qt, Signal

from app.chat.database import ChatDatabase, NewerFileError
from engine.errors import DaisyError, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

T = TypeVar("T")

COPY_EVERY_S = 24 * 3600.0
CLOSE_WITHIN_S = 5.0
_logger = logging.getLogger(__name__)


class ChatStore(QObject):
    """Does one thing after the other with the file, and tells the main thread.

    Attributes:
        set_aside: The file was damaged. Carries where it lies now, and when the copy was made
            that is shown instead; that is empty where there was none.
        not_kept: The file can't be used: chats are kept until the program ends, and no longer.
            Carries the ``StorageError``.

    Thread: the main one, but for the file.
    """

    set_aside = Signal(str, str)
    not_kept = Signal(object)
    _done = Signal(object)

    def __init__(self, folder: Path, parent: QObject | None = None) -> None:
        """Begin to open the file; whatever is asked meanwhile waits for it.

        Args:
            folder: The window's own.
            parent: Owns it.
        """
        super().__init__(parent)
        self._file = folder / "chats.sqlite"
        self._copy = folder / "chats.copy.sqlite"
        self._jobs: queue.SimpleQueue[Callable[[ChatDatabase], None] | None] = queue.SimpleQueue()
        self._done.connect(self._call, Qt.ConnectionType.QueuedConnection)
        self._thread = threading.Thread(target=self._run, name="chats", daemon=True)
        self._thread.start()

    def do(
        self,
        job: Callable[[ChatDatabase], T],
        on_done: Callable[[T], None] | None = None,
        on_failed: Callable[[StorageError], None] | None = None,
    ) -> None:
        """Have something done; returns at once.

        Args:
            job: Runs on the store's thread.
            on_done: Runs on the main thread once it is done, and on disk.
            on_failed: Runs on the main thread instead, where it could not be done.
        """

        def run(database: ChatDatabase) -> None:
            try:
                result = job(database)
            except sqlite3.Error as exc:
                _logger.warning("chats: %s", exc)
                if on_failed is not None:
                    error = StorageError(f"{self._file} can't be written: {exc}.")
                    self._done.emit(lambda: on_failed(error))
            else:
                if on_done is not None:
                    self._done.emit(lambda: on_done(result))

        self._jobs.put(run)

    def close(self) -> None:
        """Finish what was asked for, and close the file."""
        self._jobs.put(None)
        self._thread.join(CLOSE_WITHIN_S)

    @staticmethod
    def _call(told: Callable[[], Any]) -> None:
        told()

    # ---- the store's thread -------------------------------------------------------------------

    def _run(self) -> None:
        with contextlib.closing(self._opened()) as database:
            while (job := self._jobs.get()) is not None:
                job(database)

    def _opened(self) -> ChatDatabase:
        """Return the file's database, or one that takes its place for now."""
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            database = self._open_or_set_aside()
        except (OSError, sqlite3.Error, DaisyError) as exc:
            error = exc if isinstance(exc, StorageError) else StorageError(f"{self._file}: {exc}.")
            self._done.emit(lambda: self.not_kept.emit(error))
            return ChatDatabase(None)
        self._copy_if_due(database)
        return database

    def _open_or_set_aside(self) -> ChatDatabase:
        try:
            return ChatDatabase(self._file)
        except NewerFileError:
            raise
        except sqlite3.OperationalError as exc:
            if not _is_damage(exc):  # locked, no permission, disk full: the file may be whole
                raise
        except sqlite3.DatabaseError as exc:
            _logger.warning("chats: %s", exc)
        aside = self._move_aside()
        made = self._bring_back()
        self._done.emit(lambda: self.set_aside.emit(str(aside), made))
        return ChatDatabase(self._file)

    def _move_aside(self) -> Path:
        stamp = f"damaged-{time.time_ns() // 1_000_000}"
        for ending in ("-wal", "-shm"):
            part = self._file.with_name(self._file.name + ending)
            if part.exists():
                part.replace(part.with_name(f"chats.{stamp}.sqlite{ending}"))
        aside = self._file.with_name(f"chats.{stamp}.sqlite")
        self._file.replace(aside)
        return aside

    def _bring_back(self) -> str:
        """Put the last copy in the file's place; return when it was made, empty for none."""
        try:
            made = datetime.fromtimestamp(self._copy.stat().st_mtime, UTC).astimezone()
            with contextlib.closing(ChatDatabase(self._copy)) as copy:
                copy.copy_to(self._file)
        except (OSError, sqlite3.Error, DaisyError):
            return ""
        return f"{made:%Y-%m-%d %H:%M}"

    def _copy_if_due(self, database: ChatDatabase) -> None:
        try:
            due = not self._copy.exists() or (
                time.time() - self._copy.stat().st_mtime > COPY_EVERY_S
            )
            if due:
                database.copy_to(self._copy)
        except (OSError, sqlite3.Error) as exc:
            _logger.warning("chats: no copy, %s", exc)


def _is_damage(error: sqlite3.OperationalError) -> bool:
    return error.sqlite_errorcode in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}

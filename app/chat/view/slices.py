"""Long work on the main thread, a few milliseconds at a time."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

import shiboken6
from PySide6.QtCore import QObject, QTimer

if TYPE_CHECKING:
    from collections.abc import Iterator

WORK_FOR_S = 0.008


class Slices(QObject):
    """Works off what it was given, in order, between everything else that happens.

    Thread: the main one.
    """

    def __init__(self, parent: QObject | None = None) -> None:
        """Begin with nothing to do.

        Args:
            parent: Owns it.
        """
        super().__init__(parent)
        self._work: deque[tuple[QObject, Iterator[object]]] = deque()
        self._timer = QTimer(self)
        self._timer.setInterval(0)
        self._timer.timeout.connect(self._go_on)

    @property
    def is_idle(self) -> bool:
        """Whether everything is done."""
        return not self._work

    def add(self, owner: QObject, work: Iterator[object]) -> None:
        """Have something done.

        Args:
            owner: What it is done to; nothing more is done once Qt has deleted that.
            work: Does a little, at most a few milliseconds' worth, each time it is asked for more.
        """
        self._work.append((owner, work))
        self._timer.start()

    def drop(self) -> None:
        """Leave undone what is left."""
        self._work.clear()
        self._timer.stop()

    def _go_on(self) -> None:
        until_s = time.perf_counter() + WORK_FOR_S
        while self._work and time.perf_counter() < until_s:
            owner, work = self._work[0]
            if not shiboken6.isValid(owner) or next(work, self) is self:
                self._remove(work)
        if not self._work:
            self._timer.stop()

    def _remove(self, work: Iterator[object]) -> None:
        if self._work and self._work[0][1] is work:  # else it was dropped while it was done
            self._work.popleft()

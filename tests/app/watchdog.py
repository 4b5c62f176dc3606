"""How long the main thread is busy without letting anything else have its turn."""

import contextlib
import threading
import time
from pathlib import Path

from PySide6.QtCore import QObject, QTimer

TICK_MS = 1


class Watchdog(QObject):
    """Ticks between events; the longest time between two ticks is the longest block.

    Time in which the system had given the processor to others is not ours, and is taken off where
    the system tells it (Linux): what is left is what this thread computed or waited for.
    """

    def __init__(self) -> None:
        super().__init__()
        self._stat = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")
        self._timer = QTimer(self)
        self._timer.setInterval(TICK_MS)
        self._timer.timeout.connect(self._tick)
        self.worst_s = 0.0
        self._last = self._now()

    def start(self) -> None:
        self.worst_s = 0.0
        self._last = self._now()
        self._timer.start()

    def stop(self) -> float:
        """Return the longest block in seconds."""
        self._tick()
        self._timer.stop()
        return self.worst_s

    def _now(self) -> tuple[float, float]:
        waited_s = 0.0
        with contextlib.suppress(OSError, ValueError, IndexError):
            waited_s = int(self._stat.read_text().split()[1]) / 1e9  # ready, and not let
        return time.monotonic(), waited_s

    def _tick(self) -> None:
        now = self._now()
        block_s = (now[0] - self._last[0]) - (now[1] - self._last[1]) - TICK_MS / 1000
        self.worst_s = max(self.worst_s, block_s)
        self._last = now


@contextlib.contextmanager
def watched():
    # What it gives has the longest block in ``worst_s``.
    dog = Watchdog()
    dog.start()
    try:
        yield dog
    finally:
        dog.stop()

"""How long the main thread is busy without letting anything else have its turn."""

import contextlib
import threading
import time
from pathlib import Path

from PySide6.QtCore import QObject, QTimer

TICK_MS = 1
SUSPECT_S = 0.05  # from here on it is looked at whether another thread of ours was held up


class Watchdog(QObject):
    """Ticks between events; the longest time between two ticks is the longest block.

    Time in which the system had given the processor to others is not ours, and is taken off where
    the system tells it (Linux): what is left is what this thread computed or waited for. That goes
    for our other threads too: one that has Python's lock and is not let holds this one up.
    """

    def __init__(self) -> None:
        super().__init__()
        self._stat = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")
        self._timer = QTimer(self)
        self._timer.setInterval(TICK_MS)
        self._timer.timeout.connect(self._tick)
        self.worst_s = 0.0
        self._last = self._now()
        self._look(self._last)

    def start(self) -> None:
        self.worst_s = 0.0
        self._last = self._now()
        self._look(self._last)
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

    def _look(self, now: tuple[float, float]) -> None:
        """Take note of how long our other threads had been held up by now."""
        self._looked_s, self._others_s = now[0], _waited_s() - now[1]

    def _tick(self) -> None:
        now = self._now()
        block_s = (now[0] - self._last[0]) - (now[1] - self._last[1]) - TICK_MS / 1000
        if block_s > SUSPECT_S:
            block_s -= max(0.0, _waited_s() - now[1] - self._others_s)
        if now[0] - self._looked_s > SUSPECT_S:
            self._look(now)
        self.worst_s = max(self.worst_s, block_s)
        self._last = self._now()


def _waited_s() -> float:
    """Return how long all threads of this process were ready and not let, in sum."""
    waited_s = 0.0
    for stat in Path("/proc/self/task").glob("*/schedstat"):
        with contextlib.suppress(OSError, ValueError, IndexError):  # a thread may end meanwhile
            waited_s += int(stat.read_text().split()[1]) / 1e9
    return waited_s


@contextlib.contextmanager
def watched():
    # What it gives has the longest block in ``worst_s``.
    dog = Watchdog()
    dog.start()
    try:
        yield dog
    finally:
        dog.stop()

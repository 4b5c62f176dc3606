"""This PC's node as a process: started where none runs, and left running when the window goes."""

from __future__ import annotations

import contextlib
import sys
from enum import Enum
from typing import TYPE_CHECKING, cast

import psutil
from PySide6.QtCore import QObject, QProcess, QTimer, Signal

from app.bridge.node_link import LinkState, NodeLink
from app.bridge.reach import read_reach

if TYPE_CHECKING:
    from pathlib import Path

START_WITHIN_MS = 30_000  # importing the engine on a cold disk


class NodeState(Enum):
    """What the window knows of this PC's node."""

    ABSENT = "absent"  # none runs
    STARTING = "starting"
    RUNNING = "running"
    SLOW = "slow"  # it runs and does not answer
    REFUSING = "refusing"  # something else answers in its place
    FAILED = "failed"  # it was started and did not come


class NodeProcess(QObject):
    """The node's process.

    Attributes:
        state_changed: Carries the ``NodeState``.
        restarted: It runs again, as another process than before.

    Thread: the main one; nothing here waits.
    """

    state_changed = Signal(object)
    restarted = Signal()

    def __init__(self, data_dir: Path, parent: QObject | None = None) -> None:
        """Begin; nothing is looked at before ``watch``.

        Args:
            data_dir: Daisy's data folder.
            parent: Owns it.
        """
        super().__init__(parent)
        self._data_dir = data_dir
        self._state = NodeState.ABSENT
        self._starts = False
        self._options: tuple[str, ...] = ()
        self._pid: int | None = None
        self._link = NodeLink(data_dir, self)
        self._link.state_changed.connect(self._on_link)
        self._patience = QTimer(self)
        self._patience.setSingleShot(True)
        self._patience.timeout.connect(self._on_late)

    @property
    def state(self) -> NodeState:
        """What is known."""
        return self._state

    @property
    def data_dir(self) -> Path:
        """The data folder it has."""
        return self._data_dir

    def watch(self, *, starts: bool) -> None:
        """Follow the node from now on.

        Args:
            starts: Start one wherever none runs.
        """
        self._starts = starts
        self._link.open()

    def start_with(self, pc_name: str, lend_bytes: int | None) -> None:
        """Start nodes from now on with what the person chose; one that runs is left as it is.

        Args:
            pc_name: As the other PCs are shown this one; empty for the system's name.
            lend_bytes: Memory it lends at most; None for no limit.
        """
        name = (f"--name={pc_name}",) if pc_name else ()
        limit = () if lend_bytes is None else (f"--memory={lend_bytes}",)
        self._options = (*name, *limit)

    def start(self) -> None:
        """Start a node if none runs; it outlives the window."""
        if read_reach(self._data_dir) is not None or self._patience.isActive():
            return
        program = node_command(self._data_dir)
        program += self._options
        process = QProcess()
        process.setProgram(program[0])
        process.setArguments(program[1:])
        process.setStandardInputFile(QProcess.nullDevice())
        process.setStandardOutputFile(QProcess.nullDevice())
        process.setStandardErrorFile(str(self._log_file()))
        has_begun = cast("bool", process.startDetached())  # a pair only where Qt is asked for one
        if has_begun:
            self._patience.start(START_WITHIN_MS)
        self._set_state(NodeState.STARTING if has_begun else NodeState.FAILED)

    def stop(self) -> None:
        """Stop following the node, and end it if a window of ours started it; returns at once.

        A node somebody started by hand goes on.
        """
        self._starts = False
        self._link.close()
        self._patience.stop()
        reach = read_reach(self._data_dir)
        with contextlib.suppress(OSError, ValueError, psutil.Error):
            own_pid = int(self._own_file().read_text(encoding="ascii"))
            if reach is not None and reach.pid == own_pid:
                psutil.Process(own_pid).terminate()
            self._own_file().unlink()

    def _own_file(self) -> Path:
        """Return where the process id of a node a window started is kept."""
        return self._log_file().with_name("node.pid")

    def _log_file(self) -> Path:
        """Return where a node that can't start says why; the last one only."""
        folder = self._data_dir / "app"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / "node-errors.txt"

    def _on_late(self) -> None:
        if self._state is NodeState.STARTING:
            self._set_state(NodeState.FAILED)

    def _on_link(self, state: LinkState) -> None:
        match state:
            case LinkState.ABSENT:
                self._on_absent()
            case LinkState.OPEN:
                self._on_open()
            case LinkState.SLOW:
                self._set_state(NodeState.SLOW)
            case LinkState.REFUSING if not self._patience.isActive():
                self._set_state(NodeState.REFUSING)

    def _on_absent(self) -> None:
        if self._patience.isActive() or self._state is NodeState.FAILED:
            return
        self._set_state(NodeState.ABSENT)
        if self._starts:
            self.start()

    def _on_open(self) -> None:
        reach = self._link.reach
        pid = None if reach is None else reach.pid
        if self._patience.isActive():  # it is the one that was started here
            self._patience.stop()
            with contextlib.suppress(OSError):
                self._own_file().write_text(str(pid), encoding="ascii")
        was, self._pid = self._pid, pid
        self._set_state(NodeState.RUNNING)
        if was not in {None, pid}:
            self.restarted.emit()

    def _set_state(self, state: NodeState) -> None:
        if state is not self._state:
            self._state = state
            self.state_changed.emit(state)


def node_command(data_dir: Path) -> list[str]:
    """Return the command that starts a node of this installation.

    Args:
        data_dir: Daisy's data folder.
    """
    return [sys.executable, "-m", "engine.cli.entry", "node", "--data", str(data_dir)]

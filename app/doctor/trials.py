"""What the page asks this PC's node to try, over a connection of its own: it takes seconds."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QTimer, Signal

from app.bridge.node_link import NodeLink
from engine.errors import PeerTimeoutError, PeerUnreachableError
from engine.messages.control import ErrorReport
from engine.messages.deployment import Trouble
from engine.messages.doctor_control import DevicesTried, NetworkTried, TryDevices, TryNetwork
from engine.pool.findings import Tried

if TYPE_CHECKING:
    from pathlib import Path

    from engine.errors import DaisyError
    from engine.messages.message import Message

NODE_WITHIN_MS = 5000
NETWORK_WITHIN_MS = 30_000
DEVICES_WITHIN_MS = 900_000  # a driver that compiles for the first time, on several devices


class Trials(QObject):
    """One round of trials at a time: the network, then the devices.

    Attributes:
        changed: More is known, or the round has ended.

    Thread: the main one; nothing here waits.
    """

    changed = Signal()

    def __init__(self, data_dir: Path, parent: QObject | None = None) -> None:
        """Begin with nothing tried.

        Args:
            data_dir: Daisy's data folder, which the node has.
            parent: Owns it.
        """
        super().__init__(parent)
        self.tried = Tried()
        self._left: list[tuple[Message, int]] = []
        self._link = NodeLink(data_dir, self)
        self._link.opened.connect(self._ask)
        self._link.lost.connect(self._on_lost)
        self._link.received.connect(self._on_received)
        self._deadline = QTimer(self)
        self._deadline.setSingleShot(True)
        self._deadline.timeout.connect(self._on_late)

    @property
    def is_running(self) -> bool:
        """Whether something is being tried."""
        return bool(self._left)

    def run(self) -> None:
        """Try everything again; nothing happens while something is being tried."""
        if self._left:
            return
        self.tried = Tried()
        self._left = [(TryNetwork(), NETWORK_WITHIN_MS), (TryDevices(), DEVICES_WITHIN_MS)]
        self._deadline.start(NODE_WITHIN_MS)
        self._link.open()
        self.changed.emit()

    def stop(self) -> None:
        """Try no more; the node ends what it tries."""
        self._left = []
        self._deadline.stop()
        self._link.close()

    def _ask(self) -> None:
        if self._left:
            question, within_ms = self._left[0]
            self._deadline.start(within_ms)
            self._link.send(question)

    def _on_received(self, message: object) -> None:
        match message:
            case NetworkTried():
                self.tried = replace(self.tried, network=message)
            case DevicesTried():
                self.tried = replace(self.tried, devices=message)
            case ErrorReport():
                self._note(Trouble(message.code, message.what, message.advice))
            case _:
                return
        self._left = self._left[1:]
        if self._left:
            self._ask()
        else:
            self.stop()
        self.changed.emit()

    def _on_lost(self) -> None:
        self._give_up(PeerUnreachableError("The node of this PC left while it was trying."))

    def _on_late(self) -> None:
        self._give_up(PeerTimeoutError("The node of this PC did not answer."))

    def _give_up(self, error: DaisyError) -> None:
        if self._left:
            self._note(Trouble(error.code, error.what, error.advice))
            self.stop()
            self.changed.emit()

    def _note(self, trouble: Trouble) -> None:
        self.tried = replace(self.tried, troubles=(*self.tried.troubles, trouble))

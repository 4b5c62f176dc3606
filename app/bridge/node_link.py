"""One connection to this PC's node, opened again whenever it is lost."""

from __future__ import annotations

import logging
import time
from enum import Enum
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QTimer, Signal
from PySide6.QtNetwork import QHostAddress, QNetworkProxy, QTcpSocket

import engine
from app.bridge.frames import FrameBuffer, framed
from app.bridge.reach import read_reach
from engine.errors import RemoteProtocolError
from engine.messages.codec import Unknown, decode, encode_control
from engine.messages.control import Hello
from engine.messages.pool_control import OpenControl

if TYPE_CHECKING:
    from pathlib import Path

    from app.bridge.reach import Reach
    from engine.messages.message import Message

OPEN_WITHIN_MS = 3000  # from connecting to the node's hello
READ_FOR_S = 0.008  # of the main thread, before everything else has its turn
BUFFER_BYTES = 4 << 20  # beyond it the node waits: a frame has 1 MiB at most
BACK_OFF_MS = (100, 200, 500, 1000, 2000)

_logger = logging.getLogger(__name__)


class LinkState(Enum):
    """How a connection is."""

    CLOSED = "closed"  # nobody wants it
    ABSENT = "absent"  # no node runs
    CONNECTING = "connecting"
    OPEN = "open"
    SLOW = "slow"  # a node took the connection and does not answer
    REFUSING = "refusing"  # what listens there cut it off, or is no node


class NodeLink(QObject):
    """One connection.

    Attributes:
        state_changed: Carries the ``LinkState``.
        opened: It is open, for the first time or again.
        lost: It was open and is no longer; what was under way on it is not.
        received: Carries each decoded message.

    Thread: the main one; nothing here waits.
    """

    state_changed = Signal(object)
    opened = Signal()
    lost = Signal()
    received = Signal(object)

    def __init__(self, data_dir: Path, parent: QObject | None = None) -> None:
        """Begin closed.

        Args:
            data_dir: Daisy's data folder, which the node has.
            parent: Owns it.
        """
        super().__init__(parent)
        self._data_dir = data_dir
        self._state = LinkState.CLOSED
        self._reach: Reach | None = None
        self._buffer = FrameBuffer()
        self._num_failures = 0
        self._is_aborting = False
        self._socket = QTcpSocket(self)
        self._socket.setProxy(QNetworkProxy(QNetworkProxy.ProxyType.NoProxy))
        self._socket.setReadBufferSize(BUFFER_BYTES)
        self._socket.connected.connect(self._on_connected)
        self._socket.readyRead.connect(self._read)
        self._socket.disconnected.connect(self._on_disconnected)
        self._socket.errorOccurred.connect(self._on_error)
        self._deadline = _single_shot(self, self._on_deadline)
        self._again = _single_shot(self, self._connect)
        self._rest = _single_shot(self, self._read)

    @property
    def state(self) -> LinkState:
        """How it is."""
        return self._state

    @property
    def reach(self) -> Reach | None:
        """Of the node it is, or was last, connected to."""
        return self._reach

    def open(self) -> None:
        """Want it open, from now on; returns at once."""
        if self._state is LinkState.CLOSED:
            self._num_failures = 0
            self._connect()

    def close(self) -> None:
        """Want it no longer; what was sent before still goes out."""
        was_open = self._state is LinkState.OPEN
        self._set_state(LinkState.CLOSED)
        for timer in (self._deadline, self._again, self._rest):
            timer.stop()
        self._buffer = FrameBuffer()
        if was_open:
            self._socket.disconnectFromHost()
        else:
            self._abort()

    def send(self, message: Message) -> bool:
        """Send a message; returns at once.

        Args:
            message: Of the control protocol.

        Returns:
            False where it is not open: nothing was sent.

        Raises:
            LocalProtocolError: The message is longer than one may be, or wrong.
        """
        frame = framed(encode_control(message))
        if self._state is not LinkState.OPEN:
            return False
        self._socket.write(frame)
        return True

    # ---- connecting ---------------------------------------------------------------------------

    def _connect(self) -> None:
        self._reach = read_reach(self._data_dir)
        if self._reach is None:
            self._set_state(LinkState.ABSENT)
            self._try_again()
            return
        if self._state not in {LinkState.SLOW, LinkState.REFUSING}:  # said until it is mended
            self._set_state(LinkState.CONNECTING)
        self._buffer = FrameBuffer()
        self._deadline.start(OPEN_WITHIN_MS)
        self._abort()
        self._socket.connectToHost(QHostAddress.SpecialAddress.LocalHost, self._reach.control_port)

    def _on_connected(self) -> None:
        if self._reach is not None:
            opening = OpenControl(token=self._reach.token, product_version=engine.__version__)
            self._socket.write(framed(encode_control(opening)))

    def _on_deadline(self) -> None:
        self._give_up(LinkState.SLOW)

    def _on_error(self) -> None:
        if self._state not in {LinkState.CLOSED, LinkState.OPEN} and not self._is_aborting:
            self._give_up(LinkState.REFUSING)

    def _on_disconnected(self) -> None:
        if self._is_aborting:
            return
        if self._state is LinkState.OPEN:
            self._read()  # what came before the end
        if self._state is not LinkState.CLOSED:
            self._give_up(LinkState.REFUSING)

    def _abort(self) -> None:
        """Let the socket go; that is nothing it need report."""
        self._is_aborting = True
        self._socket.abort()
        self._is_aborting = False

    def _give_up(self, state: LinkState) -> None:
        """Let this connection go, say so, and try again a little later."""
        was_open = self._state is LinkState.OPEN
        self._deadline.stop()
        self._rest.stop()
        self._set_state(LinkState.CONNECTING if was_open else state)
        self._abort()
        self._try_again()
        if was_open:
            self.lost.emit()

    def _try_again(self) -> None:
        if not self._again.isActive():
            self._again.start(BACK_OFF_MS[min(self._num_failures, len(BACK_OFF_MS) - 1)])
            self._num_failures += 1

    def _set_state(self, state: LinkState) -> None:
        if state is not self._state:
            self._state = state
            self.state_changed.emit(state)

    # ---- reading ------------------------------------------------------------------------------

    def _read(self) -> None:
        """Read for a few milliseconds; what is left has its turn after everything else."""
        until_s = time.perf_counter() + READ_FOR_S
        self._buffer.feed(self._socket.readAll().data())
        try:
            while (frame := self._buffer.next_frame()) is not None:
                self._take(decode(frame))
                if self._state is LinkState.CLOSED:
                    return
                if time.perf_counter() >= until_s:
                    self._rest.start(0)
                    return
        except RemoteProtocolError as error:
            _logger.warning("control port: %s", error.what)
            self._give_up(LinkState.REFUSING)

    def _take(self, message: object) -> None:
        if self._state is LinkState.OPEN:
            if not isinstance(message, Unknown):
                self.received.emit(message)
            return
        if not isinstance(message, Hello) or self._reach is None:
            raise RemoteProtocolError("What listens at the control port is no node.")
        if message.node_id != self._reach.node_id:
            raise RemoteProtocolError("Another node has the control port by now.")
        self._deadline.stop()
        self._num_failures = 0
        self._set_state(LinkState.OPEN)
        self.opened.emit()


def _single_shot(parent: QObject, slot: object) -> QTimer:
    timer = QTimer(parent)
    timer.setSingleShot(True)
    timer.timeout.connect(slot)
    return timer

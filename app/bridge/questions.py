"""Questions to this PC's node that have one answer each, asked one after the other."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from PySide6.QtCore import QObject, QTimer

from app.bridge.node_link import LinkState, NodeLink
from app.bridge.problem import Problem, problem_of
from engine.errors import PeerTimeoutError, PeerUnreachableError
from engine.messages.control import ErrorReport

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from engine.messages.message import Message

ANSWER_WITHIN_MS = 20_000
REST_AFTER_MS = 5000  # nobody asks: the connection ends
MAX_WAITING = 32


class _Question(NamedTuple):
    message: Message
    kind: type[Message]
    done: Callable[[Any], None]
    failed: Callable[[Problem], None]


class Questions(QObject):
    """Over a connection of its own, which is there while something is asked.

    Thread: the main one; nothing here waits.
    """

    def __init__(
        self, data_dir: Path, parent: QObject | None = None, within_ms: int = ANSWER_WITHIN_MS
    ) -> None:
        """Begin with none.

        Args:
            data_dir: Daisy's data folder, which the node has.
            parent: Owns it.
            within_ms: Of a question's turn; one that has no answer by then has failed.
        """
        super().__init__(parent)
        self._waiting: deque[_Question] = deque()
        self._link = NodeLink(data_dir, self)
        self._link.opened.connect(self._send)
        self._link.lost.connect(self._on_lost)
        self._link.received.connect(self._on_received)
        self._deadline = QTimer(self, singleShot=True, interval=within_ms)
        self._deadline.timeout.connect(self._on_late)
        self._rest = QTimer(self, singleShot=True, interval=REST_AFTER_MS)
        self._rest.timeout.connect(self._link.close)

    @property
    def num_waiting(self) -> int:
        """Questions that have no answer yet."""
        return len(self._waiting)

    def ask(
        self,
        message: Message,
        kind: type[Message],
        done: Callable[[Any], None],
        failed: Callable[[Problem], None],
    ) -> None:
        """Ask, once everything that was asked before has its answer.

        Args:
            message: The question.
            kind: Of its answer.
            done: Told the answer.
            failed: Told the problem where the node refuses, leaves, or does not answer in time.
        """
        if len(self._waiting) >= MAX_WAITING:
            failed(problem_of(PeerTimeoutError("This PC's node has not answered for a while.")))
            return
        self._waiting.append(_Question(message, kind, done, failed))
        self._rest.stop()
        if len(self._waiting) == 1:
            self._begin()

    def _begin(self) -> None:
        self._deadline.start()
        if self._link.state is LinkState.OPEN:
            self._send()
        else:
            self._link.open()

    def _send(self) -> None:
        if self._waiting:
            self._link.send(self._waiting[0].message)

    def _on_received(self, message: object) -> None:
        if not self._waiting:
            return
        if isinstance(message, self._waiting[0].kind):
            self._next().done(message)
        elif isinstance(message, ErrorReport) and message.request_id is None:
            self._next().failed(problem_of(message))

    def _on_lost(self) -> None:
        self._give_up(PeerUnreachableError("The node of this PC left before it answered."))

    def _on_late(self) -> None:
        self._link.close()  # an answer that comes later is none to the next question
        self._give_up(PeerTimeoutError("The node of this PC did not answer in time."))

    def _give_up(self, error: PeerUnreachableError | PeerTimeoutError) -> None:
        if self._waiting:
            self._next().failed(problem_of(error))

    def _next(self) -> _Question:
        """Take the question that is over, and go on with the one behind it."""
        question = self._waiting.popleft()
        self._deadline.stop()
        if self._waiting:
            self._begin()
        else:
            self._rest.start()
        return question

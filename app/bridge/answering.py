"""Requests of this window: sent, followed, and sent again where the node was restarted."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QTimer, Signal

from app.bridge.answer import Answer
from app.bridge.node_link import LinkState, NodeLink
from app.bridge.problem import Problem, problem_of
from engine.errors import RemoteProtocolError
from engine.messages.control import (
    Accepted,
    AnswerInterrupted,
    AnswerProgress,
    AnswerResumed,
    Cancel,
    ErrorReport,
    Finished,
    TextDelta,
)

if TYPE_CHECKING:
    from pathlib import Path

    from engine.messages.control import Generate

PACE_OVER_S = 2.0  # tokens a second are counted over so long


class Answering(QObject):
    """Every request under way, over one connection.

    Attributes:
        accepted: Carries the request's id and the ``Accepted``.
        text_came: Carries the id, the text, and the ids of its tokens.
        progressed: Carries the id and the ``AnswerProgress``; before any text.
        interrupted: Carries the id and one sentence: a PC was lost, or this PC's node.
        resumed: Carries the id and the pause in seconds.
        finished: Carries the id and the ``Finished``.
        failed: Carries the id and the ``Problem``.
        pace_changed: Carries tokens a second of all answers together; 0.0 when none runs.
        running_changed: Carries how many run.
        link_changed: Carries the connection's ``LinkState``.

    Thread: the main one.
    """

    accepted = Signal(str, object)
    text_came = Signal(str, str, object)
    progressed = Signal(str, object)
    interrupted = Signal(str, str)
    resumed = Signal(str, float)
    finished = Signal(str, object)
    failed = Signal(str, object)
    pace_changed = Signal(float)
    running_changed = Signal(int)
    link_changed = Signal(object)

    def __init__(self, data_dir: Path, parent: QObject | None = None) -> None:
        """Begin with none; the connection opens with ``open``.

        Args:
            data_dir: Daisy's data folder, which the node has.
            parent: Owns it.
        """
        super().__init__(parent)
        self._answers: dict[str, Answer] = {}
        self._cut_s: dict[str, float] = {}  # since when an answer waits for this PC's node
        self._passed: deque[tuple[float, int]] = deque()  # when, and how many tokens
        self._link = NodeLink(data_dir, self)
        self._link.opened.connect(self._send_all)
        self._link.lost.connect(self._on_lost)
        self._link.received.connect(self._on_received)
        self._link.state_changed.connect(self.link_changed)
        self._pace = QTimer(self)
        self._pace.setInterval(500)
        self._pace.timeout.connect(self._tell_pace)

    @property
    def state(self) -> LinkState:
        """How the connection is."""
        return self._link.state

    @property
    def num_running(self) -> int:
        """Requests under way."""
        return len(self._answers)

    def answer(self, request_id: str) -> Answer | None:
        """Return what came of a request that runs.

        Args:
            request_id: Of it.
        """
        return self._answers.get(request_id)

    def open(self) -> None:
        """Connect, from now on."""
        self._link.open()

    def ask(self, request: Generate) -> None:
        """Send a request; at once, or as soon as the node can be reached.

        Args:
            request: With an id of its own.

        Raises:
            LocalProtocolError: It is longer than a request may be.
        """
        self._link.send(request)
        self._answers[request.request_id] = Answer(request)
        self.running_changed.emit(len(self._answers))
        self._pace.start()

    def stop(self, request_id: str) -> None:
        """Want no more of it; ``finished`` comes with how far it came.

        Args:
            request_id: Of a request; nothing happens for one that does not run.
        """
        answer = self._answers.get(request_id)
        if answer is None or self._link.send(Cancel(request_id=request_id)):
            return
        self._end(request_id)  # no node knows of it
        self.finished.emit(request_id, _stopped(answer))

    # ---- the connection -----------------------------------------------------------------------

    def _send_all(self) -> None:
        for answer in list(self._answers.values()):
            self._link.send(answer.request)

    def _on_lost(self) -> None:
        for request_id in list(self._answers):
            if request_id not in self._cut_s:
                self._cut_s[request_id] = time.monotonic()
                self.interrupted.emit(request_id, "")

    def _on_received(self, message: object) -> None:
        request_id = getattr(message, "request_id", None)
        answer = None if request_id is None else self._answers.get(request_id)
        if answer is None:
            return
        try:
            self._take(answer, message)
        except RemoteProtocolError as error:
            self._link.send(Cancel(request_id=answer.request_id))
            self._fail(answer.request_id, problem_of(error))

    def _take(self, answer: Answer, message: object) -> None:
        name = answer.request_id
        match message:
            case Accepted():
                answer.accept(message)
                self.accepted.emit(name, message)
            case TextDelta():
                text = answer.take(message)
                self._resume(name)
                self._count(len(message.token_ids))
                self.text_came.emit(name, text, message.token_ids)
            case AnswerProgress():
                self.progressed.emit(name, message)
            case AnswerInterrupted():
                self.interrupted.emit(name, message.what)
            case AnswerResumed():
                self.resumed.emit(name, message.pause_s)
            case Finished():
                self._resume(name)
                self._end(name)
                self.finished.emit(name, message)
            case ErrorReport():
                self._fail(name, problem_of(message))

    def _resume(self, name: str) -> None:
        since_s = self._cut_s.pop(name, None)
        if since_s is not None:
            self.resumed.emit(name, time.monotonic() - since_s)

    def _fail(self, name: str, problem: Problem) -> None:
        self._end(name)
        self.failed.emit(name, problem)

    def _end(self, name: str) -> None:
        self._answers.pop(name, None)
        self._cut_s.pop(name, None)
        self.running_changed.emit(len(self._answers))

    # ---- pace ---------------------------------------------------------------------------------

    def _count(self, num_tokens: int) -> None:
        self._passed.append((time.monotonic(), num_tokens))

    def _tell_pace(self) -> None:
        since_s = time.monotonic() - PACE_OVER_S
        while self._passed and self._passed[0][0] < since_s:
            self._passed.popleft()
        self.pace_changed.emit(sum(num for _, num in self._passed) / PACE_OVER_S)
        if not self._answers and not self._passed:
            self._pace.stop()


def _stopped(answer: Answer) -> Finished:
    return Finished(
        request_id=answer.request_id,
        finish_reason="cancelled",
        prompt_tokens=answer.prompt_tokens,
        completion_tokens=len(answer.token_ids),
        ttft_s=None,
        decode_s=0.0,
        chain_compute_ms=0.0,
    )

"""What this PC asks the pool to run, over a connection of its own: the node waits on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal

from app.bridge.node_link import NodeLink
from app.bridge.problem import Problem, problem_of
from engine.errors import DaisyError, PeerUnreachableError, RequestError
from engine.messages.control import ErrorReport
from engine.messages.pool_control import DeploymentReport, LoadModel, UnloadModel

if TYPE_CHECKING:
    from pathlib import Path

    from engine.messages.message import Message


class Loading(QObject):
    """One load or unload at a time.

    Attributes:
        reported: Carries each ``DeploymentReport`` of what was asked here.
        done: The pool runs what was asked.
        failed: Carries the ``Problem``.
        busy_changed: Carries whether something asked here is under way.

    Thread: the main one.
    """

    reported = Signal(object)
    done = Signal()
    failed = Signal(object)
    busy_changed = Signal(bool)

    def __init__(self, data_dir: Path, parent: QObject | None = None) -> None:
        """Begin with nothing asked.

        Args:
            data_dir: Daisy's data folder, which the node has.
            parent: Owns it.
        """
        super().__init__(parent)
        self._asked: Message | None = None
        self._is_recorded = False  # the pool knows the wish: it goes on without us
        self.last_source: str | None = None  # what was asked for last; None: the embedded model
        self._link = NodeLink(data_dir, self)
        self._link.opened.connect(self._send)
        self._link.lost.connect(self._on_lost)
        self._link.received.connect(self._on_received)

    @property
    def is_busy(self) -> bool:
        """Whether something asked here is under way."""
        return self._asked is not None

    def load(
        self, source: str | None, context_tokens: int | None = None, max_sequences: int = 4
    ) -> None:
        """Ask the pool to run a model; what was asked before is given up.

        Args:
            source: A folder or a GGUF on this PC; None for the embedded model.
            context_tokens: Of one chat; None leaves it to the model.
            max_sequences: Answers at the same time.
        """
        self.last_source = source
        self._ask(
            LoadModel(source=source, context_tokens=context_tokens, max_sequences=max_sequences)
        )

    def unload(self) -> None:
        """Ask the pool to run nothing."""
        self._ask(UnloadModel())

    def cancel(self) -> None:
        """Give up: a conversion stops, and what the pool works on already is unloaded."""
        if self._asked is None:
            return
        if isinstance(self._asked, LoadModel) and self._is_recorded:
            self.unload()
        else:
            self._end()

    def _ask(self, message: Message) -> None:
        was_busy = self.is_busy
        self._link.close()
        self._asked, self._is_recorded = message, False
        self._link.open()
        if not was_busy:
            self.busy_changed.emit(True)

    def _send(self) -> None:
        if self._asked is not None:
            self._link.send(self._asked)

    def _on_lost(self) -> None:
        self._fail(
            problem_of(PeerUnreachableError("The node of this PC left while it was loading."))
        )

    def _on_received(self, message: object) -> None:
        if isinstance(message, ErrorReport):
            self._fail(problem_of(message))
        elif isinstance(message, DeploymentReport):
            self.reported.emit(message)
            if isinstance(self._asked, LoadModel):
                self._on_load_report(message)
            elif self._asked is not None:
                self._on_unload_report(message)

    def _on_load_report(self, report: DeploymentReport) -> None:
        record = report.deployment
        is_ours = (
            record is not None and record.wish is not None and record.wish.wish_id == report.wish_id
        )
        if record is not None and is_ours:
            self._is_recorded = True
            if record.phase == "ready":
                self._finish()
            elif record.phase == "failed" and record.trouble is not None:
                self._fail(problem_of(record.trouble))
        elif report.trouble is not None:
            self._fail(problem_of(report.trouble))
        elif self._is_recorded:
            self._fail(_replaced())

    def _on_unload_report(self, report: DeploymentReport) -> None:
        if report.trouble is not None:
            self._fail(problem_of(report.trouble))
        elif report.deployment is None or report.deployment.phase == "unloaded":
            self._finish()

    def _finish(self) -> None:
        self._end()
        self.done.emit()

    def _fail(self, problem: Problem) -> None:
        if self._asked is not None:
            self._end()
            self.failed.emit(problem)

    def _end(self) -> None:
        self._asked = None
        self._link.close()
        self.busy_changed.emit(False)


def _replaced() -> Problem:
    error: DaisyError = RequestError("Somebody asked the pool for something else meanwhile.")
    return problem_of(error)

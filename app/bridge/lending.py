"""When this PC lends itself: chosen by its person, kept by the node, which is told who is here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from PySide6.QtCore import QObject, QTimer, Signal

from app.bridge.questions import Questions
from engine.messages.own_pc_control import AskLending, LendingReport, SetLending, TellIdle

if TYPE_CHECKING:
    from pathlib import Path

    from app.bridge.idle import IdleSource
    from app.bridge.problem import Problem
    from engine.messages.message import Message

LOOK_EVERY_MS = 5000  # the node takes a PC for used that is silent for half a minute
ANSWER_WITHIN_MS = 5000
IDLE_AFTER_S = 300.0  # nobody touched it

Rule = Literal["now", "idle", "never"]


class Lending(QObject):
    """What holds, and how it is changed.

    Attributes:
        changed: Something about it is otherwise.
        failed: Carries the ``Problem`` with a choice.

    Thread: the main one; nothing here waits.
    """

    changed = Signal()
    failed = Signal(object)

    def __init__(
        self, data_dir: Path, idle: IdleSource | None, parent: QObject | None = None
    ) -> None:
        """Begin with nothing known.

        Args:
            data_dir: Daisy's data folder, which the node has.
            idle: Tells how long nobody has used this PC; None where nobody can.
            parent: Owns it.
        """
        super().__init__(parent)
        self._questions = Questions(data_dir, self, ANSWER_WITHIN_MS)
        self._idle = idle
        self._idle_s: float | None = None
        self._report: LendingReport | None = None
        self._timer = QTimer(self, interval=LOOK_EVERY_MS)
        self._timer.timeout.connect(self._look)

    @property
    def report(self) -> LendingReport | None:
        """The newest; None before one came, and while the node does not answer."""
        return self._report

    @property
    def can_see_idle(self) -> bool:
        """Whether this desktop tells if somebody is here."""
        return self._idle_s is not None

    @property
    def is_held_back(self) -> bool:
        """Whether the node says that this PC is not lent now."""
        return self._report is not None and not self._report.is_lending

    def watch(self) -> None:
        """Follow it, and tell the node who is here, from now on."""
        self._timer.start()
        self._look()

    def unwatch(self) -> None:
        """Follow it no longer; under the rule "idle" this PC then counts as used."""
        self._timer.stop()

    def choose(self, rule: Rule) -> None:
        """Choose when this PC lends itself; that ends a pause.

        Args:
            rule: From now on.
        """
        self._ask(SetLending(rule=rule), is_choice=True)
        self._look()

    def pause(self, seconds: float) -> None:
        """Lend nothing for a while.

        Args:
            seconds: How long; 0 ends a pause.
        """
        self._ask(SetLending(pause_s=seconds), is_choice=True)

    def lend_on_battery(self, *, on: bool) -> None:
        """Choose whether this PC lends itself while it runs on its battery, too.

        Args:
            on: Whether.
        """
        self._ask(SetLending(mains_only=not on), is_choice=True)

    def _look(self) -> None:
        if self._idle is None:
            self._on_idle(None)
        else:
            self._idle.look(self._on_idle)

    def _on_idle(self, idle_s: float | None) -> None:
        could_see, self._idle_s = self.can_see_idle, idle_s
        if could_see != self.can_see_idle:
            self.changed.emit()
        if self._questions.num_waiting > 1:
            return  # the node is slow, or none runs: nothing is piled up
        if idle_s is not None and self._report is not None and self._report.rule == "idle":
            self._ask(TellIdle(is_idle=idle_s >= IDLE_AFTER_S))
        else:
            self._ask(AskLending())

    def _ask(self, message: Message, *, is_choice: bool = False) -> None:
        failed = self._on_refused if is_choice else self._on_silent
        self._questions.ask(message, LendingReport, self._on_report, failed)

    def _on_report(self, report: LendingReport) -> None:
        self._report = report
        self.changed.emit()

    def _on_refused(self, problem: Problem) -> None:
        self.failed.emit(problem)
        self._on_silent(problem)

    def _on_silent(self, _problem: Problem) -> None:
        if self._report is not None:
            self._report = None
            self.changed.emit()

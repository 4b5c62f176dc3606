"""How far loading a model is, in five phases and a line for each PC; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.cli.amounts import amount_of, duration, rate, time_left
from engine.cli.pace import Pace, seconds_left
from engine.cli.plan_table import names_of, short
from engine.cli.shown_text import padded, printable, width

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.domain import NodeId
    from engine.messages.deployment import Deployment, NodeProgress, Step
    from engine.messages.pool_control import DeploymentReport

PHASES: tuple[Step, ...] = ("convert", "split", "push", "compile", "warm-up")
_BAR_CELLS = 20
_TOLD_FROM = 20  # the time left is told once this part, a twentieth, is done
_ORDER = {step: number for number, step in enumerate(PHASES)}
_RANK: dict[Step, float] = {**_ORDER, "keep": _ORDER["convert"] + 0.5}  # which of two is later
_SHOWN: dict[Step, str] = {"keep": "store"}  # the others are shown as they are called
# Of the phases of the record that are one of ours, or lie between two; "failed" changes nothing.
_OF_PHASE = {"planning": 1, "splitting": 1, "warming": 4, "ready": len(PHASES)}


class LoadView:
    """What is known of one loading, and its lines.

    Knows nothing of terminals: whoever shows the lines decides how often.
    """

    def __init__(
        self, names: Mapping[NodeId, str], began_s: float, own: NodeId | None = None
    ) -> None:
        """Begin; nothing was reported.

        Args:
            names: Of the pool's PCs, printable, as far as they are known.
            began_s: When it was asked for.
            own: The node that was asked; what others prepare is for another loading. None
                where it isn't known, or where everything is to be seen.
        """
        self._own = own
        self._names = dict(names)
        self._began_s = began_s
        self._epoch = 0
        self._current = _ORDER["convert"]
        self._is_running = True
        self._entered_s = began_s  # the current phase
        self._spent_s: dict[str, float] = {}
        self._steps: dict[tuple[NodeId, Step], NodeProgress] = {}
        self._paces: dict[tuple[NodeId, Step], Pace] = {}
        self._first_s: dict[tuple[NodeId, Step], float] = {}

    def see(self, report: DeploymentReport, now_s: float, *, is_recorded: bool) -> None:
        """Take note of a report.

        Args:
            report: The newest.
            now_s: On the clock of ``began_s``.
            is_recorded: Whether its record is of the wish that is watched.
        """
        record = report.deployment if is_recorded else None
        if record is not None:
            self._names |= names_of(record.plan)
            if record.epoch != self._epoch:
                self._forget_placement(record.epoch)
        for step in report.progress:
            if self._is_anothers(step, is_recorded=is_recorded):
                continue
            # Once the pool has taken it up, who keeps another copy is not part of loading.
            if step.epoch in {0, self._epoch} and not (is_recorded and step.step == "keep"):
                self._take(step, now_s)
        if record is not None and record.phase == "ready":
            self._steps.clear()  # all are done, whether or not each has said so
        self._is_running = record is None or record.phase in {"splitting", "loading", "warming"}
        self._enter(self._phase_now(record), now_s)

    def phase_seconds(self, now_s: float) -> dict[str, float]:
        """Return how long each phase took that was gone through, in seconds.

        Args:
            now_s: Now; counts for the phase that runs.
        """
        self._enter(self._current, now_s)
        return dict(self._spent_s)

    def lines(self, now_s: float) -> list[str]:
        """Return everything, for a terminal that is drawn again and again.

        Args:
            now_s: Now.
        """
        return [self._heading(now_s), *(f"  {line}" for line in self.node_lines(now_s))]

    def node_lines(self, now_s: float) -> list[str]:
        """Return a line for each PC that does something.

        Args:
            now_s: Now.
        """
        newest = self._newest()
        longest = max((width(self._name(node)) for node in newest), default=0)
        return [
            f"{padded(self._name(node), longest)}  {self._step_text(step, now_s)}"
            for node, step in newest.items()
        ]

    # ---- what is known -------------------------------------------------------------------------

    def _is_anothers(self, step: NodeProgress, *, is_recorded: bool) -> bool:
        """Return whether a step belongs to what somebody else has the pool load."""
        if self._own is None:
            return False
        return step.node_id != self._own if step.epoch == 0 else not is_recorded

    def _forget_placement(self, epoch: int) -> None:
        self._epoch = epoch
        self._steps = {key: step for key, step in self._steps.items() if step.epoch == 0}
        self._paces = {key: pace for key, pace in self._paces.items() if key in self._steps}
        self._first_s = {key: at_s for key, at_s in self._first_s.items() if key in self._steps}

    def _enter(self, phase: int, now_s: float) -> None:
        if self._current < len(PHASES):
            name = PHASES[self._current]
            self._spent_s[name] = self._spent_s.get(name, 0.0) + now_s - self._entered_s
        self._current, self._entered_s = phase, now_s

    def _take(self, step: NodeProgress, now_s: float) -> None:
        key = (step.node_id, step.step)
        self._steps[key] = step
        self._first_s.setdefault(key, now_s)
        self._paces.setdefault(key, Pace()).see(step.done, now_s)

    def _phase_now(self, record: Deployment | None) -> int:
        """Return the number of the phase that runs, or of the one that comes next."""
        if record is None:
            return _ORDER["convert"]
        if record.phase != "loading":
            return _OF_PHASE.get(record.phase, self._current)
        newest = self._newest()
        working = [newest[s.node_id].step for s in record.stages if s.node_id in newest]
        has_all = len(working) == len(record.stages) and set(working) <= {"compile", "warm-up"}
        return _ORDER["compile" if has_all else "push"]

    def _newest(self) -> dict[NodeId, NodeProgress]:
        """Return the latest step of each PC, in the order in which they were heard of."""
        newest: dict[NodeId, NodeProgress] = {}
        for (node, _), step in self._steps.items():
            known = newest.get(node)
            if known is None or _RANK[step.step] >= _RANK[known.step]:
                newest[node] = step
        return newest

    def _name(self, node: NodeId) -> str:
        return self._names.get(node) or short(node)

    # ---- how it is shown -----------------------------------------------------------------------

    def _heading(self, now_s: float) -> str:
        marks = [self._mark(number) + f" {phase}" for number, phase in enumerate(PHASES)]
        return "  ".join(marks) + f"   {duration(now_s - self._began_s)}"

    def _mark(self, number: int) -> str:
        if number == self._current and self._is_running:
            return "[>]"
        return "[x]" if number < self._current else "[ ]"

    def _step_text(self, step: NodeProgress, now_s: float) -> str:
        words = [f"{_SHOWN.get(step.step, step.step):<7}"]
        is_done = 0 < step.total <= step.done
        if step.unit == "steps" and step.total <= 1:
            # Nobody knows how far it is, only that it goes on.
            taken_s = now_s - self._first_s[step.node_id, step.step]
            return "  ".join([*words, "done" if is_done else f"for {duration(taken_s)}"])
        if step.total > 0:
            share = min(1.0, step.done / step.total)
            filled = int(share * _BAR_CELLS)
            words.append(f"[{'#' * filled}{'.' * (_BAR_CELLS - filled)}] {int(share * 100):3d}%")
        words.append(amount_of(step.done, step.total, step.unit))
        if not is_done:
            words += self._pace_words(step, now_s)
        return "  ".join(words)

    def _pace_words(self, step: NodeProgress, now_s: float) -> list[str]:
        words = []
        per_s = step.rate_per_s or self._paces[step.node_id, step.step].rate_per_s(now_s)
        if per_s and per_s > 0:
            words.append(rate(per_s, step.unit))
        left_s = seconds_left(step.done, step.total, per_s)
        # The first chunk is slow, and what follows from it alone is far too long.
        if left_s is not None and step.done * _TOLD_FROM >= step.total:
            words.append(f"{time_left(left_s)} left")
        if step.detail:
            words.append(printable(step.detail))
        return words

"""How far loading a model is: five phases, and each PC's step with its rate and time left; pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from engine.domain import NodeId
    from engine.messages.deployment import Deployment, NodeProgress, Step
    from engine.messages.pool_control import DeploymentReport

PhaseMark = Literal["done", "now", "ahead"]

PHASES: tuple[Step, ...] = ("convert", "split", "push", "compile", "warm-up")
_ORDER = {step: number for number, step in enumerate(PHASES)}
_RANK: dict[Step, float] = {**_ORDER, "keep": _ORDER["convert"] + 0.5}  # which of two is later
# Of the record's phases those that are one of ours; "loading" is two, and "failed" changes nothing.
_OF_RECORD = {"planning": 1, "splitting": 1, "warming": 4, "ready": len(PHASES)}
_WINDOW_S = 8.0  # the rate is of this time: long enough to be calm, short enough to be true
_LEAST_S = 0.5


@dataclass(frozen=True, slots=True)
class PcProgress:
    """One PC's latest step.

    Attributes:
        share: Done of it, 0 to 1; None where nobody knows the whole.
        rate_per_s: Of the unit; None before it is known.
        left_s: Until it is done at that rate; None where nobody can tell.
        is_done: The step.
    """

    node_id: NodeId
    step: Step
    done: int
    total: int
    unit: Literal["bytes", "layers", "steps"]
    share: float | None
    rate_per_s: float | None
    left_s: float | None
    is_done: bool
    detail: str


@dataclass(frozen=True, slots=True)
class LoadPicture:
    """What is shown of one loading.

    Attributes:
        phases: A mark for each of ``PHASES``.
        pcs: Those that do something, in the order in which they were heard of.
        left_s: Until the phase is over, by the slowest PC; None where nobody can tell.
        taken_s: Since it was asked for.
    """

    phases: tuple[PhaseMark, ...]
    pcs: tuple[PcProgress, ...]
    left_s: float | None
    taken_s: float


class LoadProgress:
    """What is known of one loading."""

    def __init__(self, began_s: float) -> None:
        """Begin; nothing was reported.

        Args:
            began_s: When it was asked for, on a clock that never goes back.
        """
        self._began_s = began_s
        self._epoch = 0
        self._phase = 0
        self._steps: dict[tuple[NodeId, Step], NodeProgress] = {}
        self._paces: dict[tuple[NodeId, Step], _Pace] = {}

    def see(self, report: DeploymentReport, now_s: float, *, is_recorded: bool) -> None:
        """Take note of a report.

        Args:
            report: The newest.
            now_s: Now.
            is_recorded: Whether its record is of the wish that is watched.
        """
        record = report.deployment if is_recorded else None
        if record is not None and record.epoch != self._epoch:
            self._epoch = record.epoch
            self._steps = {key: step for key, step in self._steps.items() if step.epoch == 0}
        for step in report.progress:
            # Once the pool has taken it up, who keeps another copy is not part of loading.
            if step.epoch in {0, self._epoch} and not (is_recorded and step.step == "keep"):
                self._steps[step.node_id, step.step] = step
                self._paces.setdefault((step.node_id, step.step), _Pace()).see(step.done, now_s)
        self._phase = self._phase_now(record)
        if record is not None and record.phase == "ready":
            self._steps.clear()  # all are done, whether or not each has said so

    def picture(self, now_s: float) -> LoadPicture:
        """Return what is shown.

        Args:
            now_s: Now.
        """
        pcs = tuple(self._progress(step, now_s) for step in self._newest().values())
        known = [pc.left_s for pc in pcs if pc.left_s is not None and not pc.is_done]
        return LoadPicture(
            phases=tuple(_mark(number, self._phase) for number in range(len(PHASES))),
            pcs=pcs,
            left_s=max(known, default=None),
            taken_s=max(0.0, now_s - self._began_s),
        )

    def _phase_now(self, record: Deployment | None) -> int:
        if record is None:
            return _ORDER["convert"]
        if record.phase != "loading":
            return _OF_RECORD.get(record.phase, self._phase)
        newest = self._newest()
        working = [newest[s.node_id].step for s in record.stages if s.node_id in newest]
        has_all = len(working) == len(record.stages) and set(working) <= {"compile", "warm-up"}
        return _ORDER["compile" if has_all else "push"]

    def _newest(self) -> dict[NodeId, NodeProgress]:
        newest: dict[NodeId, NodeProgress] = {}
        for (node_id, _), step in self._steps.items():
            known = newest.get(node_id)
            if known is None or _RANK[step.step] >= _RANK[known.step]:
                newest[node_id] = step
        return newest

    def _progress(self, step: NodeProgress, now_s: float) -> PcProgress:
        has_measure = step.total > 1 or (step.unit != "steps" and step.total > 0)
        is_done = 0 < step.total <= step.done
        rate = step.rate_per_s or self._paces[step.node_id, step.step].rate_per_s(now_s)
        left_s = None
        if rate and rate > 0 and has_measure and not is_done:
            left_s = (step.total - step.done) / rate
        return PcProgress(
            node_id=step.node_id,
            step=step.step,
            done=step.done,
            total=step.total,
            unit=step.unit,
            share=min(1.0, max(0.0, step.done / step.total)) if has_measure else None,
            rate_per_s=rate if rate and rate > 0 else None,
            left_s=left_s,
            is_done=is_done,
            detail=step.detail,
        )


class _Pace:
    """How fast one step of one PC goes."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def see(self, done: int, now_s: float) -> None:
        if self._seen and done < self._seen[-1][1]:
            self._seen.clear()  # it has begun again
        self._seen.append((now_s, done))
        while len(self._seen) > 2 and now_s - self._seen[1][0] >= _WINDOW_S:
            self._seen.popleft()

    def rate_per_s(self, now_s: float) -> float | None:
        began_s, at_first = self._seen[0]
        if now_s - began_s < _LEAST_S:
            return None
        return (self._seen[-1][1] - at_first) / (now_s - began_s)


def _mark(number: int, phase: int) -> PhaseMark:
    if number < phase:
        return "done"
    return "now" if number == phase else "ahead"

"""How far this node is with its work, told to everybody, but not too often."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.messages.deployment import NodeProgress
from engine.messages.pool_control import ProgressReported

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.domain import NodeId
    from engine.messages.deployment import Step
    from engine.messages.message import Message

REPORT_EVERY_S = 0.25
RATE_OVER_S = 3.0  # a rate over less jumps about


class WorkReport:
    """One piece of work, from its first report to its last.

    Thread: the node's loop.
    """

    def __init__(
        self,
        node_id: NodeId,
        epoch: int,
        tell: Callable[[Message], None],
        now: Callable[[], float],
        detail: str = "",
    ) -> None:
        """Begin with nothing done.

        Args:
            node_id: This node.
            epoch: Of the placement it is for; 0 for none.
            tell: Hands a message to every node; returns at once.
            now: The loop's clock, in seconds.
            detail: A name to show.
        """
        self._node_id = node_id
        self._epoch = epoch
        self._tell = tell
        self._now = now
        self._detail = detail
        self._step: Step | None = None
        self._told_s = 0.0
        self._marks: list[tuple[float, int]] = []  # when, and how much was done

    def __call__(self, step: Step, done: int, total: int, unit: str) -> None:
        """Take how far the work is.

        Args:
            step: Which step of it.
            done: Of ``total``; never goes back within a step.
            total: 0 where it isn't known.
            unit: ``bytes``, ``layers`` or ``steps``.
        """
        now_s = self._now()
        is_news = step != self._step
        if is_news:
            self._step, self._marks = step, []
        if not self._marks or now_s - self._marks[-1][0] >= REPORT_EVERY_S:
            self._marks.append((now_s, done))
        while len(self._marks) > 2 and now_s - self._marks[1][0] >= RATE_OVER_S:
            self._marks.pop(0)
        if is_news or done == total or now_s - self._told_s >= REPORT_EVERY_S:
            self._told_s = now_s
            progress = NodeProgress(
                node_id=self._node_id,
                epoch=self._epoch,
                step=step,
                done=done,
                total=total,
                unit=unit,  # type: ignore[arg-type] # checked where it is sent
                rate_per_s=self._rate_per_s(now_s, done),
                detail=self._detail,
            )
            self._tell(ProgressReported(progress=progress))

    def _rate_per_s(self, now_s: float, done: int) -> float:
        began_s, began = self._marks[0]
        return max(0.0, (done - began) / (now_s - began_s)) if now_s > began_s else 0.0

"""What a chat needs to know of the pool's state. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.safe_text import one_line

if TYPE_CHECKING:
    from engine.messages.deployment import Deployment
    from engine.messages.pool_status import PoolStatus

_SHORT_ID = 6
_LONGEST_NAME = 40


class PoolFacts:
    """Read from one state."""

    def __init__(self, status: PoolStatus | None) -> None:
        """Take it.

        Args:
            status: As the node told it; None where it told none.
        """
        self._status = status

    @property
    def _record(self) -> Deployment | None:
        record = None if self._status is None else self._status.deployment
        return record if record is not None and record.wish is not None else None

    @property
    def is_known(self) -> bool:
        """Whether the node told anything."""
        return self._status is not None

    @property
    def is_loaded(self) -> bool:
        """Whether the pool runs a model, or is about to."""
        return self._record is not None and self.phase not in {"unloaded", ""}

    @property
    def is_unloaded(self) -> bool:
        """Whether somebody had the pool run nothing."""
        record = None if self._status is None else self._status.deployment
        return record is not None and record.phase == "unloaded"

    @property
    def phase(self) -> str:
        """How far the pool is with its model; empty where it has none."""
        return "" if self._record is None else self._record.phase

    @property
    def model(self) -> str:
        """The model's name, safe to show; empty where there is none."""
        record = self._record
        return "" if record is None or record.wish is None else one_line(record.wish.model.name)

    @property
    def model_sha256(self) -> str:
        """Which model it is."""
        record = self._record
        return "" if record is None or record.wish is None else record.wish.model_sha256

    @property
    def context_tokens(self) -> int:
        """That a chat may have; 0 where that isn't known."""
        record = self._record
        return 0 if record is None or record.wish is None else record.wish.context_tokens

    @property
    def chain(self) -> tuple[str, ...]:
        """The names of the PCs that answer, in the order of the chain."""
        record = self._record
        return () if record is None else tuple(self.name_of(s.node_id) for s in record.stages)

    @property
    def num_online(self) -> int:
        """PCs that are there."""
        nodes = () if self._status is None else self._status.nodes
        return sum(node.state == "online" for node in nodes)

    @property
    def num_others(self) -> int:
        """PCs beside this one."""
        return max(0, self.num_online - 1)

    @property
    def num_before(self) -> int:
        """Answers that the head has taken beyond what it can give at once."""
        record = self._record
        if record is None or record.wish is None or self._status is None:
            return 0
        for node in self._status.nodes:
            if node.node_id == record.head and node.report is not None:
                return max(0, node.report.active_requests - record.wish.max_sequences)
        return 0

    @property
    def done_share(self) -> float | None:
        """How much of the present step of loading is done, 0 to 1; None where nobody says."""
        steps = () if self._status is None else self._status.progress
        known = [step for step in steps if step.total]
        if not known:
            return None
        return sum(step.done / step.total for step in known) / len(known)

    def name_of(self, node_id: str) -> str:
        """Return what a PC is called, safe to show.

        Args:
            node_id: Of it.
        """
        nodes = () if self._status is None else self._status.nodes
        for node in nodes:
            if node.node_id == node_id and node.report is not None:
                return one_line(node.report.name, _LONGEST_NAME)
        return node_id[:_SHORT_ID]

"""This node's copy of the pool's record, and how far every node is; for whoever waits for both."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.domain import NodeId
    from engine.messages.deployment import Deployment, NodeProgress
    from engine.messages.pool import Term

MAX_NODES = 64  # whose progress is kept; a pool has 16


class RecordBook:
    """The newest record, and each node's last word on its work.

    Thread: the node's loop.
    """

    def __init__(self) -> None:
        """Begin with neither."""
        self.deployment: Deployment | None = None
        self._progress: dict[NodeId, NodeProgress] = {}
        self._changed = asyncio.Event()

    @property
    def order(self) -> tuple[Term, int] | None:
        """What tells this record from an older or newer one; None where there is none."""
        return None if self.deployment is None else self.deployment.order

    @property
    def progress(self) -> tuple[NodeProgress, ...]:
        """What nodes are at, by their ids."""
        return tuple(self._progress[node_id] for node_id in sorted(self._progress))

    def take(self, record: Deployment) -> bool:
        """Take a record if it is newer than the one here.

        Args:
            record: From the coordinator in office.

        Returns:
            Whether it was.
        """
        if self.deployment is not None and record.order <= self.deployment.order:
            return False
        self.deployment = record
        if record.phase in {"ready", "failed", "unloaded"}:
            self._progress.clear()
        self._tell()
        return True

    def note(self, progress: NodeProgress) -> None:
        """Take what a node is at.

        Args:
            progress: In its own words.
        """
        if progress.node_id in self._progress or len(self._progress) < MAX_NODES:
            self._progress[progress.node_id] = progress
            self._tell()

    def forget(self, node_id: NodeId) -> None:
        """Drop what a node was at: it has left, or it is done.

        Args:
            node_id: Whose.
        """
        if self._progress.pop(node_id, None) is not None:
            self._tell()

    async def changed(self) -> None:
        """Wait until the record or anybody's progress changes.

        Cancellation: safe.
        """
        await self._changed.wait()

    async def changed_from(self, order: tuple[Term, int] | None) -> None:
        """Wait until the record is another one.

        Args:
            order: Of the one known.

        Cancellation: safe.
        """
        while self.order == order:
            await self.changed()

    def _tell(self) -> None:
        # Whoever waits now wakes once; whoever comes later waits for the next change.
        self._changed.set()
        self._changed = asyncio.Event()

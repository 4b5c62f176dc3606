"""This node's copy of the pool's record, and how far every node is; for whoever waits for both."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from engine.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.domain import NodeId
    from engine.messages.deployment import Deployment, NodeProgress
    from engine.messages.pool import Term

MAX_NODES = 64  # whose progress is kept; a pool has 16

_logger = logging.getLogger(__name__)


class RecordBook:
    """The newest record, and each node's last word on its work.

    Thread: the node's loop.
    """

    def __init__(self, deployment: Deployment | None = None) -> None:
        """Begin with nobody's progress.

        Args:
            deployment: As it was known at the last start; None for never anything.
        """
        self.deployment = deployment
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


async def keep_on_disk(book: RecordBook, keep: Callable[[Deployment], None]) -> None:
    """Write the record whenever it changes; of several changes while it writes, the last.

    Nobody waits for it: what is lost with the power is a step on the way, not the wish of an
    hour ago, and other nodes have the record too.

    Args:
        book: Has the record; what it begins with is on disk already.
        keep: Writes one, in a thread; fails with ``StorageError``.

    Cancellation: what is being written is written.
    """
    written = book.order
    while True:
        await book.changed_from(written)
        record = book.deployment
        if record is None:
            continue
        written = record.order
        try:
            await asyncio.to_thread(keep, record)
        except StorageError as error:
            _logger.warning("pool: the record is not on disk, %s", error.what)

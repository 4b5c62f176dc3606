"""Which orders are obeyed: those the fence admits, and no others.

An order of a term that is not on this PC's disk yet waits a moment for it: the office may have
changed hands a moment before the order came.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeAlias

from engine.errors import RemoteProtocolError
from engine.messages.chain import Placement
from engine.messages.pool_control import (
    DeploymentChanged,
    EndPlacement,
    KeepModel,
    SplitModel,
    WarmUp,
)
from engine.pool.terms import is_older

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.domain import NodeId
    from engine.messages.pool import Stamp
    from engine.pool.terms import Fence

Order: TypeAlias = DeploymentChanged | Placement | SplitModel | KeepModel | WarmUp | EndPlacement

TERM_WITHIN_S = 5.0  # for a term that was announced to reach this PC's disk
MAX_WAITING = 16  # orders that wait for their term


class OrderAdmission:
    """Stands before whoever carries out orders.

    Thread: the node's loop.
    """

    def __init__(self, fence: Fence, begin: Callable[[Order, Stamp], None]) -> None:
        """Begin with no order.

        Args:
            fence: The node's own.
            begin: Begins what was admitted; called while ``run`` runs.
        """
        self._fence = fence
        self._begin = begin
        self._group: asyncio.TaskGroup | None = None
        self._num_waiting = 0
        self._term_changed = asyncio.Event()

    async def run(self) -> None:
        """Stand in for the orders that wait, until cancelled."""
        async with asyncio.TaskGroup() as self._group:
            await asyncio.Event().wait()

    def take(self, order: Order, sender: NodeId) -> None:
        """Have an order begun, now or when its term is in force; or drop it.

        Args:
            order: As it came.
            sender: Whose session it came over.

        Raises:
            RemoteProtocolError: It has no stamp, or another node's.
        """
        stamp = order.stamp
        if stamp is None or stamp.sender != sender:
            raise RemoteProtocolError(
                f"{type(order).__name__} came without a stamp of its sender's."
            )
        if self._fence.admit(stamp):
            self._begin(order, stamp)
        elif self._group is not None and self._may_wait(stamp):
            self._num_waiting += 1
            self._group.create_task(self._wait_for_term(order, stamp))

    def look(self) -> None:
        """Take note that another term may be in force."""
        self._term_changed.set()

    def _may_wait(self, stamp: Stamp) -> bool:
        is_early = is_older(self._fence.accepted, than=stamp.term)
        return is_early and self._num_waiting < MAX_WAITING

    async def _wait_for_term(self, order: Order, stamp: Stamp) -> None:
        try:
            async with asyncio.timeout(TERM_WITHIN_S):
                while is_older(self._fence.accepted, than=stamp.term):
                    self._term_changed.clear()
                    await self._term_changed.wait()
        except TimeoutError:
            return
        finally:
            self._num_waiting -= 1
        if self._fence.admit(stamp):
            self._begin(order, stamp)

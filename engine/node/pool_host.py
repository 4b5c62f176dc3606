"""This node in its pool: the pool's part and the pipeline's, joined.

The pool orders stages, the pipeline runs them; the pool knows where the head is, the relay asks
it. Neither knows the other.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from engine.errors import PeerUnreachableError
from engine.pipeline.relay import Relay
from engine.pool.part import PoolPart

if TYPE_CHECKING:
    from engine.domain import NodeId
    from engine.messages.chain import StageFailed
    from engine.messages.deployment import Deployment
    from engine.messages.pool import Term
    from engine.node.placements import Placements
    from engine.pipeline.head import Head
    from engine.pool.dialler import Attend
    from engine.pool.part import PoolOptions
    from engine.pool.roster_keeper import RosterKeeper
    from engine.transport.connection import Connection
    from engine.transport.endpoint import Endpoint

MEASURE_EVERY_S = 5.0


class PoolHost:
    """Joins the two.

    Attributes:
        part: The pool's.
        relay: Follows this PC's askers' answers.

    Thread: the node's loop.
    """

    def __init__(
        self,
        options: PoolOptions,
        keeper: RosterKeeper,
        endpoint: Endpoint,
        port: int,
        placements: Placements,
    ) -> None:
        """Join them; nothing is announced before ``run``.

        Args:
            options: How to take part.
            keeper: Of the roster.
            endpoint: Opens connections.
            port: Where this node listens.
            placements: Runs stages.
        """
        self.part = PoolPart(options, keeper, endpoint, port, placements)
        self._endpoint = endpoint
        self._placements = placements
        self._changed = asyncio.Event()
        self.relay = Relay(self)
        placements.on_changed = self._changed.set
        placements.on_broken = self._on_broken

    async def run(self, attend: Attend) -> None:
        """Take part in the pool until cancelled.

        Args:
            attend: Serves a connection until it ends.
        """
        async with asyncio.TaskGroup() as group:
            group.create_task(self.part.run(attend))
            group.create_task(self._keep_facts())

    def _on_broken(self, failure: StageFailed) -> None:
        self.part.tell_coordinator(failure)

    async def _keep_facts(self) -> None:
        """Keep what is told of this node's stage up to date."""
        while True:
            self._measure()
            if self._changed.is_set():
                self._changed.clear()
                await self.part.tell_facts()
            try:
                async with asyncio.timeout(MEASURE_EVERY_S):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _measure(self) -> None:
        facts, stage, head = self.part.facts, self._placements.stage, self._placements.head
        facts.epoch = self._placements.epoch
        facts.layers = None if stage is None else stage.place.layers
        facts.model = None if stage is None else stage.loaded.model.name
        facts.memory_lent_bytes = self._placements.memory_bytes()
        facts.layer_ms = None if stage is None else stage.server.layer_ms
        facts.active_requests = 0 if head is None else head.num_active

    # ---- what the relay asks --------------------------------------------------------------------

    def deployment(self) -> Deployment | None:
        """Return the pool's record, as it is known here."""
        return self.part.book.deployment

    async def changed_from(self, order: tuple[Term, int] | None) -> None:
        """Wait until the record is another one.

        Args:
            order: Of the one known.
        """
        await self.part.book.changed_from(order)

    def own_head(self) -> Head | None:
        """Return this node's head, if it has the head of the present placement."""
        record = self.part.book.deployment
        is_present = record is not None and record.epoch == self._placements.epoch
        return self._placements.head if is_present else None

    async def connect_head(self, node_id: NodeId) -> Connection:
        """Connect to the node that has the head.

        Args:
            node_id: Which.

        Raises:
            PeerUnreachableError: Nobody here knows its address.

        Fails with ``TransportError`` if it can't be reached.
        """
        address = self.part.address_of(node_id)
        if address is None:
            raise PeerUnreachableError(f"The PC {node_id} that has the head can't be reached.")
        return await self._endpoint.connect(address, node_id)

"""One line of a placement, carried out on this node: the process, its links, its server."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from engine.pipeline.stage_server import Send, StageServer
from engine.splitter.layer_work import layer_times, stage_work
from engine.transport.session import Liveness

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine
    from typing import Any

    from engine.messages.chain import Placement, StagePlace
    from engine.pipeline.loaded_stage import LoadedStage
    from engine.pipeline.withheld_tokens import WithheldTokens
    from engine.transport.connection import Connection
    from engine.transport.endpoint import Endpoint


# A cut cable says nothing. Giving up a link costs a second, since what is loaded stays; a PC that
# is busy with other programs may say nothing for 3 s.
CHAIN_LIVENESS = Liveness(ping_after_s=1.0, dead_after_s=5.0)


@dataclass(frozen=True, slots=True)
class PlacedStage:
    """A stage that runs here, joined to its neighbours.

    Attributes:
        place: Its line of the placement.
        placement: The whole.
        loaded: Its shard.
        server: Passes frames through it.
        next_link: To the next stage; None on the last one.
        head_link: To the head; None on the head's own node.
        withheld: Holds back token ids between the first and the last stage, where both are here.
    """

    place: StagePlace
    placement: Placement
    loaded: LoadedStage
    server: StageServer
    next_link: Connection | None
    head_link: Connection | None
    withheld: WithheldTokens | None = None

    async def accept(self, frame: bytes, send_back: Send) -> None:
        """Take a frame from the stage before, on another node.

        Args:
            frame: For a stage.
            send_back: Reaches the sender.

        Fails as ``StageServer.accept`` does, and with ``RemoteProtocolError`` where a batch came
        round that did not leave so.

        Cancellation: safe between frames.
        """
        whole = frame if self.withheld is None else self.withheld.restore(frame)
        await self.server.accept(whole, send_back)

    def loops(self) -> list[Coroutine[Any, Any, None]]:
        """Return what must run, each as a task of its own, for as long as the stage does.

        Each raises ``DaisyError`` where it ends, and the others go on: what the process still
        gives must be taken, and the head be told by whoever can.
        """
        loops = [self.server.run_loop()]
        if self.next_link is not None:
            loops.append(self.server.watch_loop(self.next_link.receive))
        if self.head_link is not None:
            loops.append(self.server.watch_head_loop(self.head_link.receive))
        return loops


@asynccontextmanager
async def join_chain(
    placement: Placement,
    place: StagePlace,
    loaded: LoadedStage,
    endpoint: Endpoint,
    send_own_head: Send,
    withheld: WithheldTokens | None = None,
) -> AsyncIterator[PlacedStage]:
    """Join a loaded stage to its neighbours, for as long as the context is open.

    Args:
        placement: Who runs what.
        place: This node's line.
        loaded: Its shard; outlives the context.
        endpoint: Opens connections.
        send_own_head: Takes what is for the head, if the head is this node.
        withheld: Of the placement, where the first and the last stage are both on this node.

    Yields:
        The stage, for as long as the context is open.

    Raises:
        TransportError: A neighbour can't be reached.

    Cancellation: closes the links.
    """
    links: list[Connection] = []
    try:
        next_link, head_link = await _join(placement, place, endpoint, links)
        server = StageServer(
            loaded.process,
            place.stage_index,
            placement.epoch,
            None if next_link is None else _send_over(next_link, withheld),
            send_own_head if head_link is None else head_link.send,
            stage_work(layer_times(loaded.model), place.layers),
        )
        yield PlacedStage(place, placement, loaded, server, next_link, head_link, withheld)
    finally:
        async with asyncio.TaskGroup() as ending:  # one that is lost takes a while to be given up
            for link in links:
                ending.create_task(link.close("The placement has ended."))


def _send_over(link: Connection, withheld: WithheldTokens | None) -> Send:
    if withheld is None:
        return link.send

    async def send(frame: bytes) -> None:
        await link.send(withheld.withhold(frame))

    return send


async def _join(
    placement: Placement, place: StagePlace, endpoint: Endpoint, links: list[Connection]
) -> tuple[Connection | None, Connection | None]:
    """Connect to the next stage, and from any stage but the head's own to the head."""
    next_link: Connection | None = None
    head_link: Connection | None = None
    endpoint = replace(endpoint, liveness=CHAIN_LIVENESS)
    if place.stage_index + 1 < len(placement.stages):
        next_link = await _connected(endpoint, placement.stages[place.stage_index + 1])
        links.append(next_link)
    if placement.stages[0].node_id != place.node_id:
        head_link = await _connected(endpoint, placement.stages[0])
        links.append(head_link)
    return next_link, head_link


async def _connected(endpoint: Endpoint, place: StagePlace) -> Connection:
    return await endpoint.connect(place.address, place.node_id)

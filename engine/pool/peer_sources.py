"""The other nodes as places to fetch files from, over connections of their own."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from engine.pool.chunk_wire import PeerChunkSource

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from engine.domain import NodeId
    from engine.pool.pull import ChunkSource
    from engine.transport.endpoint import Endpoint


class PeerSources:
    """Whoever can be asked for files now."""

    def __init__(
        self, endpoint: Endpoint, addresses: Callable[[], Sequence[tuple[NodeId, str]]]
    ) -> None:
        """Connect to nobody yet.

        Args:
            endpoint: Opens connections.
            addresses: Returns every other node that can be reached, and where it listens.
        """
        self._endpoint = endpoint
        self._addresses = addresses

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Sequence[ChunkSource]]:
        """Return the nodes there are now, for as long as the context is open.

        Yields:
            One source for each; it connects when it is asked something.
        """
        async with AsyncExitStack() as stack:
            sources: list[ChunkSource] = []
            for node_id, address in self._addresses():
                source = PeerChunkSource(self._endpoint, node_id, address)
                stack.push_async_callback(source.aclose)
                sources.append(source)
            yield sources

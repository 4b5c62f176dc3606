"""The addresses nodes were reached at, kept on disk as they change."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from engine.errors import StorageError
from engine.pool.known_peers import remembered

if TYPE_CHECKING:
    from engine.domain import NodeId
    from engine.pool.node_folder import NodeFolder
    from engine.pool.peer_address import PeerAddress

_logger = logging.getLogger(__name__)


class AddressBook:
    """What is known of where nodes listen.

    Thread: the node's loop.
    """

    def __init__(self, folder: NodeFolder) -> None:
        """Begin with what was known at the last start.

        Args:
            folder: Keeps it.
        """
        self._folder = folder
        self._known = folder.known
        self._has_news = asyncio.Event()

    def enter(self, node_id: NodeId, address: PeerAddress) -> None:
        """Take note that a node was reached.

        Args:
            node_id: Which.
            address: Where it listens.
        """
        before, self._known = self._known, remembered(self._known, node_id, address)
        if self._known is not before:
            self._has_news.set()

    async def run(self) -> None:
        """Write what is news, until cancelled.

        Cancellation: what is being written is written.
        """
        while True:
            await self._has_news.wait()
            self._has_news.clear()
            try:
                await asyncio.to_thread(self._folder.keep_known, self._known)
            except StorageError as error:
                _logger.warning("pool: %s", error.what)

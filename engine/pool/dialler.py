"""Opens sessions to the addresses that are due, and keeps each attended until it ends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from engine.errors import DaisyError, NotKnownThereError, NotTrustedError, TransportError
from engine.transport.endpoint import SCHEME

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from engine.pool.dialling import Target, Targets
    from engine.pool.peer_address import PeerAddress
    from engine.pool.sessions import Sessions
    from engine.transport.connection import Connection
    from engine.transport.endpoint import Endpoint

    Attend = Callable[[Connection], Awaitable[None]]

MEET_DOUBLE_FOR_S = 2.0  # a connection to this node's own id: for its heartbeat to come

_logger = logging.getLogger(__name__)


class Dialler:
    """Tries targets, each in a task of its own.

    Thread: the node's loop.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        targets: Targets,
        sessions: Sessions,
        welcome: Callable[[Connection], Awaitable[None]],
    ) -> None:
        """Dial nothing yet.

        Args:
            endpoint: Opens connections.
            targets: What is due.
            sessions: What is open.
            welcome: Makes a connection a session, or fails; says the first word to a node with
                this one's id.
        """
        self._endpoint = endpoint
        self._targets = targets
        self._sessions = sessions
        self._welcome = welcome
        self._loop = asyncio.get_running_loop()

    @staticmethod
    def url(address: PeerAddress) -> str:
        """Return an address as it is dialled."""
        return f"{SCHEME}://{address}"

    def dial_due(self, group: asyncio.TaskGroup, attend: Attend) -> None:
        """Try everything that is due now.

        Args:
            group: Parent of the tries, and of the sessions that come of them.
            attend: Serves a session until it ends.
        """
        for target in self._targets.due(self._sessions.all_ways(), self._loop.time()):
            group.create_task(self._dial(target, attend))

    async def _dial(self, target: Target, attend: Attend) -> None:
        try:
            connection = await self._endpoint.connect(self.url(target.address), target.node_id)
        except TransportError as error:
            target.failed(error.what, self._loop.time(), is_refused=_is_refusal(error))
            target.is_untrusted = isinstance(error, NotTrustedError)
            if isinstance(error, NotKnownThereError):
                self._targets.unknown_at = target.address
            return
        try:
            await self._stay(connection, target, attend)
        except DaisyError as error:
            _logger.info("pool: a session ended, %s", error.what)
            if target.is_dialling:
                target.failed(error.what, self._loop.time())
        finally:
            await connection.close("The other side is done.")

    async def _stay(self, connection: Connection, target: Target, attend: Attend) -> None:
        await self._welcome(connection)
        if connection.peer.node_id != self._endpoint.hello.node_id:
            target.answered(self._loop.time())
            await attend(connection)
            return
        # This node itself, or another PC with a copy of its identity: whoever it is says so.
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(MEET_DOUBLE_FOR_S):
                    await attend(connection)
        finally:
            target.failed(None, self._loop.time())


def _is_refusal(error: BaseException | None) -> bool:
    """Return whether nobody listened: the system there is up, and said so at once."""
    while error is not None:
        if isinstance(error, ConnectionRefusedError):
            return True
        error = error.__cause__
    return False

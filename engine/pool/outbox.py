"""Messages from this node to the others, sent beside whatever it does; its own go the short way."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from engine.errors import LocalProtocolError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from engine.domain import NodeId
    from engine.messages.message import Message
    from engine.messages.pool import Stamp
    from engine.pool.mesh import Mesh

MAX_UNSENT = 256  # messages; the oldest goes, since what is told is told again
RETRY_S = 0.5
GIVE_UP_S = 30.0  # the coordinator has planned anew long before

_logger = logging.getLogger(__name__)


class _Letter(NamedTuple):
    to: NodeId | None  # None: everybody
    message: Message
    until_s: float


class Outbox:
    """What is to be sent, in order.

    Thread: the node's loop.
    """

    def __init__(
        self,
        node_id: NodeId,
        mesh: Mesh,
        take_own: Callable[[Message, NodeId], Awaitable[object]],
    ) -> None:
        """Begin with nothing to send.

        Args:
            node_id: This node.
            mesh: Sends.
            take_own: Takes what this node tells itself, as if it had come from there.
        """
        self._node_id = node_id
        self._mesh = mesh
        self._take_own = take_own
        self._letters: deque[_Letter] = deque(maxlen=MAX_UNSENT)
        self._has_letters = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def tell_all(self, message: Message) -> None:
        """Hand a message to every node, this one included.

        Args:
            message: Any.
        """
        self._put(_Letter(None, message, 0.0))

    def tell(self, node_id: NodeId, message: Message) -> None:
        """Hand a message to one node, tried again for a while if it can't be reached.

        Args:
            node_id: Which; this one too.
            message: Any.
        """
        self._put(_Letter(node_id, message, self._loop.time() + GIVE_UP_S))

    def answer(self, stamp: Stamp, message: Message) -> None:
        """Hand an answer to the coordinator that gave an order.

        Args:
            stamp: Of the order.
            message: The answer.
        """
        self.tell(stamp.sender, message)

    def address_of(self, node_id: NodeId) -> str | None:
        """Return where a node listens, as reached from here; None if that isn't known.

        Args:
            node_id: Which.
        """
        return self._mesh.address_of(node_id)

    async def run(self) -> None:
        """Send until cancelled.

        Cancellation: what was not sent is not.
        """
        async with asyncio.TaskGroup() as group:
            while True:
                await self._has_letters.wait()
                letter = self._letters.popleft()
                if not self._letters:
                    self._has_letters.clear()
                if not await self._send(letter):
                    group.create_task(self._send_later(letter))

    def _put(self, letter: _Letter) -> None:
        self._letters.append(letter)
        self._has_letters.set()

    async def _send(self, letter: _Letter) -> bool:
        try:
            return await self._deliver(letter)
        except LocalProtocolError as error:
            # What others told may be in it, and break a rule: nobody is told it, and all goes on.
            _logger.warning("pool: %s", error.what)
            return True

    async def _deliver(self, letter: _Letter) -> bool:
        if letter.to is None:
            await self._take_own(letter.message, self._node_id)
            await self._mesh.send_all(letter.message)
            return True
        if letter.to == self._node_id:
            await self._take_own(letter.message, self._node_id)
            return True
        return await self._mesh.send_to(letter.to, letter.message)

    async def _send_later(self, letter: _Letter) -> None:
        while self._loop.time() < letter.until_s:
            await asyncio.sleep(RETRY_S)
            if await self._send(letter):
                return

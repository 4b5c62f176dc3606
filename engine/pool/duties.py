"""What the participant asks for, carried out in order: said, written, and told to whoever acts.

A term is on disk before anything that follows from it is sent.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING

from engine.errors import LocalProtocolError, StorageError
from engine.messages.control import NodeHeartbeat
from engine.pool.actions import BecameCoordinator, CoordinatorLost, Following, Persist, SteppedDown
from engine.pool.participant import Broadcast

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from engine.pool.actions import Change
    from engine.pool.node_folder import NodeFolder
    from engine.pool.participant import Output, Participant
    from engine.pool.sessions import Sessions

_logger = logging.getLogger(__name__)


class Duties:
    """The participant's outputs, one at a time.

    Thread: the node's loop.
    """

    def __init__(
        self,
        participant: Participant,
        folder: NodeFolder,
        sessions: Sessions,
        act: Callable[[Change], Awaitable[None]],
    ) -> None:
        """Begin with none.

        Args:
            participant: Told what is on disk.
            folder: Keeps terms.
            sessions: Take what is to be said.
            act: Awaited for every change of office.
        """
        self._participant = participant
        self._folder = folder
        self._sessions = sessions
        self._act = act
        self._outputs: deque[Output] = deque()
        self._has_outputs = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def add(self, outputs: list[Output]) -> None:
        """Take what is to be done after what was taken before."""
        self._outputs.extend(outputs)
        if outputs:
            self._has_outputs.set()

    async def run(self) -> None:
        """Do it, until cancelled.

        Cancellation: a term that is being written is written.
        """
        while True:
            await self._has_outputs.wait()
            self._has_outputs.clear()
            while self._outputs:
                await self._perform(self._outputs.popleft())

    async def _perform(self, output: Output) -> None:
        match output:
            case Broadcast():
                await self._broadcast(NodeHeartbeat(heartbeat=output.heartbeat))
            case Persist():
                await self._persist(output)
            case BecameCoordinator() | Following() | SteppedDown() | CoordinatorLost():
                _logger.info("pool: %s", _told(output))
                await self._act(output)

    async def _broadcast(self, beat: NodeHeartbeat) -> None:
        try:
            await self._sessions.send_every_way(beat)
        except LocalProtocolError as error:
            _logger.warning("pool: %s", error.what)  # the next one may be in order again

    async def _persist(self, order: Persist) -> None:
        try:
            await asyncio.to_thread(self._folder.keep_term, order.term)
        except StorageError as error:
            _logger.warning("pool: %s", error.what)
            self.add(self._participant.write_failed(order.term, self._loop.time()))
        else:
            self.add(self._participant.written(order.term, self._loop.time()))


def _told(change: Change) -> str:
    match change:
        case BecameCoordinator():
            return f"this PC coordinates, term {change.term}"
        case Following():
            return f"following {change.coordinator}, term {change.term}"
        case SteppedDown():
            return f"no longer coordinating, term {change.term} is over"
        case CoordinatorLost():
            return f"lost the coordinator {change.coordinator}"

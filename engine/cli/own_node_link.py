"""A connection to this PC's own node, whose end is told as what it is: the node has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.errors import PeerUnreachableError

if TYPE_CHECKING:
    from engine.messages.control import Hello
    from engine.transport.link import Link


class OwnNodeLink:
    """A connection to the node on this PC; no firewall stands between the two.

    Attributes:
        address: For logs.

    Thread: the event loop's.
    """

    def __init__(self, link: Link, start: str) -> None:
        """Take over a connection.

        Args:
            link: It, open.
            start: The command that starts the node, for people.
        """
        self.address = link.address
        self._link = link
        self._start = start

    @property
    def peer(self) -> Hello:
        """What the node said of itself."""
        return self._link.peer

    async def send(self, frame: bytes) -> None:
        """Send one frame.

        Args:
            frame: As the codec made it.

        Raises:
            PeerUnreachableError: The node has ended.
        """
        try:
            await self._link.send(frame)
        except PeerUnreachableError as exc:
            raise self._ended() from exc

    async def receive(self) -> bytes:
        """Return the next frame.

        Raises:
            PeerUnreachableError: The node has ended.

        Cancellation: safe; the next call returns it.
        """
        try:
            return await self._link.receive()
        except PeerUnreachableError as exc:
            raise self._ended() from exc

    async def close(self, reason: str) -> None:
        """Close; a second time does nothing.

        Args:
            reason: For the log.
        """
        await self._link.close(reason)

    def _ended(self) -> PeerUnreachableError:
        return PeerUnreachableError(
            "The node on this PC has ended.", f"Start it again: {self._start}."
        )

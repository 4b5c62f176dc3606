"""What everyone who talks over a connection needs of it, whichever kind it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from engine.messages.control import Hello


class Link(Protocol):
    """A connection to a node or an asker: frames in order, one reason when it ends."""

    address: str

    @property
    def peer(self) -> Hello:
        """What the other side said of itself."""
        ...

    async def send(self, frame: bytes) -> None:
        """Send one frame; raises ``TransportError`` once the connection has ended."""
        ...

    async def receive(self) -> bytes:
        """Return the next frame; raises ``TransportError`` once there are no more."""
        ...

    async def close(self, reason: str) -> None:
        """Close; a second time does nothing."""
        ...

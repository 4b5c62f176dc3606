"""Who may hold a connection: few strangers, few from one address, and an end to the whole.

A stranger is a connection that has not said hello. It costs a file descriptor and some buffers
for at most the seconds it has for its hello; the limits keep one address that opens connections
and says nothing from shutting the others out. Pure counting.
"""

from __future__ import annotations

from typing import Generic, TypeVar

# A pool of 6 PCs that all start at once, and the programs on this one, are far fewer.
MAX_STRANGERS = 64
# Half, so that one address can't take all; the connections of one PC's programs share an address.
MAX_STRANGERS_PER_ADDRESS = 32
# An open connection may hold some 100 MB in the worst case; ordinary ones hold kilobytes.
MAX_CONNECTIONS = 256


Key = TypeVar("Key")


class Admission(Generic[Key]):
    """Counts connections by what is known of them; a key is whatever names a connection."""

    def __init__(self) -> None:
        self._strangers: dict[Key, str] = {}
        self._known: set[Key] = set()

    @property
    def strangers(self) -> tuple[Key, ...]:
        """Connections that have not said hello."""
        return tuple(self._strangers)

    def admit(self, key: Key, host: str) -> bool:
        """Count a new connection in, or refuse it: the newest is the one to go.

        Args:
            key: Names the connection.
            host: Its address without the port.
        """
        from_host = sum(other == host for other in self._strangers.values())
        if (
            len(self._strangers) >= MAX_STRANGERS
            or from_host >= MAX_STRANGERS_PER_ADDRESS
            or len(self._strangers) + len(self._known) >= MAX_CONNECTIONS
        ):
            return False
        self._strangers[key] = host
        return True

    def greet(self, key: Key) -> None:
        """Note that the connection has said hello."""
        if self._strangers.pop(key, None) is not None:
            self._known.add(key)

    def leave(self, key: Key) -> None:
        """Forget a connection; one that was refused is none."""
        self._strangers.pop(key, None)
        self._known.discard(key)

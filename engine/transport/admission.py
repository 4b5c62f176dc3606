"""Who may hold a connection: few strangers, few from one address, and an end to the whole.

A stranger is a connection that has not said hello. It costs a file descriptor and some buffers
for at most the seconds it has for its hello. Where there are too many the oldest goes, of the
address that has most: whoever belongs here says hello in milliseconds, and whoever opens
connections and says nothing loses them first, from however many addresses. Pure counting.
"""

from __future__ import annotations

from collections import Counter
from typing import Generic, NamedTuple, TypeVar

# A pool of 6 PCs that all start at once, and the programs on this one, are far fewer.
MAX_STRANGERS = 64
# Half, so that one address can't take all; the connections of one PC's programs share an address.
MAX_STRANGERS_PER_ADDRESS = 32
# An open connection may hold some 100 MB in the worst case; ordinary ones hold kilobytes.
MAX_CONNECTIONS = 256


Key = TypeVar("Key")


class Admitted(NamedTuple, Generic[Key]):
    """What becomes of a new connection.

    Attributes:
        is_in: Whether it is counted now; else it is to be closed.
        instead_of: A stranger that is counted no more, and is to be closed; None for nobody.
    """

    is_in: bool
    instead_of: Key | None


class Admission(Generic[Key]):
    """Counts connections by what is known of them; a key is whatever names a connection."""

    def __init__(self) -> None:
        self._strangers: dict[Key, str] = {}
        self._known: set[Key] = set()

    @property
    def strangers(self) -> tuple[Key, ...]:
        """Connections that have not said hello."""
        return tuple(self._strangers)

    def admit(self, key: Key, host: str) -> Admitted[Key]:
        """Count a new connection in, in the place of an older one where there are too many.

        Args:
            key: Names the connection.
            host: Its address without the port.
        """
        by_host = Counter(self._strangers.values())
        crowded: str | None = None
        if by_host[host] >= MAX_STRANGERS_PER_ADDRESS:
            crowded = host
        elif (
            len(self._strangers) >= MAX_STRANGERS
            or len(self._strangers) + len(self._known) >= MAX_CONNECTIONS
        ):
            if not by_host:
                return Admitted(is_in=False, instead_of=None)
            crowded = max(by_host, key=lambda name: by_host[name])
        oldest = next((one for one, of in self._strangers.items() if of == crowded), None)
        if oldest is not None:
            del self._strangers[oldest]
        self._strangers[key] = host
        return Admitted(is_in=True, instead_of=oldest)

    def greet(self, key: Key) -> None:
        """Note that the connection has said hello."""
        if self._strangers.pop(key, None) is not None:
            self._known.add(key)

    def leave(self, key: Key) -> None:
        """Forget a connection; one that was refused is none."""
        self._strangers.pop(key, None)
        self._known.discard(key)

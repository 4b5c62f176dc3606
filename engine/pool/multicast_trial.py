"""Whether this PC hears its own multicast, adapter by adapter.

What is sent by multicast comes back to the sender through its own firewall, as if another PC had
sent it there. Hearing it shows that the adapter sends, and that this PC lets it in; what lies
between PCs it can't show.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

GROUP, PORT = "224.0.0.251", 5353
WITHIN_S = 2.0
_SEND_EVERY_S = 0.4
_IP_MULTICAST_ALL = 49  # Linux; Python does not name it


class Heard(NamedTuple):
    """What became of one address.

    Attributes:
        after_ms: From the beginning; None if nothing was heard.
        problem: Why it could not be tried, as the system says it; empty where it could.
    """

    after_ms: float | None = None
    problem: str = ""


async def hear_own(
    addresses: tuple[str, ...],
    name: bytes,
    announce: Callable[[], None],
    within_s: float = WITHIN_S,
) -> dict[str, Heard]:
    """Announce through every adapter, and listen on each for what came from it.

    Args:
        addresses: Of the adapters in use; IPv4.
        name: In every announcement of this node, and in no other's.
        announce: Sends one through every adapter.
        within_s: For all of it.

    Returns:
        What became of each address.

    What ``announce`` raises is raised again. Cancellation: closes what was opened.
    """
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    heard: dict[str, Heard] = {}
    left = set(addresses)
    all_heard = asyncio.Event()

    def note(address: str, what: Heard) -> None:
        if address in left:
            left.discard(address)
            heard[address] = what
            if not left:
                all_heard.set()

    def on_heard(address: str) -> None:
        note(address, Heard(after_ms=(loop.time() - began_s) * 1000))

    async with contextlib.AsyncExitStack() as opened:
        for address in addresses:
            try:
                transport = await _listen(address, name, on_heard)
            except OSError as exc:
                note(address, Heard(problem=exc.strerror or type(exc).__name__))
            else:
                opened.callback(transport.close)
        until_s = began_s + within_s
        while left and loop.time() < until_s:
            announce()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(all_heard.wait(), _SEND_EVERY_S)
    return {address: heard.get(address, Heard()) for address in addresses}


async def _listen(
    address: str, name: bytes, on_heard: Callable[[str], None]
) -> asyncio.DatagramTransport:
    bound = _bound(address)
    try:
        transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: _Ear(address, name, on_heard), sock=bound
        )
    except BaseException:
        bound.close()
        raise
    return transport


def _bound(address: str) -> socket.socket:
    """Return a socket that hears the group on one adapter, beside whoever else does."""
    bound = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        bound.setblocking(False)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "SO_REUSEPORT"):
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if sys.platform == "linux":
            # Else it would hear what another program of this PC joined on another adapter.
            bound.setsockopt(socket.IPPROTO_IP, _IP_MULTICAST_ALL, 0)
        bound.bind(("", PORT))
        joined = struct.pack("=4s4s", socket.inet_aton(GROUP), socket.inet_aton(address))
        bound.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, joined)
    except BaseException:
        bound.close()
        raise
    return bound


class _Ear(asyncio.DatagramProtocol):
    """Listens for one name on one adapter."""

    def __init__(self, address: str, name: bytes, on_heard: Callable[[str], None]) -> None:
        self._address = address
        self._name = name
        self._on_heard = on_heard

    def datagram_received(self, data: bytes, addr: tuple[str | Any, int]) -> None:
        if addr[0] == self._address and self._name in data:
            self._on_heard(self._address)

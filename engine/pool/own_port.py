"""Where a node listens: at the same port after a restart, for that is where others look for it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from engine.errors import PortInUseError, StorageError
from engine.pool.sentences import sentence

if TYPE_CHECKING:
    from engine.pool.node_folder import NodeFolder
    from engine.transport.endpoint import Endpoint, Listener, OnConnection
    from engine.transport.websocket import OnWebsocket


class Ways(NamedTuple):
    """Who serves whoever connects: members, and PCs that want to become one."""

    on_connection: OnConnection
    on_joiner: OnWebsocket | None = None


async def listen(
    endpoint: Endpoint, host: str, port: int, folder: NodeFolder, ways: Ways
) -> Listener:
    """Listen, and remember where.

    Args:
        endpoint: The node's.
        host: An address of this PC.
        port: As a person chose it; 0 for the one of the last start, or another if that is taken.
        folder: The node's; a port that was taken is said in its notes.
        ways: Who serves whoever connects.

    Raises:
        PortInUseError: The port that was chosen is taken.

    Fails otherwise as ``Endpoint.listen`` does.

    Cancellation: safe; the port is not open.
    """
    listener = await _listen(endpoint, host, port, folder, ways)
    if listener.port != folder.last_port:
        try:
            await asyncio.to_thread(folder.keep_port, listener.port)
        except StorageError as error:
            folder.notes.append(error.what)
    return listener


async def _listen(
    endpoint: Endpoint, host: str, port: int, folder: NodeFolder, ways: Ways
) -> Listener:
    if port != 0 or folder.last_port is None:
        return await endpoint.listen(host, port, *ways)
    try:
        return await endpoint.listen(host, folder.last_port, *ways)
    except PortInUseError as error:
        listener = await endpoint.listen(host, 0, *ways)
        folder.notes.append(f"{error.what} {sentence('other_port', port=str(listener.port))}")
        return listener

"""Which process holds a port: asked only after it was found taken."""

from __future__ import annotations

import psutil


def holder_of(port: int) -> str | None:
    """Name the process that listens on a TCP port of this PC.

    Args:
        port: 1 to 65535.

    Returns:
        Name and process id; None where the operating system does not tell this user.

    Thread: any; takes milliseconds, so not the event loop's.
    """
    try:
        for connection in psutil.net_connections("tcp"):
            is_listening = connection.status == psutil.CONN_LISTEN
            if is_listening and connection.laddr.port == port and connection.pid is not None:
                return f"{psutil.Process(connection.pid).name()} (process {connection.pid})"
    except psutil.Error:
        return None
    return None

"""Floods a port as somebody does who is no member: half-open connections, and random bytes.

    python flood.py PORT [--connections 1000] [--megabytes 10]

Prints a line when the first round is over, floods round after round until its standard input ends,
and then prints what it did as JSON. In each round so many connections are opened from several
addresses and left in the middle of a handshake, and so many random bytes are sent over others. It
runs at the lowest priority: on another PC it would take nothing of this one's processors.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import socket
import sys
import threading
from itertools import cycle

SOURCES = [f"127.0.0.{n}" for n in range(2, 34)]
PIECE_BYTES = 64 << 10
PIECES_OF_ONE = 16  # then another connection, if the port has not ended this one before
BEGINNINGS = (b"", b"\x16\x03\x01", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")  # of TLS
CONNECT_WITHIN_S = 5.0


class Flood:
    """What was done so far."""

    def __init__(self, port: int) -> None:
        """Begin with nothing.

        Args:
            port: On loopback.
        """
        self.num_connections = 0
        self.num_refused = 0
        self.num_bytes = 0
        self.num_rounds = 0
        self._port = port
        self._sources = cycle(SOURCES)

    def round(self, num_connections: int, num_bytes: int) -> None:
        """Open connections, leave them half-open, send bytes over others, and close them all.

        Args:
            num_connections: Left in the middle of a handshake.
            num_bytes: Random, that the port's system takes; what it refuses is tried again.
        """
        half_open = [self._half_open(BEGINNINGS[n % 3]) for n in range(num_connections)]
        sent = 0
        while sent < num_bytes:
            sent += self._pour(num_bytes - sent)
        for one in half_open:
            one.close()
        self.num_rounds += 1

    def _connected(self) -> socket.socket:
        self.num_connections += 1
        source = (next(self._sources), 0)
        return socket.create_connection(("127.0.0.1", self._port), CONNECT_WITHIN_S, source)

    def _half_open(self, beginning: bytes) -> socket.socket:
        one = self._connected()
        with contextlib.suppress(OSError):  # refused at once
            one.send(beginning)
        return one

    def _pour(self, most: int) -> int:
        sent = 0
        with self._connected() as one, contextlib.suppress(OSError):
            for _ in range(PIECES_OF_ONE):
                if sent >= most:
                    break
                piece = os.urandom(min(PIECE_BYTES, most - sent))
                one.sendall(piece)
                sent += len(piece)
        self.num_refused += sent == 0
        self.num_bytes += sent
        return sent


def main() -> int:
    """Flood until the standard input ends.

    Returns:
        The exit status.
    """
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("port", type=int)
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--megabytes", type=float, default=10)
    given = parser.parse_args()
    os.nice(19)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, given.connections + 256), hard))
    is_over = threading.Event()

    def watch() -> None:
        sys.stdin.read()
        is_over.set()

    threading.Thread(target=watch, daemon=True).start()
    flood = Flood(given.port)
    while not is_over.is_set():
        flood.round(given.connections, int(given.megabytes * 1e6))
        if flood.num_rounds == 1:
            print("flooding", flush=True)
    print(
        json.dumps({
            "rounds": flood.num_rounds,
            "connections": flood.num_connections,
            "bytes": flood.num_bytes,
            "refused": flood.num_refused,
        }),
        flush=True,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())

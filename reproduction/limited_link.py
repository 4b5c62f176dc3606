"""A link of a fixed rate: what connects to its ports is passed on to others, in both directions.

    python limited_link.py BYTES_PER_SECOND PORT...

Prints one port of its own for each given one, then passes on until its standard input ends. All
connections share one rate in each direction, as they would share a cable.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
import time

PIECE_BYTES = 64 << 10  # passed on at once: 0.5 ms at 1 Gbit/s
BUFFER_BYTES = 256 << 10  # of each socket: no more is under way than on a real link
BURST_S = 0.002  # a sleep that ends late is made up for by this much and no more


class TokenBucket:
    """When the next bytes may pass; for any number of threads."""

    def __init__(self, bytes_per_s: float) -> None:
        """Begin full.

        Args:
            bytes_per_s: Infinity for no limit.
        """
        self._bytes_per_s = bytes_per_s
        self._free_s = 0.0
        self._lock = threading.Lock()

    def wait_for(self, num_bytes: int) -> None:
        """Wait until the bytes have passed.

        Args:
            num_bytes: How many.
        """
        with self._lock:
            now = time.perf_counter()
            self._free_s = max(self._free_s, now - BURST_S) + num_bytes / self._bytes_per_s
            wait_s = self._free_s - now
        if wait_s > 0:
            time.sleep(wait_s)


def pass_on(source: socket.socket, target: socket.socket, bucket: TokenBucket) -> None:
    """Pass on what comes in, until it ends.

    Args:
        source: Read.
        target: Written.
        bucket: Of this direction.
    """
    piece = memoryview(bytearray(PIECE_BYTES))
    with contextlib.suppress(OSError):
        while count := source.recv_into(piece):
            bucket.wait_for(count)
            target.sendall(piece[:count])
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def listening(port: int, up: TokenBucket, down: TokenBucket) -> int:
    """Pass on every connection to a port.

    Args:
        port: On this machine.
        up: From who connects.
        down: To who connects.

    Returns:
        The port to connect to.
    """
    server = socket.create_server(("127.0.0.1", 0))
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)

    def accept() -> None:
        while True:
            near, _ = server.accept()
            far = socket.socket()
            for end in (near, far):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
                end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
            far.connect(("127.0.0.1", port))
            threading.Thread(target=pass_on, args=(near, far, up), daemon=True).start()
            threading.Thread(target=pass_on, args=(far, near, down), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return int(server.getsockname()[1])


def main() -> None:
    """Pass on until the standard input ends."""
    up, down = (TokenBucket(float(sys.argv[1])) for _ in range(2))
    ports = [listening(int(port), up, down) for port in sys.argv[2:]]
    print(*ports, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()

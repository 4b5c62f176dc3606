"""A flood does what it says, whether its connections are refused or not."""

from __future__ import annotations

import socket
import threading

import pytest

pytest.importorskip("resource")
from flood import Flood


def serve(server, *, takes):
    """Take connections; read them to their end, or close them at once."""

    def read(connection):
        with connection:
            while takes and connection.recv(1 << 16):
                pass

    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        threading.Thread(target=read, args=(connection,), daemon=True).start()


@pytest.mark.parametrize("takes", [True, False])
def test_a_round_opens_so_many_and_sends_so_much(takes):
    with socket.create_server(("127.0.0.1", 0), backlog=256) as server:
        threading.Thread(target=serve, args=(server,), kwargs={"takes": takes}, daemon=True).start()
        flood = Flood(server.getsockname()[1])
        flood.round(40, 300_000)
    assert flood.num_rounds == 1
    assert flood.num_bytes >= 300_000
    assert flood.num_connections >= 40 + 1

"""K42: a port that somebody else has, at the start and when a command looks for its own node."""

from __future__ import annotations

import http.server
import os
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec
import pytest
from msgspec.structs import replace

from engine.domain import NodeId
from engine.pool.node_folder import NodeFolder, Reach, read_reach
from tests.integration.test_pool import Node

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.processes, pytest.mark.together]


class _SaysYes(http.server.BaseHTTPRequestHandler):
    """Answers 200 to everything, as some programs do."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        return


@contextmanager
def another_program(port: int) -> Iterator[int]:
    """Answer HTTP on a port of this PC; 0 for any.

    Yields:
        The port.
    """
    with http.server.ThreadingHTTPServer(("0.0.0.0", port), _SaysYes) as server:  # noqa: S104
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def daisy(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "engine.cli.main", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


def test_the_port_that_was_chosen_is_taken(tmp_path: Path) -> None:
    with another_program(0) as port:
        done = daisy("node", "--data", tmp_path, "--interface", "lo", "--port", port)
    assert done.returncode == 7
    said = done.stderr.splitlines()
    assert f"Port {port} is taken by" in done.stderr
    assert f"(process {os.getpid()})" in done.stderr
    assert len(said) <= 3
    assert "Traceback" not in done.stderr


def test_the_port_of_the_last_start_is_taken_and_another_one_is_announced(tmp_path: Path) -> None:
    node = Node(tmp_path / "pc", "PC").start()
    before = node.port
    assert node.status()["nodes"][0]["is_asked"]
    assert node.end() == 0
    node.start()
    assert node.port == before  # at once, while the last connections are in TIME_WAIT
    assert node.end() == 0
    with another_program(before):
        node.start()
        try:
            assert node.port != before
            (own,) = (n for n in node.status()["nodes"] if n["is_asked"])
            assert own["addresses"] == [f"127.0.0.1:{node.port}"]
            assert own["report"]["port"] == node.port
        finally:
            assert node.end() == 0


def test_only_the_ipv6_side_is_taken(tmp_path: Path) -> None:
    if not socket.has_dualstack_ipv6():
        pytest.skip("this system has no IPv6")
    with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as taken:
        taken.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        taken.bind(("::", 0))
        taken.listen()
        port = taken.getsockname()[1]
        node = Node(tmp_path / "pc", "PC", ("--port", str(port))).start()
        try:
            assert node.port == port
            assert any(n["is_asked"] for n in node.status()["nodes"])
        finally:
            assert node.end() == 0


def leave_behind(folder: Path, reach: Reach) -> None:
    """Write what a node that was killed leaves, whose process id has been given anew."""
    gone = replace(reach, pid=os.getpid(), node_id=NodeId("0" * 20))
    (folder / "node" / "reach.json").write_bytes(msgspec.json.encode(gone))


@pytest.mark.parametrize("is_held", [False, True])
def test_who_answers_where_the_node_was_is_not_taken_for_it(tmp_path: Path, is_held: bool) -> None:
    stranger = Node(tmp_path / "stranger", "PC").start()
    folder = NodeFolder(tmp_path / "pc" / "node")
    if not is_held:
        folder.close()
    try:
        leave_behind(tmp_path / "pc", read_reach(tmp_path / "stranger" / "node"))
        done = daisy("status", "--json", "--data", tmp_path / "pc")
        assert done.returncode == 7
        assert "No node of Daisy runs on this PC" in done.stdout.splitlines()[-1]
    finally:
        folder.close()
        assert stranger.end() == 0


def test_a_program_that_says_yes_to_everything_is_not_asked(tmp_path: Path) -> None:
    NodeFolder(tmp_path / "node").close()
    with another_program(0) as port:
        leave_behind(tmp_path, Reach(port, "0" * 64, os.getpid(), NodeId("0" * 20)))
        done = daisy("status", "--json", "--data", tmp_path)
    assert done.returncode == 7
    assert "No node of Daisy runs on this PC" in done.stdout.splitlines()[-1]

"""How nodes reach each other: over two cables, without multicast, and in one direction only."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from engine.pool.heartbeat import LEASE_S
from engine.pool.node_folder import NodeFolder
from tests.integration.namespaces import eventually, local_network
from tests.integration.network_faults import lose_packets_to, pull_cable
from tests.integration.pool_hosts import HostPool, PoolNode, pair, start_pool

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.integration.namespaces import Host

pytestmark = [pytest.mark.processes, pytest.mark.together]

NAMED_S = 25.0  # a lease, and the time a connection takes to fail


class Watch:
    """``daisy status --watch`` of one node, read as it comes."""

    def __init__(self, node: PoolNode) -> None:
        command = [sys.executable, "-m", "engine.cli.main", "status", "--watch", "--json"]
        self._process = node.host.start(
            [*command, "--data", str(node.folder)], stdout=subprocess.PIPE
        )
        self.seen: list[tuple[float, dict[str, Any]]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self._process.stdout:
            self.seen.append((time.monotonic(), json.loads(line)))

    def since(self, when_s: float) -> list[dict[str, Any]]:
        return [status for at_s, status in list(self.seen) if at_s > when_s]

    def until(self, what: Callable[[dict[str, Any]], Any], within_s: float) -> Any:
        """Wait for a status that is so."""
        return eventually(lambda: self.seen and what(self.seen[-1][1]), within_s)


def others_of(status: dict[str, Any]) -> list[dict[str, Any]]:
    return [node for node in status["nodes"] if not node["is_asked"]]


def keep_cables_apart(host: Host) -> None:
    """Let a PC do what desktops set up: no way out over a cable that is cut, no word of the other.

    Linux by itself goes on to send into the first of two cables of one network.
    """
    for name, value in (("ignore_routes_with_linkdown", 1), ("arp_ignore", 1), ("arp_announce", 2)):
        host.run(["sh", "-c", f"echo {value} > /proc/sys/net/ipv4/conf/all/{name}"])


def test_a_pc_on_two_cables_is_one_pc_and_outlives_one_of_them(tmp_path: Path) -> None:
    """K38."""
    with local_network(2) as network:
        network.hosts[0].plug_in("eth1", "10.83.1.1")
        keep_cables_apart(network.hosts[0])
        pool = start_pool(network.hosts, tmp_path, lambda _: ())
        try:
            a, b = pool.nodes
            watch = Watch(b)
            ways = {f"10.83.0.1:{a.port}", f"10.83.1.1:{a.port}"}
            watch.until(lambda s: ways in [set(n["addresses"]) for n in others_of(s)], 20.0)
            (seen,) = others_of(watch.seen[-1][1])
            assert seen["node_id"] == a.node_id
            assert seen["report"]["memory_total_bytes"] > 0

            pull_cable(network.hosts[0])
            cut_s = time.monotonic()
            time.sleep(LEASE_S + 2.5)
            states = [others_of(status)[0]["state"] for status in watch.since(cut_s)]
            assert len(states) >= 3
            assert set(states) <= {"online", "silent"}
            assert states[-1] == "online"
            (seen,) = others_of(watch.seen[-1][1])
            assert seen["node_id"] == a.node_id
            assert seen["addresses"][0] == f"10.83.1.1:{a.port}"
            assert not any(node.complaints().count("Traceback") for node in pool.nodes)
        finally:
            pool.close()


def test_a_node_given_an_address_finds_the_other_without_any_network(tmp_path: Path) -> None:
    with local_network(1, is_plugged_in=False) as network:
        (host,) = network.hosts
        first, second = (PoolNode(host, tmp_path / f"pc-{i}", f"PC {i}") for i in range(2))
        pair(first, second)
        first.start()
        given = ("--peer", f"127.0.0.1:{first.port}")
        second.options = given
        second.start()
        try:
            watch = Watch(first)

            def knows_second(status: dict[str, Any]) -> bool:
                told = [(n["node_id"], n["state"], n["addresses"]) for n in others_of(status)]
                return told == [(second.node_id, "online", [f"127.0.0.1:{second.port}"])]

            watch.until(knows_second, 20.0)
            assert watch.seen[-1][1]["notes"] == []
            second.kill()
            watch.until(lambda s: others_of(s)[0]["state"] == "offline", 20.0)
            assert watch.seen[-1][1]["notes"] == ["There is no network: this PC works alone."]
            second.options = ()  # told nothing, it knows where the other was
            second.start()
            watch.until(knows_second, 20.0)
        finally:
            HostPool([first, second]).close()


def test_of_two_pcs_with_one_data_folder_one_becomes_another(tmp_path: Path) -> None:
    """K39: one was copied from the other, and both run."""
    with local_network(1, is_plugged_in=False) as network:
        (host,) = network.hosts
        folder = NodeFolder(tmp_path / "pc-0" / "node")
        copied = folder.node_id
        folder.close()
        shutil.copytree(tmp_path / "pc-0", tmp_path / "pc-1")
        first = said_by(host, tmp_path / "pc-0")
        (listening,) = eventually(lambda: lines_of(first), 20.0)
        second = said_by(host, tmp_path / "pc-1", "--peer", f"127.0.0.1:{listening['port']}")

        def is_renewed() -> list[dict[str, Any]] | None:
            """One of the two has said so and listens again."""
            lines = lines_of(first) + lines_of(second)
            num_listening = sum(line["event"] == "listening" for line in lines)
            return lines if num_listening == 3 else None

        told = eventually(is_renewed, 20.0)
        (why,) = (line["what"] for line in told if line["event"] == "identity_copied")
        assert "runs with a copy of this PC's data folder" in why
        ids = [line["node_id"] for line in told if line["event"] == "listening"]
        assert len(set(ids)) == 2
        assert ids.count(copied) == 2


def said_by(host: Host, folder: Path, *options: str) -> Path:
    """Start a node; return the file that keeps what it says."""
    command = [sys.executable, "-m", "engine.cli.main", "node", "--json", "--data", str(folder)]
    with (folder / "said").open("wb") as events:
        host.start([*command, *options], stdout=events)
    return folder / "said"


def lines_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_a_pc_that_is_heard_and_cannot_be_reached_is_named(tmp_path: Path) -> None:
    with local_network(2) as network:
        one, other = network.hosts
        lose_packets_to(one, other)  # multicast goes on, and so does the other direction
        pool = start_pool(network.hosts, tmp_path, lambda _: ())
        try:
            short = pool.nodes[1].node_id[:6]
            watch = Watch(pool.nodes[0])
            named = watch.until(
                lambda s: [n for n in s["notes"] if n.startswith(f"{short} is announced at")],
                NAMED_S,
            )
            assert "or the network is one-way" in named[0]
        finally:
            pool.close()

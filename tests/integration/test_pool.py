"""Nodes that find each other by mDNS on this PC, agree on a coordinator, and survive losing one."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from engine.cli.own_node import NODE_FOLDER
from tests.paired import pair_before_start

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.processes, pytest.mark.together]

AGREE_WITHIN_S = 40.0  # discovery up to 1.2 s, 2 s of listening, turns by rank; on a busy machine
NOTICE_WITHIN_S = 40.0  # a lease of 3.5 s, then a claim


@dataclass
class Node:
    """One ``daisy node`` with a folder of its own."""

    folder: Path
    name: str
    options: tuple[str, ...] = ()
    process: subprocess.Popen | None = field(default=None)

    def start(self) -> Node:
        return self.launch().listening()

    def launch(self) -> Node:
        command = [sys.executable, "-m", "engine.cli.main", "node", "--data", str(self.folder)]
        command += ["--interface", "lo", "--name", self.name, "--json", *self.options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE)
        return self

    def listening(self) -> Node:
        listening = json.loads(self.process.stdout.readline())
        self.process.stdout.close()  # it says nothing more
        assert listening["event"] == "listening"
        self.node_id, self.port = listening["node_id"], listening["port"]
        return self

    def status(self) -> dict:
        command = [sys.executable, "-m", "engine.cli.main", "status", "--json"]
        done = subprocess.run(
            [*command, "--data", str(self.folder)], capture_output=True, check=False
        )
        return json.loads(done.stdout.splitlines()[-1])

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(30)


@pytest.fixture
def paired(tmp_path):
    """Make nodes that know each other; what still runs at the end is ended.

    Yields:
        A function that makes so many.
    """
    made: list[Node] = []

    def make(num_nodes: int) -> list[Node]:
        made.extend(Node(tmp_path / f"pc-{i}", f"PC {i}") for i in range(num_nodes))
        pair_before_start([(node.folder / NODE_FOLDER, node.name) for node in made])
        return made

    yield make
    for node in made:
        if node.process is not None and node.process.poll() is None:
            node.process.kill()
            node.process.wait()


def agreed(nodes: list[Node], within_s: float) -> str:
    """Wait until all nodes name one coordinator among them, and see each other; return it."""
    end_s = time.monotonic() + within_s
    ids = {node.node_id for node in nodes}
    while True:
        seen = [node.status() for node in nodes]
        coordinators = {status["coordinator"] for status in seen}
        online = [
            {n["node_id"] for n in status["nodes"] if n["state"] == "online"} for status in seen
        ]
        if len(coordinators) == 1 and coordinators <= ids and all(o == ids for o in online):
            return coordinators.pop()
        assert time.monotonic() < end_s, (coordinators, online)
        time.sleep(0.2)


def test_nodes_find_each_other_agree_and_survive_the_loss_of_the_coordinator(paired):
    pool = [node.start() for node in paired(3)]
    first = agreed(pool, AGREE_WITHIN_S)
    lost = next(node for node in pool if node.node_id == first)
    rest = [node for node in pool if node is not lost]
    lost.end(signal.SIGKILL)
    second = agreed(rest, NOTICE_WITHIN_S)
    assert second != first

    lost.start()  # the same id, and no ghost of its earlier start
    assert lost.node_id == first
    assert agreed(pool, AGREE_WITHIN_S) == second
    assert len(rest[0].status()["nodes"]) == 3

    assert lost.end() == 0
    states = {n["node_id"]: n["state"] for n in rest[0].status()["nodes"]}
    assert states[first] in {"gone", "offline"}  # it said goodbye: nobody waits for a lease

    heir = next(node for node in rest if node.node_id != second)
    next(node for node in rest if node.node_id == second).end(signal.SIGKILL)
    assert agreed([heir], NOTICE_WITHIN_S) == heir.node_id  # a pool of two survives either loss


def test_a_node_shows_its_name_its_memory_and_its_cap(tmp_path):
    node = Node(tmp_path / "pc", "Büro \u202eX", ("--memory", "6GiB")).start()
    try:
        agreed([node], AGREE_WITHIN_S)
        (own,) = node.status()["nodes"]
        assert own["report"]["name"] == "Büro X"  # no direction mark gets through
        assert own["report"]["memory_cap_bytes"] == 6 << 30
        assert own["is_coordinator"]
    finally:
        assert node.end() == 0


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["node", "--memory", "lots"], 2, "'lots' is no amount of memory"),
        (["node", "--memory", "0"], 2, "is no amount of memory"),
        (["node", "--peer", "nowhere"], 2, "is no address of a PC"),
        (["status"], 7, "No node of Daisy runs on this PC"),
    ],
)
def test_what_cannot_be_done_is_said(tmp_path, arguments, code, words):
    command = [sys.executable, "-m", "engine.cli.main", *arguments, "--data", str(tmp_path / "d")]
    done = subprocess.run(command, capture_output=True, check=False, timeout=30)
    assert done.returncode == code
    assert words in done.stderr.decode()
    assert "Traceback" not in done.stderr.decode()


def test_a_folder_in_use_is_refused_and_a_damaged_one_mended(tmp_path):
    node = Node(tmp_path / "pc", "PC").start()
    second = subprocess.run(
        [sys.executable, "-m", "engine.cli.main", "node", "--data", str(node.folder)],
        capture_output=True,
        check=False,
        timeout=30,
    )
    assert second.returncode == 2
    assert f"in use by another node (process {node.process.pid})" in second.stderr.decode()
    assert node.end() == 0
    (node.folder / NODE_FOLDER / "identity.pem").write_bytes(b"\x00 no key")
    before = node.node_id
    node.start()
    assert node.node_id != before
    (own,) = (n for n in node.status()["nodes"] if n["is_asked"])
    assert own["notes"][0].startswith("identity.pem is damaged; it was set aside as ")
    assert node.end() == 0


def test_a_pool_whose_pcs_all_lost_power_runs_its_model_again_by_itself(paired, talking):
    """The wish is on disk: nobody has to say it twice."""
    nodes = [node.launch() for node in paired(2)]
    for node in nodes:
        node.listening()
    command = [sys.executable, "-m", "engine.cli.main", "load", str(talking), "--json"]
    command += ["--context", "64", "--users", "1", "--data", str(nodes[0].folder)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    end_s = time.monotonic() + AGREE_WITHIN_S
    while (before := nodes[1].status()["deployment"]) is None or before["phase"] != "ready":
        assert time.monotonic() < end_s, before

    for node in nodes:
        node.end(signal.SIGKILL)
    for node in nodes:
        node.launch()
    for node in nodes:
        node.listening()

    def is_ready_anew() -> bool:
        now = nodes[1].status()["deployment"]
        return now["phase"] == "ready" and now["epoch"] != before["epoch"]

    end_s = time.monotonic() + AGREE_WITHIN_S + 15.0
    while not is_ready_anew():
        assert time.monotonic() < end_s, nodes[1].status()["deployment"]
        time.sleep(0.2)
    assert nodes[1].status()["deployment"]["wish"] == before["wish"]

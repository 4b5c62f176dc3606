import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from PySide6.QtTest import QSignalSpy

from app.bridge import node_process
from app.bridge.node_process import NodeProcess, NodeState

PATIENCE_MS = 20_000
CHECKOUT = Path(__file__).parents[2]


@pytest.fixture
def fake_program(tmp_path, monkeypatch):
    """What is started instead of a node: it does as a node does, without an engine."""
    script = tmp_path / "script.json"
    script.write_text("{}", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(CHECKOUT))
    monkeypatch.setattr(
        node_process,
        "node_command",
        lambda data: [sys.executable, "-m", "tests.app.fake_node", str(data), str(script)],
    )
    yield
    for file in (tmp_path / "node" / "reach.json",):
        if file.exists():
            pid = json.loads(file.read_text(encoding="utf-8"))["pid"]
            if pid != os.getpid() and psutil.pid_exists(pid):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def node(tmp_path, owner):
    node = NodeProcess(tmp_path, owner)
    yield node
    node._link.close()


def wait_for(qtbot, node, state):
    qtbot.waitUntil(lambda: node.state is state, timeout=PATIENCE_MS)


def pid_of(tmp_path):
    return json.loads((tmp_path / "node" / "reach.json").read_text(encoding="utf-8"))["pid"]


@pytest.mark.usefixtures("fake_program")
def test_a_node_is_started_where_none_runs_and_outlives_us(node, qtbot, tmp_path):
    node.watch(starts=True)
    wait_for(qtbot, node, NodeState.RUNNING)
    pid = pid_of(tmp_path)
    assert psutil.Process(pid).parent() is None or psutil.Process(pid).ppid() != os.getpid()


@pytest.mark.usefixtures("fake_program")
def test_a_node_that_is_killed_is_started_again_and_that_is_told(node, qtbot, tmp_path):
    restarted = QSignalSpy(node.restarted)
    node.watch(starts=True)
    wait_for(qtbot, node, NodeState.RUNNING)
    first = pid_of(tmp_path)
    os.kill(first, signal.SIGKILL)
    qtbot.waitUntil(lambda: restarted.count() == 1, timeout=PATIENCE_MS)
    assert pid_of(tmp_path) != first


@pytest.mark.usefixtures("fake_program")
def test_quitting_ends_the_node_a_window_started(node, qtbot, tmp_path):
    node.watch(starts=True)
    wait_for(qtbot, node, NodeState.RUNNING)
    process = psutil.Process(pid_of(tmp_path))
    node.stop()
    gone, _ = psutil.wait_procs([process], timeout=PATIENCE_MS / 1000)
    assert gone or process.status() == psutil.STATUS_ZOMBIE


def test_quitting_leaves_a_node_alone_that_somebody_else_started(node, qtbot, start_node):
    other = start_node(in_process=True)
    node.watch(starts=True)
    wait_for(qtbot, node, NodeState.RUNNING)
    node.stop()
    with pytest.raises(subprocess.TimeoutExpired):
        other.process.wait(0.3)


def test_none_is_started_where_that_is_not_wanted(node, qtbot, tmp_path):
    node.watch(starts=False)
    qtbot.wait(300)
    assert node.state is NodeState.ABSENT
    assert not (tmp_path / "node").exists()


def test_a_node_that_cannot_start_is_said_and_why_is_kept(node, qtbot, tmp_path, monkeypatch):
    monkeypatch.setattr(node_process, "START_WITHIN_MS", 600)
    code = "import sys; sys.exit('no such engine')"
    monkeypatch.setattr(node_process, "node_command", lambda _: [sys.executable, "-c", code])
    node.watch(starts=True)
    wait_for(qtbot, node, NodeState.FAILED)
    assert "no such engine" in (tmp_path / "app" / "node-errors.txt").read_text(encoding="utf-8")


def test_the_command_is_the_one_of_this_installation(tmp_path):
    command = node_process.node_command(tmp_path)
    assert command[0] == sys.executable
    assert command[1:] == ["-m", "engine.cli.entry", "node", "--data", str(tmp_path)]

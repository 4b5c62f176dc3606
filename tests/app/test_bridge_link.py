import os
import time

import pytest
from PySide6.QtCore import QCoreApplication
from PySide6.QtTest import QSignalSpy

from app.bridge.node_link import LinkState, NodeLink
from engine.errors import LocalProtocolError
from engine.messages.control import AskPoolStatus, Generate, PoolStatusReport

PATIENCE_MS = 15_000


@pytest.fixture
def link(tmp_path, owner):
    link = NodeLink(tmp_path, owner)
    yield link
    link.close()


def wait_for(qtbot, link, state):
    qtbot.waitUntil(lambda: link.state is state, timeout=PATIENCE_MS)


def test_a_node_that_comes_later_is_found(link, qtbot, start_node):
    link.open()
    wait_for(qtbot, link, LinkState.ABSENT)
    assert not link.send(AskPoolStatus())

    start_node()
    wait_for(qtbot, link, LinkState.OPEN)

    got = QSignalSpy(link.received)
    assert link.send(AskPoolStatus())
    qtbot.waitUntil(lambda: got.count() == 1, timeout=PATIENCE_MS)
    assert isinstance(got.at(0)[0], PoolStatusReport)


def test_what_a_node_that_died_wrote_counts_as_none(link, qtbot, start_node):
    node = start_node(in_process=True)
    node.kill()
    link.open()
    wait_for(qtbot, link, LinkState.ABSENT)


@pytest.mark.parametrize("greets", ["refuses", "garbage", "other"])
def test_what_is_no_node_is_said_and_tried_again(link, qtbot, start_node, greets):
    node = start_node(greets=greets)
    link.open()
    wait_for(qtbot, link, LinkState.REFUSING)
    node.kill()
    start_node()
    wait_for(qtbot, link, LinkState.OPEN)


def test_a_slow_node_is_said_and_the_window_goes_on(link, qtbot, start_node, monkeypatch):
    monkeypatch.setattr("app.bridge.node_link.OPEN_WITHIN_MS", 200)
    start_node(greets="nothing")
    began_s = time.monotonic()
    link.open()
    assert time.monotonic() - began_s < 0.1
    wait_for(qtbot, link, LinkState.SLOW)


def test_a_node_that_is_killed_is_lost_and_the_next_one_found(link, qtbot, start_node):
    node = start_node(in_process=True)
    lost, opened = QSignalSpy(link.lost), QSignalSpy(link.opened)
    link.open()
    wait_for(qtbot, link, LinkState.OPEN)
    first = link.reach

    node.kill()
    qtbot.waitUntil(lambda: lost.count() == 1, timeout=PATIENCE_MS)
    start_node(in_process=True)
    qtbot.waitUntil(lambda: opened.count() == 2, timeout=PATIENCE_MS)

    assert link.reach.pid not in {first.pid, os.getpid()}


def test_closing_ends_the_trying(link, qtbot, start_node):
    link.open()
    link.close()
    start_node()
    qtbot.wait(400)
    assert link.state is LinkState.CLOSED


def test_a_message_too_long_for_the_port_is_not_sent(link, qtbot, start_node):
    start_node()
    link.open()
    wait_for(qtbot, link, LinkState.OPEN)
    with pytest.raises(LocalProtocolError):
        link.send(Generate(request_id="r", prompt="x" * (2 << 20)))
    assert link.state is LinkState.OPEN


def test_a_flood_is_read_a_few_milliseconds_at_a_time(link, qtbot, start_node):
    """Whatever comes, everything else has its turn in between."""
    start_node(text="abcd" * 20_000, in_process=True)
    link.open()
    wait_for(qtbot, link, LinkState.OPEN)
    got = QSignalSpy(link.received)
    worst_s = 0.0
    link.send(Generate(request_id="r", messages=({"role": "user", "content": "go"},)))
    last_s, until_s = time.thread_time(), time.monotonic() + PATIENCE_MS / 1000
    while got.count() < 20_002 and time.monotonic() < until_s:
        QCoreApplication.processEvents()
        now_s = time.thread_time()
        worst_s, last_s = max(worst_s, now_s - last_s), now_s
    assert got.count() == 20_002
    assert worst_s < 0.1

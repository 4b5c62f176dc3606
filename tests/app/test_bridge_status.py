import pytest
from PySide6.QtTest import QSignalSpy

from app.bridge.node_link import LinkState
from app.bridge.status_feed import StatusFeed

PATIENCE_MS = 15_000


@pytest.fixture
def feed(tmp_path, owner):
    feed = StatusFeed(tmp_path, owner)
    yield feed
    feed._link.close()


def test_nobody_watching_costs_nothing(feed, qtbot, start_node):
    start_node()
    told = QSignalSpy(feed.changed)
    qtbot.wait(200)
    assert told.count() == 0
    assert feed._link.state is LinkState.CLOSED

    feed.watch("a")
    feed.watch("b")
    qtbot.waitUntil(lambda: told.count() == 1, timeout=PATIENCE_MS)
    feed.unwatch("a")
    assert feed._link.state is LinkState.OPEN
    feed.unwatch("b")
    assert feed._link.state is LinkState.CLOSED


def test_it_is_asked_again_a_second_later(feed, qtbot, start_node, monkeypatch):
    monkeypatch.setattr("app.bridge.status_feed.ASK_EVERY_MS", 30)
    start_node()
    told = QSignalSpy(feed.changed)
    feed.watch("a")
    qtbot.waitUntil(lambda: told.count() >= 3, timeout=PATIENCE_MS)
    assert feed.status.deployment.phase == "ready"


def test_a_node_that_hangs_is_silent_and_an_old_state_is_no_state(
    feed, qtbot, start_node, monkeypatch
):
    monkeypatch.setattr("app.bridge.status_feed.ASK_EVERY_MS", 10)
    monkeypatch.setattr("app.bridge.status_feed.ANSWER_WITHIN_MS", 300)
    node = start_node(in_process=True)
    silent = QSignalSpy(feed.silent)
    feed.watch("a")
    qtbot.waitUntil(lambda: feed.status is not None, timeout=PATIENCE_MS)
    node.freeze()
    qtbot.waitUntil(lambda: silent.count() >= 1, timeout=PATIENCE_MS)
    assert feed.status is None
    node.thaw()
    qtbot.waitUntil(lambda: feed.status is not None, timeout=PATIENCE_MS)

import pytest
from PySide6.QtTest import QSignalSpy

from app.bridge.loading import Loading

PATIENCE_MS = 15_000


@pytest.fixture
def loading(tmp_path, owner):
    loading = Loading(tmp_path, owner)
    yield loading
    loading._link.close()


def test_a_load_is_followed_until_the_pool_runs_it(loading, qtbot, start_node):
    node = start_node(is_loaded=False, load_takes_s=0.1)
    reports, done = QSignalSpy(loading.reported), QSignalSpy(loading.done)
    loading.load("/models/some")
    assert loading.is_busy
    qtbot.waitUntil(lambda: done.count() == 1, timeout=PATIENCE_MS)
    assert not loading.is_busy
    assert reports.count() >= 2
    assert node.loads() == ["/models/some"]


def test_what_the_node_refuses_is_told_with_its_code(loading, qtbot, start_node):
    start_node(load_trouble={"code": "model_not_found", "what": "None there.", "advice": "Look."})
    failures = QSignalSpy(loading.failed)
    loading.load("/nowhere")
    qtbot.waitUntil(lambda: failures.count() == 1, timeout=PATIENCE_MS)
    assert failures.at(0)[0].code == "model_not_found"
    assert not loading.is_busy


def test_a_node_that_dies_while_it_loads_is_told(loading, qtbot, start_node):
    node = start_node(is_loaded=False, load_takes_s=60, in_process=True)
    reports, failures = QSignalSpy(loading.reported), QSignalSpy(loading.failed)
    loading.load(None)
    qtbot.waitUntil(lambda: reports.count() == 1, timeout=PATIENCE_MS)
    node.kill()
    qtbot.waitUntil(lambda: failures.count() == 1, timeout=PATIENCE_MS)
    assert failures.at(0)[0].code == "peer_unreachable"


def test_giving_up_before_the_pool_knows_ends_it_at_once(loading, qtbot, start_node):
    start_node(is_loaded=False, load_takes_s=60)
    reports = QSignalSpy(loading.reported)
    loading.load(None)
    qtbot.waitUntil(lambda: reports.count() == 1, timeout=PATIENCE_MS)
    loading.cancel()
    assert not loading.is_busy


def test_unloading_is_done_when_the_pool_runs_nothing(loading, qtbot, start_node):
    start_node()
    done = QSignalSpy(loading.done)
    loading.unload()
    qtbot.waitUntil(lambda: done.count() == 1, timeout=PATIENCE_MS)

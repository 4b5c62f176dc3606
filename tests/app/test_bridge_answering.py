import pytest
from PySide6.QtTest import QSignalSpy

from app.bridge.answering import Answering
from engine.messages.control import Generate

PATIENCE_MS = 20_000
TEXT = "one two three four five six "


@pytest.fixture
def answering(tmp_path, owner):
    answering = Answering(tmp_path, owner)
    answering.open()
    yield answering
    answering._link.close()


def request(name="r", **fields):
    return Generate(
        request_id=name, messages=({"role": "user", "content": "Count, please"},), **fields
    )


def text_of(spy, name="r"):
    return "".join(spy.at(i)[1] for i in range(spy.count()) if spy.at(i)[0] == name)


def test_a_request_before_there_is_a_node_is_sent_once_it_is_there(answering, qtbot, start_node):
    texts, ends = QSignalSpy(answering.text_came), QSignalSpy(answering.finished)
    answering.ask(request())
    start_node(text=TEXT)
    qtbot.waitUntil(lambda: ends.count() == 1, timeout=PATIENCE_MS)
    assert text_of(texts) == TEXT


def test_several_requests_run_at_once_and_stay_apart(answering, qtbot, start_node):
    start_node(text=TEXT, tokens_per_s=100)
    texts, ends = QSignalSpy(answering.text_came), QSignalSpy(answering.finished)
    for name in ("a", "b", "c"):
        answering.ask(request(name))
    qtbot.waitUntil(lambda: ends.count() == 3, timeout=PATIENCE_MS)
    assert {text_of(texts, name) for name in "abc"} == {TEXT}
    assert answering.num_running == 0


def test_the_node_is_killed_and_the_answer_goes_on_with_the_next(answering, qtbot, start_node):
    node = start_node(text=TEXT, stops_before=3, in_process=True)
    texts, ends = QSignalSpy(answering.text_came), QSignalSpy(answering.finished)
    cuts, resumes = QSignalSpy(answering.interrupted), QSignalSpy(answering.resumed)
    answering.ask(request())
    qtbot.waitUntil(lambda: texts.count() == 3, timeout=PATIENCE_MS)

    node.kill()
    qtbot.waitUntil(lambda: cuts.count() == 1, timeout=PATIENCE_MS)
    node = start_node(text=TEXT, in_process=True)
    qtbot.waitUntil(lambda: ends.count() == 1, timeout=PATIENCE_MS)

    assert text_of(texts) == TEXT
    assert resumes.count() == 1
    again = node.asked()[-1]
    assert again["committed_ids"] == [0, 1, 2]
    assert again["next_number"] == 3
    assert again["sampling"]["seed"] == 7


def test_a_pc_that_leaves_is_told_and_the_pause_with_it(answering, qtbot, start_node):
    start_node(text=TEXT, interrupted_before=2, pause_s=0.15)
    cuts, resumes = QSignalSpy(answering.interrupted), QSignalSpy(answering.resumed)
    ends = QSignalSpy(answering.finished)
    answering.ask(request())
    qtbot.waitUntil(lambda: ends.count() == 1, timeout=PATIENCE_MS)
    assert cuts.at(0)[1] == "LAPTOP left."
    assert resumes.at(0)[1] == 0.15


def test_stopping_is_confirmed_by_the_node(answering, qtbot, start_node):
    start_node(text=TEXT, stops_before=2)
    texts, ends = QSignalSpy(answering.text_came), QSignalSpy(answering.finished)
    answering.ask(request())
    qtbot.waitUntil(lambda: texts.count() == 2, timeout=PATIENCE_MS)
    answering.stop("r")
    qtbot.waitUntil(lambda: ends.count() == 1, timeout=PATIENCE_MS)
    assert ends.at(0)[1].finish_reason == "cancelled"


def test_stopping_without_a_node_is_told_at_once(answering):
    ends = QSignalSpy(answering.finished)
    answering.ask(request())
    answering.stop("r")
    assert ends.at(0)[1].finish_reason == "cancelled"
    assert answering.num_running == 0


def test_a_piece_that_is_missing_fails_the_request_alone(answering, qtbot, start_node):
    node = start_node(text=TEXT, skips=2)
    failures, ends = QSignalSpy(answering.failed), QSignalSpy(answering.finished)
    answering.ask(request())
    qtbot.waitUntil(lambda: failures.count() == 1, timeout=PATIENCE_MS)
    assert failures.at(0)[1].code == "remote_protocol"
    node.kill()
    start_node(text=TEXT)
    answering.ask(request("other"))
    qtbot.waitUntil(lambda: ends.count() == 1, timeout=PATIENCE_MS)


def test_the_pace_is_told_while_text_comes_and_then_ends(answering, qtbot, start_node):
    start_node(text="abcd" * 60, tokens_per_s=40)
    paces = QSignalSpy(answering.pace_changed)
    answering.ask(request())

    def told():
        return [paces.at(i)[0] for i in range(paces.count())]

    qtbot.waitUntil(lambda: max(told(), default=0.0) > 10, timeout=PATIENCE_MS)
    qtbot.waitUntil(lambda: told()[-1] == 0.0, timeout=PATIENCE_MS)

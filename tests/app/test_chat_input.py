"""What is written: input methods (K45), long texts (K48), Enter and Escape."""

import json

import pytest
from PySide6.QtCore import QCoreApplication, QMimeData, Qt
from PySide6.QtGui import QGuiApplication, QInputMethodEvent, QTextCursor
from PySide6.QtTest import QTest

from tests.app.watchdog import watched

MAX_BLOCK_S = 0.1


def compose(editor, preedit, commit=""):
    event = QInputMethodEvent(preedit, [])
    event.setCommitString(commit)
    QCoreApplication.sendEvent(editor, event)


def paste(editor, text):
    QGuiApplication.clipboard().setText(text)
    editor.paste()


def questions(talk):
    return [m.text for m in talk.path if m.role == "user"]


# ---- K45 ---------------------------------------------------------------------------------------


def test_enter_that_confirms_a_word_sends_nothing_and_changes_nothing(room):
    talk = room()
    compose(talk.editor, "ni hao")
    talk.press(Qt.Key.Key_Return)
    assert questions(talk) == []
    assert talk.editor.message() == ""
    assert talk.editor.is_composing

    compose(talk.editor, "", "你好")
    assert talk.editor.message() == "你好"
    assert not talk.editor.is_composing

    talk.press(Qt.Key.Key_Return)
    talk.wait(lambda: questions(talk) == ["你好"])


def test_hammering_enter_sends_one_message(room, start_node):
    node = start_node(stops_before=1)
    talk = room()
    talk.type("once")
    for _ in range(3):
        talk.press(Qt.Key.Key_Return)
    talk.wait(node.asked)
    QTest.qWait(100)
    assert questions(talk) == ["once"]
    assert len(node.asked()) == 1


def test_enter_while_an_answer_runs_keeps_what_is_written(room, start_node):
    start_node(stops_before=1)
    talk = room()
    talk.ask("first")
    talk.type("second")
    talk.press(Qt.Key.Key_Return)
    assert questions(talk) == ["first"]
    assert talk.editor.message() == "second"
    assert "Esc stops it" in talk.page.composer.hint

    talk.press(Qt.Key.Key_Escape)
    talk.wait_for_end()
    talk.press(Qt.Key.Key_Return)
    talk.wait(lambda: questions(talk) == ["first", "second"])


def test_shift_enter_makes_a_line(room):
    talk = room()
    talk.type("one")
    talk.press(Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
    talk.type("two")
    assert talk.editor.message() == "one\ntwo"
    assert questions(talk) == []


def test_escape_with_a_word_half_typed_stops_nothing(room, start_node):
    start_node(stops_before=1)
    talk = room()
    talk.ask("first")
    compose(talk.editor, "ni")
    talk.press(Qt.Key.Key_Escape)
    assert talk.page.desk.live is not None


def test_blanks_alone_are_not_sent(room):
    talk = room()
    talk.type("   ")
    talk.press(Qt.Key.Key_Return)
    assert questions(talk) == []


def test_a_word_half_typed_survives_a_change_of_language_and_tokens(room, start_node):
    start_node(text="word " * 50, piece=5, tokens_per_s=200)
    talk = room()
    talk.ask("go")
    compose(talk.editor, "zhong wen")
    talk.about.wording.choose("zh")
    talk.about.look.choose("dark", 1.5)
    talk.wait_for_end()
    assert talk.editor.is_composing
    layout = talk.editor.textCursor().block().layout()
    assert layout.preeditAreaText() == "zhong wen"
    compose(talk.editor, "", "中文")
    assert talk.editor.message() == "中文"


def test_a_long_text_moves_the_place_where_words_are_chosen(room):
    talk = room()
    before = talk.editor.inputMethodQuery(Qt.InputMethodQuery.ImCursorRectangle)
    talk.editor.set_message("a long text " * 30)
    talk.editor.moveCursor(QTextCursor.MoveOperation.End)
    compose(talk.editor, "ni")
    after = talk.editor.inputMethodQuery(Qt.InputMethodQuery.ImCursorRectangle)
    assert after != before
    assert talk.editor.rect().contains(after.center().toPoint())


# ---- K48 ---------------------------------------------------------------------------------------

LONG_TEXTS = {
    "214 KB in 4,400 lines": "".join(f"{n:06d} lorem ipsum dolor lorem ipsum end of line\n"
                                     for n in range(4400)),
    "100,000 letters": "x" * 100_000,
    "204 KB in one line": "some words and more " * 10_200,
    "20,000 lines": "line\n" * 20_000,
}  # fmt: skip


@pytest.mark.parametrize("text", LONG_TEXTS.values(), ids=LONG_TEXTS)
def test_long_texts_never_freeze_the_window_and_are_sent_whole(room, start_node, cases, text):
    assert json.loads((cases / "K48.expected.json").read_text())["right"].startswith("no block")
    node = start_node(context_tokens=200_000, text="Read.")
    talk = room()
    talk.wait(lambda: talk.page.turns.facts.is_loaded)
    with watched() as dog:
        paste(talk.editor, text)
        talk.wait(lambda: talk.page.composer.num_tokens > 1000)
        talk.type(" and why?")
        assert talk.editor.message() == text + " and why?"
        talk.press(Qt.Key.Key_Return)
        talk.wait_for_end()
        question = talk.path[0]
        bar = talk.page.view.verticalScrollBar()
        for place in range(0, bar.maximum() + 1, max(1, bar.maximum() // 10)):
            bar.setValue(place)
            QTest.qWait(2)
        talk.press_under(question.message_id, "edit")
        assert talk.editor.message() == text + " and why?"
        talk.type("!")
        talk.press(Qt.Key.Key_Return)
        talk.wait_for_end()
        chat_id = talk.page.desk.chat.chat_id
        talk.page.new_chat()
        talk.page.desk.open(chat_id)
        talk.wait(lambda: len(talk.path) == 2)
        talk.wait(lambda: talk.page.view._tools.slices.is_idle)
        QTest.qWait(50)
    assert dog.worst_s < MAX_BLOCK_S
    assert node.asked()[0]["messages"][0]["content"] == text + " and why?"
    assert node.asked()[1]["messages"][0]["content"] == text + " and why?!"


def test_a_long_text_says_how_much_too_much_it_is_before_it_is_sent(room, start_node):
    start_node(context_tokens=8192)
    talk = room()
    talk.wait(lambda: talk.page.turns.facts.is_loaded)
    paste(talk.editor, LONG_TEXTS["204 KB in one line"])
    talk.wait(lambda: "too many for this model" in talk.page.composer.hint)
    assert "about 55,080 tokens" in talk.page.composer.hint
    talk.editor.clear_message()
    talk.wait(lambda: "Enter sends" in talk.page.composer.hint)


def test_a_long_text_is_unfolded_a_piece_at_a_time_and_nothing_is_cut(room):
    talk = room()
    text = LONG_TEXTS["214 KB in 4,400 lines"]
    talk.page.desk.send(text)
    talk.wait(lambda: talk.page.view.views)
    view = talk.page.view.views[0]
    assert 0 < len(talk.shown_text(view)) < 5000
    assert "characters are folded" in view._buttons.button("unfold").text()
    presses = 0
    with watched() as dog:
        while (button := view._buttons.button("unfold")) is not None:
            button.click()
            QTest.qWait(1)
            presses += 1
    assert dog.worst_s < MAX_BLOCK_S
    assert presses > 5
    assert talk.shown_text(view).split() == text.split()


def test_several_long_texts_keep_their_places(room):
    talk = room()
    one, two = "1" * 30_000, "2\n" * 9_000
    talk.type("before ")
    paste(talk.editor, one)
    talk.type(" between ")
    paste(talk.editor, two)
    talk.type(" after")
    assert talk.editor.message() == f"before {one} between {two} after"
    assert len(talk.editor.pasted_texts()) == 2

    talk.press(Qt.Key.Key_Home)
    cursor = talk.editor.textCursor()
    cursor.setPosition(len("before "))
    cursor.deleteChar()
    assert talk.editor.message() == f"before  between {two} after"
    talk.editor.undo()
    assert talk.editor.message() == f"before {one} between {two} after"


def test_two_equal_signs_side_by_side_are_two(room):
    talk = room()
    paste(talk.editor, "a" * 9000)
    paste(talk.editor, "b" * 9000)
    assert talk.editor.message() == "a" * 9000 + "b" * 9000


def test_a_line_typed_without_end_stays_quick(room):
    talk = room()
    for _ in range(4):
        paste(talk.editor, "y" * 1900)
        QTest.qWait(5)
    with watched() as dog:
        talk.type("z" * 20)
    assert dog.worst_s < MAX_BLOCK_S
    assert talk.editor.message() == "y" * 7600 + "z" * 20


def test_pictures_and_rich_text_become_plain_text(room):
    talk = room()
    data = QMimeData()
    data.setHtml("<b>bold</b><img src='file:///etc/passwd'>")
    data.setText("bold")
    talk.editor.insertFromMimeData(data)
    assert talk.editor.message() == "bold"


def test_what_is_longer_than_can_be_carried_is_kept_and_said(room, start_node):
    node = start_node()
    talk = room()
    text = "z" * 1_200_000
    paste(talk.editor, text)
    talk.press(Qt.Key.Key_Return)
    talk.wait(lambda: "longer than Daisy can carry" in talk.page.banner.text)
    assert talk.editor.message() == text
    assert node.asked() == []
    assert questions(talk) == []


def test_what_cannot_be_put_on_disk_is_not_sent_and_not_lost(room, start_node):
    node = start_node()
    talk = room()
    talk.page.store.do(lambda db: db._connection.execute("DROP TABLE messages"))
    talk.type("Keep me")
    talk.press(Qt.Key.Key_Return)
    talk.wait(lambda: "could not be put on disk" in talk.page.banner.text)
    assert talk.editor.message() == "Keep me"
    assert node.asked() == []

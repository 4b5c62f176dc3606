import json

from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication

from app.chat.export import as_json, as_markdown

ANSWER = "# Title\n\nSome **bold** words.\n\n```python\nprint(1)\n```\n\n- one\n- two\n"


def test_a_question_is_answered_with_figures_and_the_pcs_that_answered(room, start_node):
    start_node(text=ANSWER, tokens_per_s=200)
    talk = room()
    talk.wait(lambda: talk.page.turns.facts.is_loaded)

    talk.ask_and_wait("What is it?")

    question, answer = talk.path
    assert question.text == "What is it?"
    assert answer.text == ANSWER
    assert answer.state == "whole"
    assert answer.figures.pcs == ("DESK", "LAPTOP")
    assert answer.figures.model == "Qwen3 14B"
    assert answer.figures.seed == 7
    assert "bold words" in talk.shown_text()
    assert "print(1)" in talk.shown_text()
    figures = talk.last_view._figures.text
    assert "DESK, LAPTOP" in figures
    assert "tok/s" in figures
    assert "first after" in figures
    assert "of 8,192" in figures


def test_the_question_is_on_disk_before_it_is_sent(room, start_node):
    node = start_node(stops_before=0)
    talk = room()
    order = []
    do = talk.page.store.do

    def noting(job, on_done=None, on_failed=None):
        def done(result):
            order.append("kept")
            if on_done is not None:
                on_done(result)

        do(job, done, on_failed)

    talk.page.store.do = noting
    ask = talk.about.answering.ask
    talk.about.answering.ask = lambda request: (order.append("sent"), ask(request))

    talk.ask("First to disk")
    talk.wait(node.asked)

    assert order.index("kept") < order.index("sent")


def test_stop_keeps_what_came_and_it_can_go_on(room, start_node):
    node = start_node(text="one two three four", piece=4, stops_before=2)
    talk = room()
    talk.ask("Count")
    talk.wait(lambda: talk.page.desk.live and talk.page.desk.live.answer.text == "one two ")

    talk.press(Qt.Key.Key_Escape)
    talk.wait_for_end()

    assert talk.last.state == "stopped"
    assert talk.last.text == "one two "
    assert "Stopped" in talk.last_view._notes.text
    assert talk.last_view.can_go_on

    node.kill()
    node = start_node(text="one two three four", piece=4)
    stopped_id = talk.last.message_id
    talk.press_under(stopped_id, "go_on")
    talk.wait(lambda: talk.last.state == "whole")

    assert talk.last.message_id == stopped_id
    assert talk.last.text == "one two three four"
    request = node.asked()[-1]
    assert request["committed_ids"] == [0, 1]
    assert request["seed_given"]
    assert request["sampling"]["seed"] == 7


def test_answering_again_makes_a_branch_and_both_can_be_seen(room, start_node):
    start_node(text="An answer.")
    talk = room()
    talk.ask_and_wait("Question")
    first_id = talk.last.message_id

    talk.press_under(first_id, "again")
    talk.wait(lambda: talk.last.message_id != first_id)
    talk.wait_for_end()
    second_id = talk.last.message_id

    assert talk.last_view.version.place == 2
    assert talk.last_view.version.whole == 2
    talk.press_under(second_id, "earlier")
    assert talk.last.message_id == first_id
    assert talk.last_view.version.place == 1


def test_editing_an_earlier_message_begins_a_branch_and_keeps_the_draft(room, start_node):
    start_node(text="An answer.")
    talk = room()
    talk.ask_and_wait("First question")
    question = talk.path[0]
    talk.type("half a thought")

    talk.press_under(question.message_id, "edit")
    assert talk.editor.message() == "First question"
    talk.editor.set_message("Better question")
    talk.press(Qt.Key.Key_Return)
    talk.wait_for_end()

    assert [m.text for m in talk.path] == ["Better question", "An answer."]
    assert talk.editor.message() == "half a thought"
    assert talk.page.desk.tree.siblings(talk.path[0].message_id)[0] == question.message_id


def test_escape_leaves_an_edited_message_as_it_was(room, start_node):
    start_node()
    talk = room()
    talk.ask_and_wait("Question")
    talk.press_under(talk.path[0].message_id, "edit")

    talk.press(Qt.Key.Key_Escape)

    assert not talk.page.talk.is_editing
    assert talk.editor.message() == ""


def test_a_chat_is_found_renamed_deleted_and_brought_back(room, start_node):
    start_node(text="The Eiffel tower stands in Paris.")
    talk = room()
    talk.ask_and_wait("Where does it stand?")
    chat_id = talk.page.desk.chat.chat_id
    pane = talk.page.list
    talk.wait(lambda: pane._rows.index_of(chat_id).isValid())

    pane.search_field.setText("EIFFEL")
    talk.wait(lambda: pane._rows.rowCount() == 2)
    pane.search_field.setText("no such words")
    talk.wait(lambda: pane._rows.rowCount() == 0)
    assert "no such words" in pane._nothing.text()
    pane.search_field.clear()
    talk.wait(lambda: pane._rows.index_of(chat_id).isValid())

    talk.page.shelf.rename(chat_id, "Towers")
    talk.wait(lambda: pane._rows.index_of(chat_id).data() == "Towers")
    assert talk.page.desk.chat.title == "Towers"

    pane._delete(talk.page.desk.chat)
    talk.wait(lambda: pane._rows.rowCount() == 0)
    assert "Towers" in talk.page.banner.text
    assert talk.page.desk.chat.chat_id != chat_id

    talk.page.banner.button.click()
    talk.wait(lambda: pane._rows.index_of(chat_id).isValid())
    talk.page.desk.open(chat_id)
    talk.wait(lambda: len(talk.path) == 2)


def test_chats_are_there_again_after_a_restart(room, start_node):
    start_node(text=ANSWER)
    talk = room()
    talk.ask_and_wait("Remember me")
    chat_id = talk.page.desk.chat.chat_id
    talk.close()

    again = room()
    again.wait(lambda: again.page.list._rows.index_of(chat_id).isValid())
    again.page.desk.open(chat_id)
    again.wait(lambda: len(again.path) == 2)
    again.wait(lambda: again.page.view._tools.slices.is_idle)

    assert again.last.text == ANSWER
    assert "bold words" in again.shown_text()


def test_two_chats_are_answered_at_once_and_each_keeps_its_own(room, start_node):
    start_node(text="word " * 40, piece=5, tokens_per_s=60)
    talk = room()
    talk.ask("One")
    first = talk.page.desk.chat.chat_id
    talk.page.new_chat()
    talk.ask("Two")
    assert talk.page.turns.num_live == 2

    talk.wait_for_end()
    assert talk.last.text == "word " * 40
    talk.page.desk.open(first)
    talk.wait(lambda: talk.page.desk.chat.chat_id == first)
    talk.wait_for_end()
    assert [m.text for m in talk.path] == ["One", "word " * 40]


def test_coming_back_to_a_chat_that_is_being_answered_shows_it_grow(room, start_node):
    start_node(text="".join(f"w{n} " for n in range(60)), piece=4, tokens_per_s=40)
    talk = room()
    talk.ask("One")
    first = talk.page.desk.chat.chat_id
    talk.wait(lambda: talk.page.desk.live.answer.text)
    talk.page.new_chat()
    talk.page.desk.open(first)
    talk.wait(lambda: talk.page.desk.chat.chat_id == first)
    talk.wait_for_end()

    assert talk.shown_text().split() == [f"w{n}" for n in range(60)]


def test_system_prompt_and_sampling_of_a_chat_are_sent(room, start_node):
    node = start_node()
    talk = room()
    talk.page.head.settings_button.click()
    settings = talk.page.settings
    settings.prompt.setPlainText("Answer briefly.")
    settings.temperature.setValue(0.3)
    settings.max_tokens.setValue(64)
    settings.seed.setValue(5)
    settings.flush()

    talk.ask_and_wait("Hi")

    request = node.asked()[-1]
    assert request["messages"][0] == {"role": "system", "content": "Answer briefly."}
    assert request["sampling"]["temperature"] == 0.3
    assert request["sampling"]["seed"] == 5
    assert request["max_tokens"] == 64

    settings._reset.click()
    talk.ask_and_wait("Again")
    request = node.asked()[-1]
    assert request["messages"][0]["role"] == "user"
    assert request["max_tokens"] is None


def test_copying_an_answer_gives_its_markdown(room, start_node):
    start_node(text=ANSWER)
    talk = room()
    talk.ask_and_wait("Q")

    talk.press_under(talk.last.message_id, "copy")

    assert QGuiApplication.clipboard().text() == ANSWER


def test_a_chat_is_exported_as_markdown_and_as_json(room, start_node, tmp_path):
    start_node(text=ANSWER)
    talk = room()
    talk.ask_and_wait("Q?")
    chat, messages = talk.page.desk.chat, talk.path
    file = tmp_path / "out.md"

    talk.page._exporting.write(chat, messages, "markdown", file)

    written = file.read_text(encoding="utf-8")
    assert written.startswith("# Q?")
    assert ANSWER in written
    assert str(file) in talk.page.banner.text
    told = json.loads(as_json(chat, messages))
    assert told["messages"][1]["text"] == ANSWER
    assert told["messages"][1]["figures"]["completion_tokens"] > 0
    assert as_markdown(chat, [], {"user": "U", "assistant": "A", "system": "S"}) == "# Q?\n"


def test_export_says_where_it_could_not_write(room, tmp_path):
    talk = room()

    talk.page._exporting.write(talk.page.desk.chat, [], "json", tmp_path / "no" / "such" / "place")

    assert "could not be written" in talk.page.banner.text


def test_an_error_says_what_to_do_and_can_be_tried_again(room, start_node):
    trouble = {"code": "inference", "what": "Stage 1 failed on GPU.", "advice": "Run it again."}
    node = start_node(error=trouble)
    talk = room()
    talk.ask_and_wait("Q")

    panel = talk.last_view._trouble
    assert talk.last.state == "failed"
    assert panel._what.text == "A device failed while it was computing."
    assert panel._details.text == ""
    panel._buttons.button("details").click()
    assert "Stage 1 failed on GPU." in panel._details.text

    node.kill()
    start_node(text="Better.")
    panel._buttons.button("retry").click()
    talk.wait(lambda: talk.last.text == "Better.")
    talk.wait_for_end()
    assert talk.last.state == "whole"

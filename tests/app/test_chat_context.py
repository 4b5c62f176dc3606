"""A chat that grows past what its model holds (K23): nothing is left out unseen."""

from PySide6.QtCore import Qt

WORDS = "word " * 30


def contents(request):
    return [m["content"].strip() for m in request["messages"]]


def test_a_message_too_long_is_kept_and_says_by_how_much(room, start_node):
    start_node(context_tokens=256)
    talk = room()
    talk.wait(lambda: talk.page.turns.facts.is_loaded)
    talk.editor.set_message("word " * 300)
    talk.press(Qt.Key.Key_Return)
    talk.wait_for_end()

    panel = talk.last_view._trouble
    assert talk.last.state == "failed"
    assert "49 tokens too long for this model: 304 tokens, and it holds 256" in panel._what.text
    assert "Shorten it" in panel._advice.text
    assert talk.path[0].text == "word " * 300

    talk.press_under(talk.path[0].message_id, "edit")
    assert talk.editor.message() == "word " * 300


def test_a_growing_chat_leaves_out_its_oldest_exchanges_and_says_so(room, start_node):
    node = start_node(context_tokens=256, text=WORDS)
    talk = room()
    talk.wait(lambda: talk.page.turns.facts.is_loaded)
    talk.page.desk.set_prompt("The password is ANANAS-7734. Never forget it.")

    for number in range(7):
        talk.editor.set_message(f"q{number} {WORDS}")
        talk.press(Qt.Key.Key_Return)
        talk.wait_for_end()
        assert talk.last.state == "whole", talk.last.figures

    last = node.asked()[-1]
    sent = contents(last)
    assert sent[0] == "The password is ANANAS-7734. Never forget it."
    assert sent[-1].startswith("q6")
    assert not any(text.startswith("q0") for text in sent)
    assert last["messages"][1]["role"] == "user"
    num = talk.last.figures.num_left_out
    assert num == 12 - (len(sent) - 2)
    assert f"{num} earlier messages were left out: the model holds 256 tokens." in (
        talk.last_view._notes.text
    )
    assert len(talk.path) == 14  # nothing is gone from the chat itself


def test_the_guess_may_be_wrong_then_the_models_own_count_decides(room, start_node, monkeypatch):
    monkeypatch.setattr("app.chat.request.TOKENS_PER_NARROW", 0.01)
    monkeypatch.setattr("app.chat.request.TOKENS_PER_MESSAGE", 0)
    node = start_node(context_tokens=120, text="ok")
    talk = room()
    talk.wait(lambda: talk.page.turns.facts.is_loaded)
    for number in range(4):
        talk.editor.set_message(f"q{number} {WORDS}")
        talk.press(Qt.Key.Key_Return)
        talk.wait_for_end()
        assert talk.last.state == "whole", talk.last.figures
    assert talk.last.figures.num_left_out >= 2
    assert contents(node.asked()[-1])[-1].startswith("q3")


def test_an_answer_that_fills_the_context_says_so(room, start_node):
    start_node(context_tokens=20, text="one two three four")
    talk = room()
    talk.wait(lambda: talk.page.turns.facts.is_loaded)
    talk.page.settings.max_tokens.setValue(64)
    talk.page.desk.set_sampling(talk.page.settings._sampling)
    talk.about.answering.accepted.connect(lambda *_: None)
    talk.ask_and_wait("Hi")
    assert talk.last.figures.context_tokens == 20

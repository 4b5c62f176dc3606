"""PCs that leave, nodes that die, models that are not loaded: the answer goes on, and says so."""

import pytest

from app.bridge.node_process import NodeState

TEXT = "".join(f"w{n} " for n in range(40))


def test_a_pc_that_leaves_is_told_in_line_and_the_answer_is_whole(room, start_node):
    start_node(text=TEXT, interrupted_before=10, pause_s=0.4)
    talk = room()
    talk.wait(lambda: talk.page.turns.facts.is_loaded)
    talk.ask("Count")
    talk.wait(lambda: "The others take over" in talk.last_view.progress)
    talk.wait_for_end()

    assert talk.shown_text().split() == TEXT.split()
    assert "A PC left; the others continued after 0.4 s." in talk.last_view._notes.text
    assert talk.last.figures.pauses_s == (0.4,)


def test_the_node_is_killed_during_an_answer_and_the_next_one_goes_on(room, start_node):
    node = start_node(text=TEXT, piece=3, stops_before=8, in_process=True)
    talk = room()
    talk.wait(lambda: talk.page.turns.facts.is_loaded)
    talk.ask("Count")
    talk.wait(lambda: talk.page.desk.live.answer.text == TEXT[:24])

    node.kill()
    talk.wait(lambda: talk.page.desk.live.phase == "interrupted")
    talk.wait(lambda: talk.page.banner.text == "Daisy's engine does not run on this PC.")
    node = start_node(text=TEXT, piece=3, in_process=True)
    talk.wait_for_end()

    assert talk.last.text == TEXT
    assert talk.shown_text().split() == TEXT.split()
    assert node.asked()[-1]["committed_ids"] == list(range(8))
    assert "the others continued after" in talk.last_view._notes.text
    assert talk.page.banner.text == ""


def test_a_new_node_without_a_model_loads_the_last_one_and_goes_on(room, start_node, monkeypatch):
    monkeypatch.setattr("app.chat.turns.RECORD_WITHIN_S", 0.2)
    node = start_node(text=TEXT, piece=3, stops_before=8)
    talk = room()
    talk.page.turns._looking.setInterval(50)
    talk.about.loading.last_source = "/models/mine"
    talk.wait(lambda: talk.page.turns.facts.is_loaded)
    talk.ask("Count")
    talk.wait(lambda: talk.page.desk.live.answer.text == TEXT[:24])
    node.kill()
    node = start_node(text=TEXT, piece=3, is_loaded=False, load_takes_s=0.3)
    talk.wait_for_end()
    assert talk.last.text == TEXT
    assert node.loads() == ["/models/mine"]


def test_another_model_does_not_go_on_with_an_answer(room, start_node, monkeypatch):
    monkeypatch.setattr("app.chat.turns.RECORD_WITHIN_S", 0.2)
    node = start_node(text=TEXT, piece=3, stops_before=8)
    talk = room()
    talk.page.turns._looking.setInterval(50)
    talk.wait(lambda: talk.page.turns.facts.is_loaded)
    talk.ask("Count")
    talk.wait(lambda: talk.page.desk.live.answer.text == TEXT[:24])
    node.kill()
    start_node(text=TEXT, is_loaded=False, model_sha256="d" * 64)
    talk.wait_for_end()
    assert talk.last.state == "failed"
    assert talk.last.figures.code == "pipeline_broken"
    assert talk.last.text == TEXT[:24]
    assert not talk.last_view.can_go_on


def test_the_first_question_loads_the_small_model_by_itself(room, start_node):
    node = start_node(is_loaded=False, load_takes_s=0.3, text="Hello.")
    talk = room()
    talk.wait(lambda: talk.page.turns.facts.is_known)
    assert "No model is loaded yet" in talk.page.empty._more.text()
    talk.ask("Hi")
    talk.wait(lambda: "Preparing the model on this PC" in talk.last_view.progress)
    talk.wait_for_end()
    assert talk.last.text == "Hello."
    assert node.loads() == [None]


def test_a_model_that_cannot_be_loaded_says_why(room, start_node):
    trouble = {"code": "insufficient_memory", "what": "1 GB too few.", "advice": "Add a PC."}
    start_node(is_loaded=False, load_trouble=trouble)
    talk = room()
    talk.wait(lambda: talk.page.turns.facts.is_known)
    talk.ask("Hi")
    talk.wait_for_end()
    assert talk.last.state == "failed"
    assert "does not fit" in talk.last_view._trouble._what.text


def test_waiting_for_a_model_can_be_stopped(room, start_node):
    start_node(is_loaded=False, load_takes_s=60)
    talk = room()
    talk.wait(lambda: talk.page.turns.facts.is_known)
    talk.ask("Hi")
    talk.wait(lambda: talk.page.turns._waiting)
    talk.page.desk.stop()
    talk.wait_for_end()
    assert talk.last.state == "stopped"


def test_a_question_without_a_node_waits_for_one(room, start_node):
    talk = room()
    talk.ask("Anyone?")
    talk.wait(lambda: "engine does not run on this PC" in talk.last_view.progress)
    start_node(text="Here.")
    talk.wait_for_end()
    assert talk.last.text == "Here."


def test_reading_the_prompt_is_said_with_its_length(room, start_node):
    start_node(stops_before=0)
    talk = room()
    talk.ask("one two three")
    talk.wait(lambda: talk.last_view.progress.startswith("Reading your prompt, 7 tokens"))


@pytest.mark.parametrize(
    ("queue_place", "wait_s", "num_read", "words"),
    [
        (3, None, 0, "Waiting for its turn: place 3 in the queue…"),
        (2, 12.6, 0, "Waiting for its turn: place 2 in the queue, about 12 s…"),
        (1, 0.4, 0, "Waiting for its turn: place 1 in the queue…"),
        (0, None, 5, "Reading your prompt: 5 of 7 tokens…"),
        (0, None, 7, "Reading your prompt, 7 tokens…"),
    ],
)
def test_how_far_it_is_before_its_first_text_is_said(
    room, start_node, queue_place, wait_s, num_read, words
):
    told = {"queue_place": queue_place, "wait_s": wait_s, "num_read": num_read}
    start_node(stops_before=0, progress=[told])
    talk = room()
    talk.ask("one two three")
    talk.wait(lambda: talk.last_view.progress.startswith(words))


def test_waiting_for_ones_turn_is_said(room, start_node):
    start_node(accept_after_s=30)
    talk = room()
    talk.wait(lambda: talk.page.turns.facts.is_loaded)
    talk.ask("Hi")
    talk.wait(lambda: talk.last_view.progress.startswith("Waiting for its turn"))
    talk.wait(lambda: "s" in talk.last_view.progress.partition("·")[2])


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (NodeState.ABSENT, "does not run on this PC"),
        (NodeState.SLOW, "does not answer"),
        (NodeState.REFUSING, "Something else answers"),
        (NodeState.FAILED, "could not be started"),
    ],
)
def test_what_is_wrong_with_the_node_is_said_with_what_can_be_done(room, state, words):
    talk = room()
    talk.about.node._set_state(NodeState.RUNNING)
    talk.about.node._set_state(state)
    assert words in talk.page.banner.text
    is_startable = state in {NodeState.ABSENT, NodeState.FAILED}
    assert talk.page.banner.button.isVisible() == is_startable
    talk.about.node._set_state(NodeState.RUNNING)
    assert talk.page.banner.text == ""


def test_words_of_a_problem_change_with_the_language(room, start_node):
    start_node(error={"code": "stage", "what": "It failed.", "advice": "Again."})
    talk = room()
    talk.ask_and_wait("x")
    english = talk.last_view._trouble._what.text
    talk.about.wording.choose("zh")
    talk.wait(lambda: talk.page.view._tools.slices.is_idle)
    assert talk.last_view._trouble._what.text == "模型的一部分在所在电脑上出错了。"
    assert english == "A part of the model failed on its PC."

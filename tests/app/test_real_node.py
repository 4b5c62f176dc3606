"""The window and a real node with the embedded model: load, ask, lose the node, go on."""

import pytest
from PySide6.QtCore import Qt

from tests.app.real_nodes import RealNode

PATIENCE_MS = 120_000  # of reading, cutting and compiling a model on a busy machine

pytestmark = [pytest.mark.embedded, pytest.mark.processes, pytest.mark.timeout(400)]


@pytest.fixture
def start_real_node(tmp_path, embedded, data_dir):
    # The model is there already: this is not about fetching it.
    assert embedded is not None
    for name in ("models", "downloads"):
        (tmp_path / name).symlink_to(data_dir.resolve() / name, target_is_directory=True)
    nodes = []

    def start():
        nodes.append(RealNode(tmp_path))
        return nodes[-1]

    yield start
    for node in nodes:
        if node.process.poll() is None:
            node.kill()


def test_load_ask_lose_the_node_and_go_on(room, start_real_node, qtbot):
    def wait(condition):
        qtbot.waitUntil(lambda: bool(condition()), timeout=PATIENCE_MS)

    node = start_real_node()
    talk = room()
    wait(lambda: talk.page.turns.facts.is_known)
    sampling = talk.page.desk.chat.sampling
    talk.page.desk.set_sampling(type(sampling)(temperature=0.0, max_tokens=64))

    # The first question loads the model that comes with Daisy, and is answered by it.
    talk.type("Count from one to thirty in words.")
    talk.press(Qt.Key.Key_Return)
    wait(lambda: talk.page.desk.live and talk.page.desk.live.phase == "writing")
    assert talk.page.turns.facts.model == "SmolLM2-135M-Instruct"
    wait(lambda: talk.page.desk.live is None)
    first = talk.last
    assert first.state == "whole"
    assert first.figures.rate > 0
    assert first.figures.prompt_tokens > 0
    assert len(first.figures.pcs) == 1

    # The same again, and the node dies in the middle of it.
    talk.press_under(first.message_id, "again")
    wait(lambda: talk.page.desk.live and len(talk.page.desk.live.answer.token_ids) > 15)
    before = talk.page.desk.live.answer
    node.kill()
    wait(lambda: talk.page.desk.live.phase == "interrupted")
    start_real_node()
    wait(lambda: talk.page.desk.live is None)

    second = talk.last
    assert second.message_id != first.message_id
    assert second.state == "whole", second.figures
    # Nothing that came is taken back or comes twice. (What follows need not be the first answer's:
    # in fast mode a prompt that is read again may fall the other way where two words tie.)
    assert second.text.startswith(before.text)
    assert second.token_ids[: len(before.token_ids)] == before.token_ids
    assert len(second.token_ids) > len(before.token_ids)
    assert second.figures.pauses_s

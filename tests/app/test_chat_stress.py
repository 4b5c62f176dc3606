"""A fast model and a long answer: the window never stands still (DAISY_LONG=1 takes a minute)."""

import os
import time

import pytest
from PySide6.QtTest import QTest

from app.chat.records import Chat, Message
from app.look.dress import Dress
from tests.app.watchdog import watched

IS_LONG = bool(os.environ.get("DAISY_LONG"))
TOKENS_PER_S = 200
SECONDS = 60 if IS_LONG else 5
MAX_BLOCK_S = 0.1
SECTION = """## Section {n}

Some *words* with **weight**, `code` and a [link](https://example.org/{n}), long enough to wrap over
more than one line of the column it is shown in, as answers do.

- first of {n}
- second, with `code`
  1. nested
  2. again

| name | value |
|---|---|
| a{n} | {n} |

```python
def function_{n}(argument: int) -> str:
    # a comment
    return f"{{argument}}: " + "text" * {n}
```

> A quotation of {n}.

"""


def long_answer():
    """Return as much as comes in the time, 64 KiB in the long run."""
    sections = "".join(SECTION.format(n=n) for n in range(400))
    code = (
        "```python\n" + "".join(f"value_{n} = compute({n}, 'text')\n" for n in range(900)) + "```\n"
    )
    num = 64 * 1024 if IS_LONG else TOKENS_PER_S * SECONDS * 6
    return (sections[: num * 2 // 3].rsplit("\n## ", 1)[0] + "\n\n" + code)[:num]


def test_the_watchdog_sees_a_block(qtbot):
    with watched() as dog:
        qtbot.wait(30)
        time.sleep(0.15)
        qtbot.wait(30)
    assert 0.14 < dog.worst_s < 0.4
    with watched() as dog:
        qtbot.wait(60)
    assert dog.worst_s < 0.05


@pytest.mark.timeout(300)
def test_two_hundred_tokens_a_second_never_freeze_the_window(room, start_node, qapp):
    text = long_answer()
    piece = len(text) // (TOKENS_PER_S * SECONDS) + 1
    start_node(text=text, piece=piece, tokens_per_s=TOKENS_PER_S, in_process=True)
    talk = room()
    dress = Dress(qapp, talk.about.look)
    talk.wait(lambda: talk.page.turns.facts.is_loaded)
    began_s = time.monotonic()
    with watched() as dog:
        talk.ask("Write a lot")
        QTest.keyClicks(talk.editor, "a" * 20, delay=20)  # a person writes the next question
        QTest.qWait(500)
        talk.page.view.verticalScrollBar().setValue(0)  # and reads what stands above
        talk.wait_for_end(SECONDS * 2000 + 10_000)
    seconds = time.monotonic() - began_s
    dress.deleteLater()
    qapp.setStyleSheet("")
    assert talk.last.text == text
    assert talk.editor.message() == "a" * 20
    assert dog.worst_s < MAX_BLOCK_S
    assert seconds < SECONDS * 1.5 + 3  # and it keeps up
    assert "function_3" in talk.shown_text()


def test_a_long_chat_is_opened_and_scrolled_without_a_block(room, start_node):
    start_node()
    talk = room()
    chat = talk.page.desk.chat
    answer = "".join(SECTION.format(n=n) for n in range(4))
    talk.page.store.do(lambda db: _fill(db, chat.chat_id, answer))
    talk.wait_for_store()
    with watched() as dog:
        talk.page.desk.chat = type(chat)(chat_id="other")
        talk.page.desk.open(chat.chat_id)
        talk.wait(lambda: len(talk.path) == 200)
        talk.wait(lambda: talk.page.view._tools.slices.is_idle)
        bar = talk.page.view.verticalScrollBar()
        for _ in range(3):
            bar.setValue(0)
            talk.wait(lambda: talk.page.view._tools.slices.is_idle)
            QTest.qWait(5)
        talk.window.resize(700, 600)
        QTest.qWait(200)
        talk.about.look.choose("dark", 1.25)
        talk.wait(lambda: talk.page.view._tools.slices.is_idle)
        QTest.qWait(100)
    assert len(talk.page.view.views) > 20
    assert dog.worst_s < MAX_BLOCK_S
    assert talk.page.view.verticalScrollBar().value() < bar.maximum() // 2  # where it was read


def _fill(database, chat_id, answer):
    parent = None
    for number in range(200):
        is_question = number % 2 == 0
        message = Message(
            message_id=f"m{number}",
            chat_id=chat_id,
            parent_id=parent,
            role="user" if is_question else "assistant",
            text=f"question {number}" if is_question else answer,
        )
        parent = message.message_id
        database.add_message(Chat(chat_id=chat_id, title="Long", leaf_id=parent), message)

"""The window is killed at random moments: nothing it said was kept is ever lost.

A process of its own is the window: it sends message after message and prints what was acknowledged
as being on disk. It is killed, its file is opened, and everything that was printed must be there
(six times; DAISY_LONG=1 kills it three hundred times).
"""

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from app.chat.database import ChatDatabase
from app.places import app_folder

CHECKOUT = Path(__file__).parents[2]
NUM_KILLS = 300 if os.environ.get("DAISY_LONG") else 6
RNG = random.Random(20)  # noqa: S311 - when something is killed is no secret


@pytest.mark.timeout(300 if NUM_KILLS < 100 else 3600)
def test_no_acknowledged_message_is_lost_however_often_the_window_is_killed(tmp_path, start_node):
    start_node(text="".join(f"w{n} " for n in range(400)), tokens_per_s=150)
    folder = app_folder(tmp_path)
    acknowledged, answered = {}, {}
    for _ in range(NUM_KILLS):
        told = killed_window(tmp_path, RNG.uniform(0.05, 1.2))
        for line in told:
            kind, message_id, text = json.loads(line)
            (acknowledged if kind == "kept" else answered)[message_id] = text

        database = ChatDatabase(folder / "chats.sqlite")
        found = {}
        for one in database.find(""):
            _, messages = database.read_chat(one.chat.chat_id)
            found.update({m.message_id: m for m in messages})
        (verdict,) = database._connection.execute("PRAGMA integrity_check").fetchone()
        database.close()

        assert verdict == "ok"
        for message_id, text in acknowledged.items():
            assert found[message_id].text == text
        for message_id, text in answered.items():
            assert found[message_id].text.startswith(text)
    assert len(acknowledged) >= NUM_KILLS // 2
    assert not list(folder.glob("*damaged*"))


def killed_window(tmp_path, after_s):
    """Run the window, kill it so long after its first acknowledged message; return what it told."""
    window = subprocess.Popen(
        [sys.executable, "-m", "tests.app.talking_window", str(tmp_path)],
        cwd=CHECKOUT,
        stdout=subprocess.PIPE,
        env={**os.environ, "QT_QPA_PLATFORM": "offscreen"},
    )
    first = window.stdout.readline()
    time.sleep(after_s)
    window.kill()
    rest = window.stdout.read()
    window.stdout.close()
    window.wait()
    lines = (first + rest).split(b"\n")
    return [line for line in lines[:-1] if line]  # the last one may be half a line

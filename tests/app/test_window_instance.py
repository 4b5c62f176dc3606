import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from PySide6.QtNetwork import QLocalSocket
from PySide6.QtTest import QSignalSpy

from app.single_instance import SingleInstance

CHECKOUT = Path(__file__).parents[2]
HOLDER = """
import sys
from pathlib import Path
from PySide6.QtCore import QCoreApplication
from app.single_instance import SingleInstance
application = QCoreApplication([])
instance = SingleInstance(Path(sys.argv[1]))
print(instance.claim(), flush=True)
instance.raise_asked.connect(lambda: print("raised", flush=True))
application.exec()
"""


@pytest.fixture
def holder(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], cwd=CHECKOUT, stdout=subprocess.PIPE
    )
    assert process.stdout.readline() == b"True\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_second_start_raises_the_first_within_a_second(tmp_path, owner, holder):
    began_s = time.monotonic()
    assert not SingleInstance(tmp_path, owner).claim()
    assert holder.stdout.readline() == b"raised\n"
    assert time.monotonic() - began_s < 1.0


def test_after_a_kill_the_next_start_is_the_only_one(tmp_path, owner, holder):
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    instance = SingleInstance(tmp_path, owner)
    assert instance.claim()
    instance.release()


def test_other_data_folders_have_windows_of_their_own(tmp_path, owner, holder):
    other = SingleInstance(tmp_path / "other", owner)
    assert other.claim()
    other.release()


def test_the_one_that_holds_it_is_told(tmp_path, owner, qtbot):
    first = SingleInstance(tmp_path, owner)
    assert first.claim()
    asked = QSignalSpy(first.raise_asked)
    socket = QLocalSocket()
    socket.connectToServer(first._name)
    qtbot.waitUntil(lambda: asked.count() == 1, timeout=5000)
    first.release()

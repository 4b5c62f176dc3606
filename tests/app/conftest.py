"""What tests of the window may ask for."""

import gc
import os

# Before Qt is there: no screen, and the same sizes everywhere.
os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

import pytest
from PySide6.QtCore import QCoreApplication, QEvent, QObject

from tests.app.nodes import NodeChild, NodeThread
from tests.app.talks import Room


@pytest.fixture
def start_node(tmp_path):
    # Start fake nodes in the test's data folder; those that still run are ended with it.
    children = []

    def start(*, in_process=False, **script):
        kind = NodeChild if in_process else NodeThread
        children.append(kind(tmp_path, **script))
        return children[-1]

    yield start
    for child in children:
        if child.is_alive:
            child.kill()


@pytest.fixture
def owner(qapp):
    # An object that owns what a test makes, and takes it along when the test ends.
    owner = QObject()
    yield owner
    owner.deleteLater()
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete.value)


@pytest.fixture
def room(tmp_path, qtbot, owner):
    # The chat page in a window of its own, connected to whatever node has the data folder.
    rooms = []

    def open_room(**kwargs):
        room = Room(tmp_path, qtbot, owner, **kwargs)
        rooms.append(room)
        return room

    yield open_room
    for room in rooms:
        room.close()
    gc.collect()

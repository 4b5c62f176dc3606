"""Starts and ends fake nodes: in a thread of the test, or as a process that can be killed."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import msgspec

from tests.app.fake_node import FakeNode, Script

CHECKOUT = Path(__file__).parents[2]
START_WITHIN_S = 20.0


class _Child:
    """What both kinds have."""

    folder: Path

    def _told(self) -> list[dict]:
        lines = (self.folder / "asked.jsonl").read_text(encoding="utf-8").splitlines()
        return list(map(json.loads, lines))

    def asked(self) -> list[dict]:
        """Return the requests it got."""
        return [told for told in self._told() if "request_id" in told]

    def loads(self) -> list[str | None]:
        """Return what it was asked to load."""
        return [told["load"] for told in self._told() if "load" in told]

    def asked_of_members(self) -> list[dict]:
        """Return what it was asked to change about who is in the pool."""
        return [told for told in self._told() if "asked" in told]


class NodeThread(_Child):
    """A fake node in a thread."""

    def __init__(self, folder: Path, **script) -> None:
        self.folder = folder
        self._node = FakeNode(folder, Script(**script))
        self._thread = threading.Thread(target=lambda: asyncio.run(self._node.run()), daemon=True)
        self._thread.start()
        assert self._node.listens.wait(START_WITHIN_S)

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def own_pc(self):
        """What its PC lends and keeps; a test may change it."""
        return self._node.own_pc

    @property
    def members(self):
        """Who is in its pool; a test may change it."""
        return self._node.members

    def kill(self) -> None:
        self._node.loop.call_soon_threadsafe(self._node.stop.set)
        self._thread.join(START_WITHIN_S)
        assert not self._thread.is_alive()


class NodeChild(_Child):
    """A fake node's process."""

    def __init__(self, folder: Path, **script) -> None:
        self.folder = folder
        file = folder / "script.json"
        file.write_bytes(msgspec.json.encode(Script(**script)))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.app.fake_node", str(folder), str(file)],
            cwd=CHECKOUT,
            stdout=subprocess.PIPE,
        )
        assert self.process.stdout.readline() == b"listening\n"

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def freeze(self) -> None:
        os.kill(self.process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

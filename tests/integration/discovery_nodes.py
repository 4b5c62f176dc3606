"""Processes that discover each other, and what they told."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.integration.namespaces import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.integration.namespaces import Host

CHECKOUT = Path(__file__).parents[2]
START_S = 30.0  # importing on a machine that does other things
QUICK = ("--adapters-every", 0.3, "--announce-every", 1, "--ttl", 3)


class Node:
    """A discovery in a process on a host."""

    def __init__(
        self, host: Host, folder: Path, node_id: str, *options: object, start: object = ()
    ) -> None:
        self.node_id = node_id
        self.host = host
        self._out = folder / f"{node_id}-{time.monotonic_ns()}.jsonl"
        self.err = self._out.with_suffix(".err")
        command = [sys.executable, "-m", "tests.integration.discovering", node_id, *options]
        with self._out.open("wb") as out, self.err.open("wb") as err:
            self.process = host.start(
                [*start, *command], cwd=CHECKOUT, stdin=subprocess.PIPE, stdout=out, stderr=err
            )

    @property
    def events(self) -> list[dict[str, Any]]:
        text = self._out.read_text()
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    def of(self, event: str) -> list[dict[str, Any]]:
        return [said for said in self.events if said["event"] == event]

    @property
    def started_at_s(self) -> float:
        return eventually(lambda: self.of("started"), START_S)[0]["at_s"]

    @property
    def peers(self) -> dict[str, list[str]]:
        """Who is there by what was told so far, and at which addresses."""
        there: dict[str, list[str]] = {}
        for said in self.events:
            if said["event"] == "appeared":
                there[said["node"]] = said["addresses"]
            elif said["event"] == "vanished":
                del there[said["node"]]
        return there

    def last(self, event: str, node_id: str) -> float:
        """When a node was last told to appear or to vanish."""
        return [said["at_s"] for said in self.of(event) if said["node"] == node_id][-1]

    def usage(self) -> dict[str, Any]:
        num = len(self.of("usage"))
        self.say("usage")
        return eventually(lambda: self.of("usage")[num:], START_S)[0]

    def say(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n".encode())
        self.process.stdin.flush()

    def end(self) -> None:
        """End in order, with a goodbye."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(10.0) == 0
        assert self.of("ended")[0]["tasks"] == 1

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10.0)

    def check(self) -> None:
        """Nothing went unhandled, and nothing was printed for a person to wonder about."""
        assert self.process.poll() in {None, 0}
        assert not self.of("unhandled")
        assert not self.err.read_text()


def all_see_all(nodes: list[Node]) -> bool:
    """Every node sees every other one."""
    return all(node.peers.keys() == {n.node_id for n in nodes} - {node.node_id} for node in nodes)


def sees(node: Node, other: Node, *addresses: str) -> bool:
    return node.peers.get(other.node_id) == sorted(addresses or other.host.interfaces.values())


def settled(node: Node) -> dict[str, Any]:
    """What is in use once nothing is being sent: the main task, and one each to run and to tell."""
    return eventually(lambda: (usage := node.usage())["tasks"] == 3 and usage, START_S, 0.2)


@contextlib.contextmanager
def discovering(folder: Path) -> Iterator[Callable[..., Node]]:
    """Start nodes; at the end none may have had anything unhandled.

    Yields:
        What starts one, with a host, an id, and options.
    """
    nodes: list[Node] = []

    def start(host: Host, node_id: str, *options: object, **more: Any) -> Node:
        nodes.append(Node(host, folder, node_id, *options, **more))
        return nodes[-1]

    yield start
    for node in nodes:
        if node.process.returncode != -9:
            node.check()

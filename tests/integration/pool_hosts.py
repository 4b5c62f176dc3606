"""A pool of real nodes, each on a host of its own, driven by the commands people use."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import psutil

from engine.cli.own_node import NODE_FOLDER
from engine.domain import NodeId
from engine.errors import InsufficientMemoryError
from engine.pool.placement import plan_placement
from engine.pool.plan import NodeFacts
from engine.splitter.manifest import decode_manifest
from tests.integration.namespaces import eventually
from tests.paired import pair_before_start

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from engine.domain import ModelDescription
    from engine.pool.stage_memory import Workload
    from tests.integration.namespaces import Host

COMMAND_S = 60.0
ANSWER_S = 200.0  # on a busy PC, with two loads and a prefill in it
AGREE_S = 20.0
LOAD_S = 120.0
_DAISY = (sys.executable, "-m", "engine.cli.main")


@dataclass
class PoolNode:
    """One ``daisy node`` on a host."""

    host: Host
    folder: Path
    name: str
    options: tuple[str, ...] = ()
    program: tuple[object, ...] = _DAISY
    process: subprocess.Popen[bytes] | None = None
    node_id: str = ""
    port: int = 0
    _probe: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def start(self) -> PoolNode:
        self.launch()
        return self.listening()

    def launch(self) -> None:
        """Start the process; it is there once ``listening`` returns."""
        command = [*self.program, "node", "--data", self.folder, "--name", self.name, "--json"]
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "node.err").open("ab") as errors:
            self.process = self.host.start(
                [*command, *self.options], stdout=subprocess.PIPE, stderr=errors
            )

    def listening(self) -> PoolNode:
        """Wait until peers may connect."""
        assert self.process is not None
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, (self.folder / "node.err").read_text()
        listening = json.loads(line)
        self.node_id, self.port = listening["node_id"], listening["port"]
        return self

    def processes(self) -> list[psutil.Process]:
        """The node and its stage."""
        assert self.process is not None
        node = psutil.Process(self.process.pid)
        return [node, *node.children(recursive=True)]

    def kill(self) -> float:
        """End the node and its stage as a power cut does; return when."""
        doomed = self.processes()
        for process in doomed:
            process.send_signal(signal.SIGKILL)
        when_s = time.monotonic()
        self.process.wait(10)
        psutil.wait_procs(doomed[1:], 10)
        return when_s

    def end(self) -> int:
        """Ask the node to leave, and return its exit status."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(10)

    def daisy(self, *words: object, within_s: float = COMMAND_S) -> list[dict[str, Any]]:
        """Run a command on this host; return its events."""
        done = subprocess.run(
            [
                *("ip", "netns", "exec", self.host.name, *_DAISY, *map(str, words)),
                *("--json", "--data", str(self.folder)),
            ],
            capture_output=True,
            timeout=within_s,
            check=False,
        )
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        assert lines, done.stderr.decode()
        return lines

    def status(self) -> dict[str, Any]:
        """How the pool looks from here; asked through a process that stays on this host."""
        if self._probe is None:
            command = [sys.executable, "-m", "tests.integration.status_probe"]
            self._probe = self.host.start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._probe.stdin.write(f"{self.folder}\n".encode())
        self._probe.stdin.flush()
        status = json.loads(self._probe.stdout.readline())
        return status or {"coordinator": None, "nodes": [], "notes": [], "deployment": None}

    def has_shards(self, manifest_sha256: str) -> bool:
        """Whether its store has every file of these shards."""
        objects = self.folder / "store" / "objects"
        try:
            manifest = decode_manifest((objects / manifest_sha256).read_bytes())
        except OSError:
            return False
        return all((objects / entry.sha256).is_file() for entry in manifest.files)

    def complaints(self) -> str:
        """What the node printed that nobody should have to read."""
        return (self.folder / "node.err").read_text()


@dataclass
class Question:
    """A question that is being answered, watched as it comes."""

    process: subprocess.Popen[bytes]
    events: list[dict[str, Any]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.times.append(time.monotonic())
            self.events.append(json.loads(line))

    @property
    def ids(self) -> list[int]:
        deltas = [e for e in list(self.events) if e["event"] == "text"]
        return [i for delta in deltas for i in delta["token_ids"]]

    def has_tokens(self, count: int) -> bool:
        return len(self.ids) >= count

    def finish(self, within_s: float = ANSWER_S) -> list[int]:
        """Wait for the end of the answer; return its ids."""
        assert self.process.wait(within_s) == 0, self.events[-3:]
        self._reader.join(5)
        return self.ids

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [e for e in self.events if e["event"] == kind]

    def longest_pause_s(self, since_s: float) -> float:
        """The longest time without a token, from a moment on."""
        deltas = [t for t, e in zip(self.times, self.events, strict=False) if e["event"] == "text"]
        later = [since_s, *(t for t in deltas if t > since_s)]
        return max((b - a for a, b in pairwise(later)), default=0.0)


@dataclass
class HostPool:
    """All of them."""

    nodes: list[PoolNode]

    def node(self, node_id: str) -> PoolNode:
        return next(node for node in self.nodes if node.node_id == node_id)

    def alive(self) -> list[PoolNode]:
        return [n for n in self.nodes if n.process is not None and n.process.poll() is None]

    def others(self, *not_these: PoolNode) -> list[PoolNode]:
        return [node for node in self.alive() if node not in not_these]

    def ask(self, node: PoolNode, text: str, *options: object) -> Question:
        command = [*_DAISY, "ask", text, *map(str, options), "--json", "--data", str(node.folder)]
        return Question(node.host.start(command, stdout=subprocess.PIPE))

    def agreed(self, within_s: float = AGREE_S) -> str:
        """Wait until all that run see each other and one coordinator; return that."""
        ids = {node.node_id for node in self.alive()}

        def looks() -> str | None:
            """All see all and one coordinator."""
            seen = [node.status() for node in self.alive()]
            leaders = {status["coordinator"] for status in seen}
            online = [
                {n["node_id"] for n in status["nodes"] if n["state"] == "online"} for status in seen
            ]
            is_so = len(leaders) == 1 and leaders <= ids and all(o == ids for o in online)
            return leaders.pop() if is_so else None

        return eventually(looks, within_s, 0.2)

    def deployment(self) -> dict[str, Any]:
        """The record, as any living node knows it."""
        return self.alive()[0].status()["deployment"]

    def load(self, node: PoolNode, model: Path, *options: object) -> dict[str, Any]:
        """Load a model; return the record once it is ready."""
        node.daisy("load", model, *options, within_s=LOAD_S)
        return self.ready()

    def ready(self, within_s: float = LOAD_S) -> dict[str, Any]:
        """Wait until every living node knows that the model is ready; return the record."""

        def looks() -> dict[str, Any] | None:
            """The model is ready, and everybody knows."""
            records = [node.status()["deployment"] for node in self.alive()]
            is_so = all(r is not None and r["phase"] == "ready" for r in records)
            same = len({(r["epoch"],) for r in records if r is not None}) == 1
            return records[0] if is_so and same else None

        return eventually(looks, within_s, 0.2)

    def copied(self, within_s: float = LOAD_S) -> dict[str, Any]:
        """Wait until two nodes have every shard of what is ready; return the record."""
        record = self.ready(within_s)

        def looks() -> bool:
            """Two nodes keep the model and have all shards."""
            return sum(node.has_shards(record["manifest_sha256"]) for node in self.alive()) >= 2

        eventually(looks, within_s, 0.2)
        return record

    def close(self) -> None:
        for node in self.nodes:
            if node.process is not None and node.process.poll() is None:
                for process in node.processes():
                    process.kill()
                node.process.wait(10)


def pair(*nodes: PoolNode) -> None:
    """Write these down as a pool before they are started."""
    pair_before_start([(node.folder / NODE_FOLDER, node.name) for node in nodes])


def start_pool(
    hosts: Iterable[Host],
    folder: Path,
    options: Callable[[int], tuple[str, ...]],
    program: tuple[object, ...] = _DAISY,
) -> HostPool:
    """Start a node on each host; they are paired.

    Args:
        hosts: Of one network.
        folder: For the nodes' data folders.
        options: Returns a node's own, by its number from 0.
        program: What runs as ``daisy``.
    """
    nodes = [
        PoolNode(host, folder / f"pc-{i}", f"PC {i}", options(i), program)
        for i, host in enumerate(hosts)
    ]
    pool = HostPool(nodes)
    pair(*nodes)
    try:
        for node in nodes:
            node.launch()
        for node in nodes:
            node.listening()
    except BaseException:
        pool.close()
        raise
    return pool


def cap_for_three(model: ModelDescription, workload: Workload) -> int:
    """Return the largest memory limit, in whole MiB, under which a model needs three PCs."""

    def fits(num_pcs: int, cap: int) -> bool:
        pcs = [
            NodeFacts(node_id=NodeId(f"pc-{i}"), name="", total_bytes=1 << 40, free_bytes=1 << 40,
                cap_bytes=cap)
            for i in range(num_pcs)
        ]  # fmt: skip
        try:
            plan_placement(model, workload, pcs)
        except InsufficientMemoryError:
            return False
        return True

    cap = next(n << 20 for n in range(4096, 0, -1) if not fits(2, n << 20))
    assert fits(3, cap)
    return cap


def is_long() -> bool:
    """Whether the long form of a test was asked for."""
    return os.environ.get("DAISY_LONG") == "1"

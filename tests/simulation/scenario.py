"""Scenarios as text: what is done to a pool, and the exact trace of what it does.

A file is a sequence of blocks: commands, a line ``----``, and what was told, up to an empty line.

    add NAME [id=NODE] [uptime=N] [mains] [wired] [memory=N] [product=V] [shards=N]
    start NAME…    kill NAME…    leave NAME…    resign NAME…    command NAME…
    sleep NAME     wake NAME     disk NAME fails|works
    cut A B        cut A->B      mend           run SECONDS     show

``python -m tests.simulation.scenario`` writes all of them anew. Commit a difference only if you
understand it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from engine.messages.pool import Preference, Versions
from engine.pool.membership import Lease
from engine.pool.pool_view import view
from tests.simulation.world import VERSIONS, Network, World

if TYPE_CHECKING:
    from engine.pool.pool_view import NodeView, PoolView
    from tests.simulation.world import Process

SCENARIOS = Path(__file__).parent / "scenarios"


def play(text: str) -> str:
    """Return a scenario's text with what is really told in each block."""
    stage = Stage()
    lines: list[str] = []
    is_trace = False
    for line in text.splitlines():
        if line == "----":
            lines += [line, *stage.told]
            stage.told.clear()
            is_trace = True
        elif not line:
            lines.append(line)
            is_trace = False
        elif not is_trace:
            lines.append(line)
            if not line.startswith("#"):
                stage.do(line)
    return "\n".join(lines) + "\n"


class Stage:
    """A world whose delays are fixed, and the commands that change it."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.world = World(1, self.told.append)
        self.world.tells_commands = True
        self.world.network = Network(delay_s=(0.01, 0.01))

    def do(self, line: str) -> None:
        command, *words = line.split()
        if command in {"start", "kill", "leave", "wake", "resign", "command"}:
            for name in words:
                change = {"wake": "resume"}.get(command, command)
                getattr(self.world, change)(self.named(name))
        else:
            getattr(self, f"do_{command}")(*words)

    def named(self, name: str) -> Process:
        return self.world.processes[name]

    def do_add(self, name: str, *words: str) -> None:
        options = dict(word.partition("=")[::2] for word in words)
        preference = Preference(
            int(options.get("uptime", 0)),
            "mains" in options,
            "wired" in options,
            int(options.get("memory", 0)),
        )
        process = self.world.add(name, preference, options.get("id"))
        process.write_s = (0.05, 0.05)
        process.versions = Versions(
            options.get("product", VERSIONS.product),
            VERSIONS.protocol,
            int(options.get("shards", VERSIONS.shard_format)),
        )

    def do_sleep(self, name: str) -> None:
        self.world.pause(self.named(name), unseen=False)

    def do_cut(self, *ends: str) -> None:
        one, other = ends if len(ends) == 2 else ends[0].split("->")
        self.world.network.cut.add((one, other))
        if len(ends) == 2:
            self.world.network.cut.add((other, one))

    def do_mend(self) -> None:
        self.world.network.cut.clear()

    def do_disk(self, name: str, how: str) -> None:
        self.named(name).disk_fails = how == "fails"

    def do_run(self, seconds: str) -> None:
        self.world.run(float(seconds))

    def do_show(self) -> None:
        for process in self.world.up():
            election = process.participant.election
            membership = process.participant.membership
            seen = view(membership, membership.last_s)
            self.told.append(f"{process.name}: {election.state.value}, term {election.accepted}")
            self.told += [f"   {line}" for line in shown(process, seen)]


def shown(process: Process, seen: PoolView) -> list[str]:
    """Say what a node sees of the pool."""
    lines = []
    for lease in Lease:
        ids = [one.heartbeat.node_id for one in seen.nodes if one.lease is lease]
        lines += [f"{lease.value}: {' '.join(ids)}"] if ids else []
    lines += [f"{link.unhearing} does not hear {link.hearer}" for link in seen.one_way]
    lines += [f"{one} and {other} do not hear each other" for one, other in seen.no_link]
    lines += [line for one in seen.nodes for line in shown_faults(one)]
    if seen.double is not None:
        lines.append(f"another PC runs with this identity, {process.node_id}")
    return lines


def shown_faults(node: NodeView) -> list[str]:
    """Say what is wrong with a node."""
    name = node.heartbeat.node_id
    lines = [
        f"{name} differs in {one.what}: {one.theirs} there, {one.ours} here"
        for one in node.mismatches
    ]
    return lines + [f"two PCs run as {name}" for _ in node.clones]


if __name__ == "__main__":
    for path in sorted(SCENARIOS.glob("*.txt")):
        path.write_text(play(path.read_text(encoding="utf-8")), encoding="utf-8")

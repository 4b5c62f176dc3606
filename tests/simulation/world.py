"""Many nodes in one process, on a network and a clock of our own.

Everything that happens follows from the seed and the calls: one queue of events in virtual time,
one random generator. The rules that must never break are checked as each thing happens; a breach
raises ``BreachError``. What happened is told line by line where somebody listens.
"""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from engine.domain import NodeId
from engine.messages.pool import Heartbeat, Preference, Stamp, Term, Versions
from engine.pool.actions import (
    BecameCoordinator,
    CoordinatorLost,
    Following,
    Persist,
    SteppedDown,
)
from engine.pool.election import State
from engine.pool.participant import Broadcast, Identity, Output, Participant
from engine.pool.peer_address import PeerAddress
from engine.pool.terms import Fence, is_older

if TYPE_CHECKING:
    from collections.abc import Callable

POOL = "pool"
VERSIONS = Versions(product="1.0", protocol=1, shard_format=1)
TICK_EVERY_S = 0.5  # the slowest the engine allows, not its own quarter: the harder case
COMMAND_EVERY_S = 2.0


class BreachError(AssertionError):
    """A rule that must never break is broken."""


@dataclass
class Network:
    """What it does to a message: the same for every link, but for those that are cut."""

    loss: float = 0.0
    duplication: float = 0.0
    delay_s: tuple[float, float] = (0.001, 0.01)  # a wide range reorders
    cut: set[tuple[str, str]] = field(default_factory=set)  # from, to


@dataclass
class Process:
    """One PC: what survives a crash, and what does not."""

    name: str
    node_id: NodeId
    preference: Preference
    disk: Term | None = None
    versions: Versions = VERSIONS
    write_s: tuple[float, float] = (0.001, 0.2)
    disk_fails: bool = False
    participant: Participant | None = None  # None: not running
    stage: Fence | None = None  # of the stage process it has started
    life: int = 0  # counts starts: what was scheduled for an earlier one is void
    writes: list[Term] = field(default_factory=list)
    written_s: float = 0.0  # when the last of them will be done
    is_paused: bool = False
    paused_s: float = 0.0  # when, in the world's time
    sleeps_unseen: bool = False  # its clock stands still meanwhile, as some do in a sleep
    clock_lag_s: float = 0.0
    held_back: list[Callable[[], None]] = field(default_factory=list)
    newest_applied: Term | None = None  # over all its lives

    @property
    def is_up(self) -> bool:
        return self.participant is not None and not self.is_paused


class World:
    """The PCs, the network between them, and the time."""

    def __init__(self, seed: int, tell: Callable[[str], None] | None = None) -> None:
        self.rng = random.Random(seed)  # noqa: S311
        self.network = Network()
        self.now_s = 0.0
        self.processes: dict[str, Process] = {}
        self.office: dict[Term, tuple[str, int]] = {}  # every term ever won: process, life
        self.commands = {"applied": 0, "refused": 0}
        self.changes = 0  # of the coordinator, as anybody saw them
        self.tells_commands = False  # then they are given by ``command`` alone
        self._tell = tell
        self._queue: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0

    # ---- time ----

    def after(self, delay_s: float, call: Callable[..., None], *arguments: Any) -> None:
        """Let something happen later."""
        self._count += 1
        heapq.heappush(self._queue, (self.now_s + delay_s, self._count, call, arguments))

    def run(self, seconds: float) -> None:
        """Let time pass."""
        until_s = self.now_s + seconds
        queue = self._queue
        while queue and queue[0][0] <= until_s:
            self.now_s, _, call, arguments = heapq.heappop(queue)
            call(*arguments)
        self.now_s = until_s

    def say(self, process: Process, what: str) -> None:
        """Tell a line of the transcript."""
        if self._tell is not None:
            self._tell(f"{self.now_s:8.2f}  {process.name:<3} {what}")

    # ---- what happens to a PC ----

    def add(self, name: str, preference: Preference, node_id: str | None = None) -> Process:
        """Put a PC there; it doesn't run yet."""
        process = Process(name, NodeId(node_id or name), preference)
        self.processes[name] = process
        return process

    def start(self, process: Process) -> None:
        """Start its engine."""
        process.life += 1
        process.clock_lag_s = self.rng.uniform(-1e4, 1e4)  # clocks share no zero
        incarnation = self.rng.getrandbits(64)
        identity = Identity(POOL, process.node_id, incarnation, process.versions)
        process.participant = Participant(
            identity, process.preference, process.disk, self._clock(process)
        )
        process.stage = Fence(POOL, process.disk)
        process.writes = []
        process.written_s = self.now_s
        process.is_paused = False
        process.held_back = []
        self.say(process, "starts")
        self._tick(process, process.life)
        if not self.tells_commands:
            self.after(self.rng.uniform(0, COMMAND_EVERY_S), self._command, process, process.life)

    def kill(self, process: Process) -> None:
        """End it at once. A write under way is lost, or done and not reported."""
        done = self.rng.randrange(len(process.writes) + 1)
        for term in process.writes[:done]:
            self._store(process, term)
        process.participant = None
        process.stage = None
        self.say(process, "is killed")

    def leave(self, process: Process) -> None:
        """End it in good order: everyone it reaches gets a goodbye."""
        identity = process.participant.identity
        self.kill(process)
        self.say(process, "said goodbye")
        for other in self._others(process):
            self._send(process, other, self._goodbye, identity.node_id, identity.incarnation)

    def pause(self, process: Process, *, unseen: bool) -> None:
        """Stop it without ending it: a lid is closed, or a debugger attached."""
        process.is_paused = True
        process.paused_s = self.now_s
        process.sleeps_unseen = unseen
        self.say(process, "sleeps")

    def resume(self, process: Process) -> None:
        """Let it go on; what came meanwhile comes now."""
        process.is_paused = False
        if process.sleeps_unseen:
            process.clock_lag_s += self.now_s - process.paused_s
        self.say(process, "wakes")
        held_back, process.held_back = process.held_back, []
        for call in held_back:
            call()

    def resign(self, process: Process) -> None:
        """Ask a coordinator to leave its office to another."""
        self._do(process, process.participant.resign(self._clock(process)))

    def command(self, process: Process) -> None:
        """Let it command everyone, if it believes to be in office, whatever it has missed."""
        election = process.participant.election
        if election.is_in_office:
            stamp = Stamp(POOL, election.accepted, process.node_id)
            for other in self.processes.values():
                self._send(process, other, self._obey, stamp)

    # ---- the machinery between them ----

    def _clock(self, process: Process) -> float:
        return self.now_s - process.clock_lag_s

    def _others(self, process: Process) -> list[Process]:
        return [other for other in self.processes.values() if other is not process]

    def _send(self, sender: Process, to: Process, take: Callable[..., None], *what: Any) -> None:
        network = self.network
        if (sender.name, to.name) in network.cut:
            return
        rng = self.rng
        copies = 1
        if network.loss and rng.random() < network.loss:
            copies = 0
        elif network.duplication and rng.random() < network.duplication:
            copies = 2
        for _ in range(copies):
            self.after(rng.uniform(*network.delay_s), self._arrive, sender, to, take, what)

    def _arrive(self, sender: Process, to: Process, take: Callable[..., None], what: Any) -> None:
        if to.participant is None or (sender.name, to.name) in self.network.cut:
            return
        if to.is_paused:
            to.held_back.append(lambda: self._arrive(sender, to, take, what))
        else:
            take(sender, to, *what)

    def _tick(self, process: Process, life: int) -> None:
        if process.participant is None or process.life != life:
            return
        if process.is_paused:
            process.held_back.append(lambda: self._tick(process, life))
            return
        self.after(TICK_EVERY_S, self._tick, process, life)
        participant = process.participant
        self._do(process, participant.tick(process.preference, self._clock(process)))

    def _beat(self, sender: Process, to: Process, heartbeat: Heartbeat) -> None:
        address = PeerAddress(sender.name, 7420)
        self._do(to, to.participant.receive(heartbeat, address, self._clock(to)))

    def _goodbye(self, _: Process, to: Process, node_id: NodeId, incarnation: int) -> None:
        self._do(to, to.participant.left(node_id, incarnation, self._clock(to)))

    def _command(self, process: Process, life: int) -> None:
        if process.participant is None or process.life != life:
            return
        self.after(COMMAND_EVERY_S, self._command, process, life)
        if not process.is_paused:
            self.command(process)

    def _obey(self, _: Process, to: Process, stamp: Stamp) -> None:
        is_admitted = to.participant.fence.admit(stamp) and to.stage.admit(stamp)
        self.commands["applied" if is_admitted else "refused"] += 1
        if self.tells_commands:
            did = "obeys" if is_admitted else "refuses"
            self.say(to, f"{did} a command of {stamp.term}")
        if not is_admitted:
            return
        for known in (to.newest_applied, to.disk):
            if is_older(stamp.term, than=known):
                raise BreachError(f"{to.name} obeyed term {stamp.term} after {known}")
        to.newest_applied = stamp.term

    def _do(self, process: Process, outputs: list[Output]) -> None:
        for output in outputs:
            match output:
                case Broadcast(heartbeat):
                    self._broadcast(process, heartbeat)
                case Persist(term):
                    self._write(process, term)
                case BecameCoordinator(term):
                    self._take_office(process, term)
                case SteppedDown(term):
                    self.say(process, f"steps down from {term}")
                case Following(coordinator, term):
                    self.changes += 1
                    self.say(process, f"follows {coordinator} in {term}")
                case CoordinatorLost(coordinator):
                    self.say(process, f"has lost {coordinator}")

    def _broadcast(self, process: Process, heartbeat: Heartbeat) -> None:
        if heartbeat.term != process.disk:
            raise BreachError(
                f"{process.name} says {heartbeat.term} and has {process.disk} on disk"
            )
        for other in self._others(process):
            self._send(process, other, self._beat, heartbeat)

    def _take_office(self, process: Process, term: Term) -> None:
        self.changes += 1
        self.say(process, f"coordinates in {term}")
        holder = (process.name, process.life)
        if self.office.setdefault(term, holder) != holder:
            raise BreachError(f"{holder} and {self.office[term]} both coordinate in {term}")
        if term != process.disk:
            raise BreachError(f"{process.name} coordinates in {term} with {process.disk} on disk")

    def _write(self, process: Process, term: Term) -> None:
        self.say(process, f"writes {term}")
        process.writes.append(term)
        process.written_s = max(process.written_s, self.now_s) + self.rng.uniform(*process.write_s)
        delay_s = process.written_s - self.now_s
        self.after(delay_s, self._finish_write, process, process.life, term)

    def _finish_write(self, process: Process, life: int, term: Term) -> None:
        if process.participant is None or process.life != life:
            return
        if process.is_paused:
            process.held_back.append(lambda: self._finish_write(process, life, term))
            return
        process.writes.remove(term)
        if process.disk_fails:
            self.say(process, f"can't write {term}")
            self._do(process, process.participant.write_failed(term, self._clock(process)))
            return
        self._store(process, term)
        process.stage.accept(term)  # down the pipe, ahead of any command
        self._do(process, process.participant.written(term, self._clock(process)))

    def _store(self, process: Process, term: Term) -> None:
        if is_older(term, than=process.disk):
            raise BreachError(f"{process.name} wrote {term} over {process.disk}")
        process.disk = term

    # ---- what is so ----

    def up(self) -> list[Process]:
        """Return those that run."""
        return [process for process in self.processes.values() if process.is_up]

    def is_settled(self, among: list[Process] | None = None) -> bool:
        """Return whether all of them follow one of them, in one term, at first hand."""
        those = self.up() if among is None else among
        elections = [process.participant.election for process in those]
        leaders = [e for e in elections if e.state is State.COORDINATING]
        return len(leaders) == 1 and all(
            (e.coordinator, e.accepted) == (leaders[0].node_id, leaders[0].accepted)
            and e.state in {State.FOLLOWING, State.COORDINATING}
            and e.vouches
            for e in elections
        )

    def run_until_settled(self, at_most_s: float) -> float:
        """Let time pass until they agree; return how long it took.

        Raises ``BreachError`` if that is too long.
        """
        began_s = self.now_s
        while not self.is_settled():
            if self.now_s - began_s >= at_most_s:
                raise BreachError(f"no agreement after {at_most_s} s")
            self.run(0.25)
        return self.now_s - began_s

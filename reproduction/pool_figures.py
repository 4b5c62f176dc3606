"""Measure how fast a pool finds itself, elects, notices a loss, and goes on after one.

    python reproduction/pool_figures.py membership --rounds 5
    python reproduction/pool_figures.py recovery --rounds 3

Real nodes run on hosts of their own, network namespaces on a bridge, as the tests of the pool do
it; that needs root and Linux. Each PC's status is asked again and again through a process of its
own, so a moment is known to a tenth of a second or two. Each figure is shown with the load average
while it was taken.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import statistics
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from machine import MachineBusyError, alone, refuse_when_busy
from protocol import MAX_LOAD, RESULTS, write_results

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the harness is the tests' own

from engine.config import data_folder
from engine.models.embedded import embedded_model
from engine.preparation import describe_order
from engine.splitter.process import describe_in_process
from tests.integration.namespaces import eventually, local_network
from tests.integration.pool_hosts import HostPool, PoolNode, pair, start_pool
from tests.integration.test_pool_losses import CONTEXT, OPTIONS, QUESTION, cap_for_three

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

LOOK_EVERY_S = 0.03
WITHIN_S = 180.0
LOST_AFTER_TOKENS = 20
ROLES = ("head", "middle", "last", "coordinator")
LOSSES = ("killed", "cut off", "stopped")


class AnswerDivergedError(Exception):
    """An answer that was interrupted is not the one an undisturbed run gave."""


@dataclass
class Figures:
    """Seconds that were seen, by what they are of."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    loads: dict[str, list[float]] = field(default_factory=dict)

    def add(self, what: str, value_s: float) -> None:
        """Take one, and say it."""
        self.seconds.setdefault(what, []).append(value_s)
        self.loads.setdefault(what, []).append(os.getloadavg()[0])
        print(f"  {what}: {value_s:.2f} s", flush=True)

    def table(self) -> Iterator[str]:
        """Yield lines: median, 95th percentile, largest, how many, and the load average."""
        yield f"{'seconds':58}{'p50':>7}{'p95':>7}{'max':>7}{'n':>5}{'load':>13}"
        for what, values in self.seconds.items():
            loads = self.loads[what]
            shown = f"{min(loads):.1f} to {max(loads):.1f}"
            yield (
                f"{what:58}{statistics.median(values):7.2f}{percentile_95(values):7.2f}"
                f"{max(values):7.2f}{len(values):5}{shown:>13}"
            )


def percentile_95(values: Sequence[float]) -> float:
    """Return the smallest value that 95 % of them do not exceed."""
    return sorted(values)[-(-95 * len(values) // 100) - 1]


def since(began_s: float) -> float:
    """Return the seconds since a moment of ``time.monotonic``."""
    return time.monotonic() - began_s


def when(looks: Callable[[], Any]) -> float:
    """Wait until something is so; return the moment."""
    eventually(looks, WITHIN_S, LOOK_EVERY_S)
    return time.monotonic()


# ---- what a status says ----------------------------------------------------------------------


def state_of(status: dict[str, Any], other: PoolNode) -> str:
    """Return how a PC looks from another: its state, or ``unknown``."""
    states = {n["node_id"]: n["state"] for n in status["nodes"]}
    return str(states.get(other.node_id, "unknown"))


def all_see(by: Sequence[PoolNode], other: PoolNode) -> bool:
    """Whether a PC is online for each of the given ones."""
    return all(state_of(node.status(), other) == "online" for node in by)


def none_sees(by: Sequence[PoolNode], other: PoolNode) -> bool:
    """Whether each of the given ones has given a PC up."""
    return all(state_of(node.status(), other) in {"offline", "gone"} for node in by)


def common_coordinator(nodes: Sequence[PoolNode]) -> str | None:
    """Return the coordinator, if it is one of the given PCs and they agree."""
    seen = {node.status()["coordinator"] for node in nodes}
    ids = {node.node_id for node in nodes}
    return seen.pop() if len(seen) == 1 and seen <= ids else None


def have_probes(pool: HostPool) -> None:
    """Start what asks for the statuses, so that its start is in no figure."""
    for node in pool.nodes:
        node.status()


# ---- finding each other, electing, noticing ---------------------------------------------------


def measure_membership(rounds: int, figures: Figures) -> None:
    """Start pools of three and let their PCs join, leave and be lost.

    Args:
        rounds: Each has a start of all, two joins, an election and three losses.
        figures: Takes what was seen.
    """
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}", flush=True)
        with _three_hosts() as pool:
            _start_all(pool, figures)
            _lose_coordinator(pool, figures)
            _leave_and_join(pool, figures)
            for how in LOSSES[1:]:
                _lose_for_a_while(pool, how, figures)


@contextmanager
def _three_hosts() -> Iterator[HostPool]:
    with local_network(3) as network, tempfile.TemporaryDirectory() as folder:
        names = [(host, Path(folder, f"pc-{host.number}")) for host in network.hosts]
        pool = HostPool([PoolNode(host, path, path.name) for host, path in names])
        pair(*pool.nodes)
        have_probes(pool)
        try:
            yield pool
        finally:
            pool.close()


def _start_all(pool: HostPool, figures: Figures) -> None:
    for node in pool.nodes:
        node.launch()
    launched_s = time.monotonic()
    for node in pool.nodes:
        node.listening()
    listening_s = time.monotonic()
    seen_s = when(lambda: all(all_see(pool.nodes, node) for node in pool.nodes))
    elected_s = when(lambda: common_coordinator(pool.nodes))
    for since_what, moment_s in (("process", launched_s), ("port", listening_s)):
        figures.add(f"all see all, from the last start ({since_what})", seen_s - moment_s)
        figures.add(f"one coordinator, from the last start ({since_what})", elected_s - moment_s)


def _join(pool: HostPool, node: PoolNode, figures: Figures) -> None:
    began_s = time.monotonic()
    node.launch()
    node.listening()
    listening_s = time.monotonic()
    others = pool.others(node)

    def is_in() -> bool:
        """It is seen by all and sees all."""
        return all_see(others, node) and all(all_see([node], other) for other in others)

    seen_s = when(is_in)
    figures.add("a newcomer sees all and is seen (process)", seen_s - began_s)
    figures.add("a newcomer sees all and is seen (port)", seen_s - listening_s)
    pool.agreed(WITHIN_S)


def _lose_coordinator(pool: HostPool, figures: Figures) -> None:
    doomed = pool.node(pool.agreed(WITHIN_S))
    others = pool.others(doomed)
    began_s = _lose(doomed, "killed")
    figures.add("noticed by all: killed", when(lambda: none_sees(others, doomed)) - began_s)
    elected_s = when(lambda: common_coordinator(others))
    figures.add("next coordinator, from kill -9", elected_s - began_s)
    _join(pool, doomed, figures)


def _leave_and_join(pool: HostPool, figures: Figures) -> None:
    coordinator = pool.agreed(WITHIN_S)
    node = next(n for n in pool.nodes if n.node_id != coordinator)
    node.end()
    when(lambda: none_sees(pool.others(node), node))
    _join(pool, node, figures)


def _lose_for_a_while(pool: HostPool, how: str, figures: Figures) -> None:
    coordinator = pool.agreed(WITHIN_S)
    lost = next(n for n in pool.nodes if n.node_id != coordinator)
    others = [n for n in pool.nodes if n is not lost]
    began_s = _lose(lost, how)
    figures.add(f"noticed by all: {how}", when(lambda: none_sees(others, lost)) - began_s)
    back_s = time.monotonic()
    _bring_back(lost, how)
    pool.agreed(WITHIN_S)
    figures.add(f"back with all, after it was {how}", since(back_s))


def _lose(node: PoolNode, how: str) -> float:
    """Lose a PC; return when."""
    if how == "killed":
        return node.kill()
    began_s = time.monotonic()
    if how == "cut off":  # nothing it sends leaves it, and nothing says so
        node.host.ip("rule", "add", "pref", "1", "blackhole")
    else:
        _signal(node, signal.SIGSTOP)
    return began_s


def _bring_back(node: PoolNode, how: str) -> None:
    if how == "killed":
        node.start()
    elif how == "cut off":
        node.host.ip("rule", "del", "pref", "1")
    else:
        _signal(node, signal.SIGCONT)


def _signal(node: PoolNode, number: signal.Signals) -> None:
    for process in node.processes():
        process.send_signal(number)


# ---- going on ----------------------------------------------------------------------------------


def measure_recovery(rounds: int, how: str, data: Path, figures: Figures) -> None:
    """Lose a PC in the middle of an answer, each role in turn; the answer must be the same.

    Args:
        rounds: In each every role is lost once.
        how: One of ``LOSSES``.
        data: Daisy's data folder, with the embedded model or room for it.
        figures: Takes what was seen.

    Fails with ``AnswerDivergedError`` where it is another answer.
    """
    embedded = embedded_model(data)
    described = asyncio.run(describe_in_process(describe_order(embedded), lambda _: None))
    options = ("--memory", str(cap_for_three(described.model)))
    with local_network(4) as network, tempfile.TemporaryDirectory() as folder:
        pool = start_pool(network.hosts, Path(folder), lambda _: options)
        try:
            have_probes(pool)
            pool.agreed(WITHIN_S)
            began_s = time.monotonic()
            words = ("--context", CONTEXT, "--users", 1, "--exact")
            pool.load(pool.nodes[0], embedded.folder, *words)
            figures.add("ready, from the first daisy load", since(began_s))
            undisturbed = pool.ask(pool.nodes[1], QUESTION, *OPTIONS).finish(WITHIN_S)
            for number, role in product(range(rounds), ROLES):
                print(f"round {number + 1} of {rounds}: the {role} is {how}", flush=True)
                _lose_in_an_answer(pool, role, how, undisturbed, figures)
        except BaseException:
            for node in pool.nodes:
                print(f"{node.name} said: {node.complaints()[-2000:]}", file=sys.stderr)
            raise
        finally:
            pool.close()


def _lose_in_an_answer(
    pool: HostPool, role: str, how: str, undisturbed: list[int], figures: Figures
) -> None:
    coordinator = pool.node(pool.agreed(WITHIN_S))
    record = pool.ready()
    chain = [pool.node(stage["node_id"]) for stage in record["stages"]]
    roles = {"head": chain[0], "middle": chain[len(chain) // 2], "last": chain[-1]}
    doomed = {**roles, "coordinator": coordinator}[role]
    asked = pool.others(doomed)[0]
    question = pool.ask(asked, QUESTION, *OPTIONS)
    eventually(lambda: question.has_tokens(LOST_AFTER_TOKENS), WITHIN_S, LOOK_EVERY_S)
    if coordinator.status()["deployment"]["epoch"] != record["epoch"]:  # a better one was made
        question.finish(WITHIN_S)
        _lose_in_an_answer(pool, role, how, undisturbed, figures)
        return
    lost_s = _lose(doomed, how)
    watched = coordinator if doomed is not coordinator else pool.others(doomed)[-1]
    is_hit = doomed in chain
    if is_hit:
        who = "with the coordinator" if doomed is coordinator else "not the coordinator"
        _watch_record(watched, doomed, record["epoch"], lost_s, who, figures)
    if question.finish(WITHIN_S) != undisturbed:
        raise AnswerDivergedError(f"The answer changed when the {role} was {how}.")
    pause_s = question.longest_pause_s(lost_s)
    name = role if is_hit == (role != "coordinator") else f"{role}, in the chain"
    figures.add(f"longest time without a token: {name} {how}", pause_s)
    _bring_back(doomed, how)
    pool.agreed(WITHIN_S)
    pool.ready()


def _watch_record(
    watched: PoolNode, doomed: PoolNode, epoch: int, lost_s: float, who: str, figures: Figures
) -> None:
    """Note when the loss is known, when the new placement is ordered, and when it is ready."""
    moments: dict[str, float] = {}
    looks = [lost_s]

    def is_ready() -> bool:
        """The pool has placed the model again."""
        status = watched.status()
        record, now = status["deployment"], time.monotonic()
        looks.append(now)
        if record is None:  # the node was too busy to answer
            return False
        is_new = record["epoch"] != epoch
        if is_new or record["phase"] != "ready" or state_of(status, doomed) != "online":
            moments.setdefault("known", now)
        if is_new and record["phase"] in {"loading", "warming", "ready"}:
            moments.setdefault("ordered", now)
        return bool(is_new and record["phase"] == "ready")

    ready_s = when(is_ready)
    figures.add("between two looks", statistics.median(b - a for a, b in pairwise(looks)))
    figures.add(f"known, from the loss ({who})", moments["known"] - lost_s)
    figures.add(f"placement ordered, from then ({who})", moments["ordered"] - moments["known"])
    figures.add(f"ready again, from then ({who})", ready_s - moments["ordered"])


# ---- the command -------------------------------------------------------------------------------


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["membership", "recovery"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--how", choices=LOSSES, default="killed", help="a PC is lost, of recovery")
    parser.add_argument("--data", type=Path, default=data_folder(), help="with the embedded model")
    parser.add_argument("--max-load", type=float, default=MAX_LOAD)
    parser.add_argument("--force", action="store_true", help="measure on a busy machine")
    parser.add_argument("--results", type=Path, default=RESULTS)
    return parser.parse_args()


def main() -> int:
    """Measure what the command line asks for; return the exit status."""
    given = _arguments()
    figures = Figures()
    try:
        load = refuse_when_busy(given.max_load, given.force)
        with alone():
            if given.what == "membership":
                measure_membership(given.rounds, figures)
            else:
                measure_recovery(given.rounds, given.how, given.data, figures)
    except MachineBusyError as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        print("\n".join(figures.table()))
    record = {"load": load, "seconds": figures.seconds, "loads": figures.loads}
    name = f"pool-{given.what}"
    print(f"raw data: {os.path.relpath(write_results(given.results, name, record))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

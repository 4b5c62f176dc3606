"""How fast a file travels between two nodes, against a plain TCP copy over the same link.

Two real processes with a store each. Over loopback and over links of a fixed rate (a proxy in a
third process), a file is pulled as nodes pull it, and copied over a bare TCP connection, in turn.
What is compared is bytes a second, from the first question to the file under its name.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from machine import alone, refuse_when_busy
from protocol import Repetition, add_protocol_arguments, paired_ratio, run_arms, write_results

if TYPE_CHECKING:
    from collections.abc import Callable

ENDS = Path(__file__).parent / "push_ends.py"
LINK = Path(__file__).parent / "limited_link.py"
HOW = ("pull", "plain")
LINKS_GBIT = {"loopback": math.inf, "1 Gbit/s": 1.0, "2.5 Gbit/s": 2.5}


class Child:
    """A process that answers lines with lines; ends when its standard input does."""

    def __init__(self, stack: ExitStack, *command: object) -> None:
        """Start it.

        Args:
            stack: Ends it.
            command: A script of this folder, and its arguments.
        """
        self._process = subprocess.Popen(
            [sys.executable, *map(str, command)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        stack.callback(self._end)
        self.pid = self._process.pid

    def read(self) -> str:
        """Return its next line.

        Raises:
            SystemExit: It has ended.
        """
        line = self._process.stdout.readline() if self._process.stdout is not None else ""
        if not line:
            raise SystemExit("A process of the measurement ended.")
        return line

    def ask(self, **order: object) -> dict[str, float]:
        """Give it a line and return its answer.

        Args:
            order: What it is to do.
        """
        if self._process.stdin is not None:
            self._process.stdin.write(json.dumps(order) + "\n")
        return dict(json.loads(self.read()))

    def _end(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()


def measure(given: argparse.Namespace, folder: Path) -> dict[str, object]:
    """Measure every link.

    Args:
        given: The command's.
        folder: For the file and the stores.

    Returns:
        What is kept.
    """
    path = folder / "file"
    with path.open("wb") as file:
        for _ in range(given.megabytes):
            file.write(os.urandom(1 << 20))
    (folder / "receiver").mkdir()
    record: dict[str, object] = {"megabytes": given.megabytes}
    with ExitStack() as stack:
        sender = Child(stack, ENDS, "send", folder / "sender", path)
        *ports, name = sender.read().split()
        receiver = Child(stack, ENDS, "receive", folder / "receiver")
        for link in given.links:
            repetitions = _measure_link(given, link, ports, name, {"to": receiver, "from": sender})
            ratio = paired_ratio(repetitions, "rate", "pull", "plain", given.max_disturbed)
            print(f"{link}: pull against plain {ratio}; {_rates(repetitions)}", flush=True)
            record[link] = repetitions
    return record


def _measure_link(
    given: argparse.Namespace, link: str, ports: list[str], name: str, ends: dict[str, Child]
) -> list[Repetition]:
    with ExitStack() as stack:
        processes = {end: child.pid for end, child in ends.items()}
        if math.isfinite(LINKS_GBIT[link]):
            proxy = Child(stack, LINK, LINKS_GBIT[link] * 1e9 / 8, *ports)
            processes["link"] = proxy.pid
            ports = proxy.read().split()
        arms = {
            how: _arm(ends["to"], how, int(port), name)
            for how, port in zip(HOW, ports, strict=True)
        }
        return run_arms(arms, processes, given.blocks, given.warmups)


def _rates(repetitions: list[Repetition]) -> str:
    shown = []
    for how in HOW:
        rates = [r.figures["rate"] / 1e6 for r in repetitions if r.slot.arm == how]
        shown.append(f"{how} {statistics.median(rates):.0f} MB/s")
    return ", ".join(shown)


def _arm(receiver: Child, how: str, port: int, name: str) -> Callable[[], dict[str, float]]:
    def run() -> dict[str, float]:
        told = receiver.ask(how=how, port=port, name=name)
        return {"rate": told["bytes"] / told["seconds"], "seconds": told["seconds"]}

    return run


def main() -> int:
    """Measure, and print the ratios.

    Returns:
        The exit status.
    """
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--megabytes", type=int, default=512, help="of the file")
    parser.add_argument("--links", nargs="+", choices=list(LINKS_GBIT), default=list(LINKS_GBIT))
    parser.add_argument("--folder", type=Path, help="where the stores lie; a temporary one")
    add_protocol_arguments(parser)
    given = parser.parse_args()
    load = refuse_when_busy(given.max_load, given.force)
    with alone(), tempfile.TemporaryDirectory(dir=given.folder) as folder:
        record = measure(given, Path(folder))
    print(write_results(given.results, "push-rate", {"load": load, **record}))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The command line as a person has it: real processes, what they say, and what they leave."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

from engine.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

C_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
ENDS_WITHIN_S = 10.0  # nodes end at most NODE_STOP_DEADLINE_S after their asker


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    status: int
    out: str
    err: str
    seconds: float

    @property
    def events(self) -> list[dict]:
        """The lines of JSON, each of which must be one."""
        return [json.loads(line, parse_constant=_no_such) for line in self.out.splitlines()]

    def one(self, name: str) -> dict:
        """The only event of that name."""
        (event,) = (e for e in self.events if e["event"] == name)
        return event

    @property
    def text(self) -> str:
        """The answer's text."""
        return "".join(e["text"] for e in self.events if e["event"] == "text")

    @property
    def token_ids(self) -> list[int]:
        """The answer's ids, the one that ended it included."""
        return [i for e in self.events if e["event"] == "text" for i in e["token_ids"]]


def _no_such(constant: str):
    raise ValueError(constant)


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "engine.cli.main", *map(str, words)]


def daisy(
    *words: object,
    data: Path,
    typed: bytes = b"",
    env: dict[str, str] | None = None,
    prefix: Sequence[str] = (),
) -> Ended:
    """Run one command to its end; no process may be left of it."""
    with started(*words, "--data", data, env=env, prefix=prefix) as process:
        began = time.monotonic()
        out, err = process.communicate(typed, timeout=120)
        seconds = time.monotonic() - began
    return Ended(process.returncode, out.decode(), err.decode(), seconds)


def daisy_here(*words: object, data: Path, capfd) -> Ended:
    """Run one command in this process, where many are to be tried and none loads a model."""
    began = time.monotonic()
    status = main([*map(str, words), "--data", str(data)])
    out, err = capfd.readouterr()
    return Ended(status, out, err, time.monotonic() - began)


@contextmanager
def started(
    *words: object, env: dict[str, str] | None = None, prefix: Sequence[str] = ()
) -> Iterator[subprocess.Popen]:
    """Start one command; whatever happens, nothing of it is left running.

    Yields:
        Its process.
    """
    process = subprocess.Popen(
        [*prefix, *command(*words)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **(env or {})},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        for member in family(process.pid):
            member.kill()
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            pipe.close()


def family(pid: int) -> list[psutil.Process]:
    """The processes below one: nodes, their stages, a worker."""
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def wait_gone(processes: Sequence[psutil.Process], within_s: float = ENDS_WITHIN_S) -> None:
    """Wait for the end of processes; which of them remains is an error."""
    _, alive = psutil.wait_procs(processes, within_s)
    assert not [p.cmdline() for p in alive if p.status() != psutil.STATUS_ZOMBIE]


def interrupt(process: subprocess.Popen) -> tuple[int, float, bytes, bytes]:
    """Press Ctrl-C; return the exit status, the seconds it took, and what was said."""
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    return process.returncode, time.monotonic() - began, out, err


def refused(ended: Ended, status: int, *words: str) -> None:
    """Check an ending in error: one sentence, one of advice, the status, and no traceback."""
    assert "Traceback" not in ended.err
    assert "Traceback" not in ended.out
    assert ended.status == status, ended
    lines = [line for line in ended.err.splitlines() if not line.endswith(" ...")]
    assert len(lines) == 2, ended.err
    assert lines[0].startswith("Error: ")
    assert all(line.rstrip().endswith((".", "?")) for line in lines), lines
    for word in words:
        assert word in lines[0], lines[0]

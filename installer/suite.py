"""What the test suite consists of, and what is told of each part: its time, and what failed.

Every part runs, whatever became of those before it, so that one run shows all that is wrong. A
part that hangs is stopped at a limit of its own, and named.
"""

from __future__ import annotations

import tempfile
import time
import tomllib
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    # Runs a command for so many seconds; its exit status, or None if that was not enough.
    Run = Callable[[list[str], float], int | None]

PURE_CORE = "pure core"  # how the name of that contract in pyproject.toml begins
TWO_AT_A_TIME = ("-n", "2", "--dist", "load")
# What a file's tests share (a model's stages and answers) is loaded once. Not by groups: pytest 9.2
# no longer shows xdist 3.8 their names. In their order: the two files on mDNS's port lie far apart,
# so that neither waits for the other.
BY_FILE = ("--dist", "loadfile", "--no-loadscope-reorder")
TWO_FILES_AT_A_TIME = ("-n", "2", *BY_FILE)
# Each file has running nodes of its own. They wait for one another half of the time, so that two
# cores bear three; their order ends with short ones.
THREE_FILES_AT_A_TIME = ("-n", "3", *BY_FILE)
OF_THEIR_OWN = ("equivalence", "integration")  # folders of tests that others do not run with
MAX_SHOWN = 50  # failing tests; who broke more than that needs no list


@dataclass(frozen=True)
class Part:
    """One command of the suite.

    Attributes:
        name: Shown before it runs and beside its time.
        command: A program of the virtual environment, and its arguments.
        max_s: Seconds after which it hangs: several times what it takes on two cores.
    """

    name: str
    command: tuple[str, ...]
    max_s: float

    @property
    def is_pytest(self) -> bool:
        """Whether it can tell which of its tests failed."""
        return self.command[0] == "pytest"


@dataclass(frozen=True)
class Outcome:
    """How a part ended.

    Attributes:
        part: Which.
        seconds: How long it took.
        status: Its exit status; None if it was stopped at its limit.
        failed: Ids of the tests that failed, as far as it could tell.
    """

    part: Part
    seconds: float
    status: int | None
    failed: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """One or two words, or a few for who has to look."""
        if self.status is None:
            return f"HANGS: stopped after {self.part.max_s:g} s"
        return "passed" if self.status == 0 else f"FAILED with status {self.status}"


CHECKS = (
    Part("Lint", ("ruff", "check", "."), 120),
    Part("Format", ("ruff", "format", "--check", "."), 120),
    Part("Types", ("mypy",), 300),
    Part("Imports", ("lint-imports", "--no-cache"), 120),
)


def parts(root: Path) -> tuple[Part, ...]:
    """Return the whole suite.

    Args:
        root: The checkout.

    Raises:
        ValueError: ``pyproject.toml`` has no contract of the pure core.
    """
    modules = pure_modules(root)
    unit = (
        *("pytest", "-q", *TWO_FILES_AT_A_TIME, "tests/unit"),
        *("--cov-branch", "--cov-fail-under=100"),
        *("--cov-report=term-missing:skip-covered", *(f"--cov={module}" for module in modules)),
    )
    others = ("tests", *(f"--ignore=tests/{name}" for name in ("unit", *OF_THEIR_OWN)))
    together = (*THREE_FILES_AT_A_TIME, "-m", "together and not alone")
    return (
        *CHECKS,
        Part("Tests: each part alone, the pure core to its last branch", unit, 900),
        Part(
            "Tests: properties, storms in virtual time, and whatever else needs no process",
            ("pytest", "-q", *TWO_AT_A_TIME, *others),
            900,
        ),
        Part(
            "Tests: the same tokens at every boundary of every model",
            ("pytest", "-q", *TWO_FILES_AT_A_TIME, "tests/equivalence"),
            900,
        ),
        Part(
            "Tests: real processes and networks that bear others beside them, three at a time",
            ("pytest", "-q", *together, "tests/integration"),
            900,
        ),
        Part(
            "Tests: real processes and networks that are measured or counted, one at a time",
            ("pytest", "-q", "-m", "not together or alone", "tests/integration"),
            1500,
        ),
    )


def pure_modules(root: Path) -> list[str]:
    """Return the modules that ``pyproject.toml`` calls the pure core.

    Raises:
        ValueError: It has no such contract.
    """
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    for contract in settings["tool"]["importlinter"]["contracts"]:
        if contract["name"].startswith(PURE_CORE):
            return list(contract["source_modules"])
    raise ValueError(f"pyproject.toml has no import contract whose name begins {PURE_CORE!r}.")


def run_parts(chosen: Sequence[Part], run: Run, step: Callable[[str], None]) -> int:
    """Run parts one after the other, and tell at the end what each took and what failed.

    Args:
        chosen: In this order.
        run: Runs a part's command.
        step: Told each part's name before it runs.

    Returns:
        0 if all passed; else the status of the first that did not, or 1.
    """
    outcomes = []
    for part in chosen:
        step(part.name)
        outcomes.append(_outcome(part, run))
    print()
    for line in summary(outcomes):
        print(line)
    statuses = [1 if o.status is None else o.status for o in outcomes]
    return next((status for status in statuses if status), 0)


def _outcome(part: Part, run: Run) -> Outcome:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = list(part.command)
        if part.is_pytest:
            command += [f"--junit-xml={report}", "-o", "junit_family=xunit1"]
        began = time.monotonic()
        status = run(command, part.max_s)
        seconds = time.monotonic() - began
        return Outcome(part, seconds, status, failed_tests(report) if report.exists() else ())


def failed_tests(report: Path) -> tuple[str, ...]:
    """Return the ids of the tests that failed, in order, of a report in pytest's XML."""
    failed = []
    for case in ET.parse(report).getroot().iter("testcase"):  # noqa: S314 - pytest wrote it
        if case.find("failure") is not None or case.find("error") is not None:
            file, name = case.get("file"), case.get("name", "")
            failed.append(f"{file}::{name}" if file else name)
    return tuple(dict.fromkeys(failed))


def summary(outcomes: Sequence[Outcome]) -> list[str]:
    """Return the lines that end a run: a table of times, then what failed."""
    lines = [f"{o.seconds:7.1f} s  {o.part.name}: {o.verdict}" for o in outcomes]
    lines.append(f"{sum(o.seconds for o in outcomes):7.1f} s  in all")
    failed = [test for outcome in outcomes for test in outcome.failed]
    if failed:
        lines += ["", "What failed:", *(f"  {test}" for test in failed[:MAX_SHOWN])]
    if len(failed) > MAX_SHOWN:
        lines.append(f"  and {len(failed) - MAX_SHOWN} more")
    return lines

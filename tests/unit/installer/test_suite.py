"""The suite's parts: nothing is left out, all run, and what failed is told by name."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import dev
import pytest
import suite

ROOT = Path(__file__).parents[3]
ONE_OF_EACH = """
import pytest

@pytest.fixture
def broken():
    raise ValueError

@pytest.fixture
def breaks_later():
    yield
    raise ValueError

def test_passes(): pass
def test_fails(): assert False
@pytest.mark.parametrize("x", ["a b", "c::d"])
def test_fails_with(x): assert False
def test_errs(broken): pass
def test_fails_twice(breaks_later): assert False
@pytest.mark.skip
def test_is_skipped(): assert False
@pytest.mark.xfail
def test_is_known(): assert False
"""


def pytest_run(command, within_s):
    return subprocess.run(
        [sys.executable, "-m", *command, "-p", "no:cacheprovider"],
        timeout=within_s,
        capture_output=True,
        check=False,
    ).returncode


def part(name, *command, max_s=60.0):
    return suite.Part(name, command, max_s)


# ---- what is run -----------------------------------------------------------------------------


def test_every_folder_of_tests_is_in_a_part():
    """What the part for all the rest leaves out is in others."""
    commands = [p.command for p in suite.parts(ROOT) if p.is_pytest]
    rest = next(command for command in commands if "tests" in command)
    ignored = {word.removeprefix("--ignore=") for word in rest if word.startswith("--ignore=")}
    assert len(ignored) == 3
    assert ignored <= {word for command in commands for word in command}


def test_integration_tests_run_in_one_of_two_parts():
    together, alone = (
        p.command[p.command.index("-m") + 1] for p in suite.parts(ROOT) if "-m" in p.command
    )
    for marks in ({"together": t, "alone": a} for t in (True, False) for a in (True, False)):
        picked = [eval(expression, {}, marks) for expression in (together, alone)]  # noqa: S307
        assert sorted(picked) == [False, True], marks


def test_the_pure_core_is_what_the_import_contract_names():
    modules = suite.pure_modules(ROOT)
    assert {"engine.messages", "engine.pool.election", "engine.pipeline.reply"} <= set(modules)
    covered = {word for p in suite.parts(ROOT) for word in p.command if word.startswith("--cov=")}
    assert covered == {f"--cov={module}" for module in modules}


def test_a_checkout_without_that_contract_is_an_error(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool.importlinter]\ncontracts = []\n")
    with pytest.raises(ValueError, match="pure core"):
        suite.parts(tmp_path)


# ---- what is told of it ------------------------------------------------------------------------


def test_all_parts_run_and_the_first_failure_is_the_status(capsys):
    ran, named = [], []

    def run(command, _within_s):
        ran.append(command[0])
        return {"two": 2, "three": 3}.get(command[0], 0)

    parts = [part(name.title(), name) for name in ("one", "two", "three", "four")]
    assert suite.run_parts(parts, run, named.append) == 2
    assert ran == ["one", "two", "three", "four"]
    assert named == ["One", "Two", "Three", "Four"]
    told = capsys.readouterr().out
    assert "One: passed" in told
    assert "Two: FAILED with status 2" in told
    assert "Four: passed" in told
    assert "What failed" not in told


def test_failing_tests_are_told_at_the_end_by_ids_that_run_them_again(tmp_path, capsys):
    file = tmp_path / "test_them.py"
    file.write_text(ONE_OF_EACH)
    chosen = part("Tests", "pytest", "-q", f"--rootdir={tmp_path}", str(file))
    assert suite.run_parts([chosen], pytest_run, lambda _: None) == 1
    told = capsys.readouterr().out.split("What failed:\n")[1].splitlines()
    ids = [f"test_them.py::{name}" for name in ("test_fails", "test_fails_with[a b]")]
    ids += ["test_them.py::test_fails_with[c::d]", "test_them.py::test_errs"]
    assert [line.strip() for line in told] == [*ids, "test_them.py::test_fails_twice"]
    again = ["pytest", "-q", f"--rootdir={tmp_path}", *(f"{tmp_path}/{i}" for i in ids)]
    assert pytest_run(again, 60) == 1


def test_a_file_that_can_not_be_imported_is_told(tmp_path, capsys):
    (tmp_path / "test_broken.py").write_text("import there_is_none")
    chosen = part("Tests", "pytest", "-q", f"--rootdir={tmp_path}", str(tmp_path))
    assert suite.run_parts([chosen], pytest_run, lambda _: None) == 2
    assert "test_broken" in capsys.readouterr().out.split("What failed:")[1]


def test_more_failures_than_anybody_reads_are_counted():
    failed = tuple(f"tests/t.py::test_{i}" for i in range(suite.MAX_SHOWN + 3))
    lines = suite.summary([suite.Outcome(part("Tests", "pytest"), 1.0, 1, failed)])
    assert lines[-1] == "  and 3 more"
    assert sum("::" in line for line in lines) == suite.MAX_SHOWN


# ---- what hangs ----------------------------------------------------------------------------------


def test_a_part_that_hangs_is_stopped_at_its_limit_and_named(capsys, monkeypatch):
    """The first ends when it is told to; the second takes no notice and is killed."""
    monkeypatch.setattr(dev, "TIDY_UP_WITHIN_S", 0.5)
    sleep = "import time; time.sleep(60)"
    deaf = f"from signal import *; signal(SIGINT, SIG_IGN); signal(SIGTERM, SIG_IGN); {sleep}"

    def run(command, within_s):
        return dev._call([sys.executable, "-c", *command], within_s)

    began = time.monotonic()
    parts = [part("Naps", sleep, max_s=1.0), part("Sleeps", deaf, max_s=1.0), part("Runs", "0")]
    assert suite.run_parts(parts, run, lambda _: None) == 1
    assert time.monotonic() - began < 30
    told = capsys.readouterr().out
    assert "Naps: HANGS: stopped after 1 s" in told
    assert "Sleeps: HANGS: stopped after 1 s" in told
    assert "Runs: passed" in told

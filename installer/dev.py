#!/usr/bin/env python3
"""Set Daisy up in this checkout, and run its demo or its tests. Needs only Python 3.11.

    python3 installer/dev.py setup   the virtual environment, the dependencies, the model
    python3 installer/dev.py demo    setup, then the main job, start to finish
    python3 installer/dev.py test    setup, then every check and test

What it makes lies in ``.venv`` and ``.daisy`` beside this checkout's files; delete them to start
again. A second run sets nothing up that is there already.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
DATA = ROOT / ".daisy"
CONSTRAINTS = ROOT / "installer" / "constraints.txt"
MIN_PYTHON = (3, 11)
CHOSEN_WITHIN_S = 3600.0  # somebody waits for them
TIDY_UP_WITHIN_S = 8.0  # a worker that is stopped removes what it has half done


def main() -> int:
    """Run one command.

    Returns:
        The exit status: 0 if all went well.
    """
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("command", choices=["setup", "demo", "test"])
    parser.add_argument("rest", nargs=argparse.REMAINDER, help="passed on to the demo or to pytest")
    if len(sys.argv) < 2:
        parser.print_help(sys.stderr)
        return 2
    arguments = parser.parse_args()
    if {"-h", "--help"} & set(arguments.rest):  # nothing is set up only to say that
        parser.print_help()
        return 0
    if sys.version_info < MIN_PYTHON:
        have = sys.version.split()[0]
        print(f"Daisy needs Python 3.11 or newer; this is {have}.", file=sys.stderr)
        return 2
    commands = {"setup": setup, "demo": demo, "test": test}
    try:
        return commands[arguments.command](arguments.rest)
    except subprocess.CalledProcessError as error:
        print(f"\nThis failed: {' '.join(map(str, error.cmd))}", file=sys.stderr)
        return error.returncode or 1
    except KeyboardInterrupt:
        print("Stopped.", file=sys.stderr)
        return 130


def setup(_rest: list[str]) -> int:
    """Make the virtual environment and fetch the embedded model, where they are missing."""
    stamp = VENV / "daisy-setup"
    wanted = _fingerprint()
    if not (stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted):
        _step("Setting up the virtual environment (a few minutes the first time)")
        if not _python().exists():
            _run([sys.executable, "-m", "venv", str(VENV)])
        pip = [str(_python()), "-m", "pip", "--disable-pip-version-check"]
        _run([*pip, "install", "--quiet", "-c", str(CONSTRAINTS), "-e", f"{ROOT}[app,dev]"])
        stamp.write_text(wanted, encoding="utf-8")
    _step("Looking for the embedded model")
    _run([str(_python()), "-m", "engine.models.embedded", str(DATA)])
    return 0


def demo(rest: list[str]) -> int:
    """Run the main job: three nodes become a pool, answer, lose one, answer on, and compare."""
    setup([])
    _step("Demo")
    return _call([str(_python()), "-m", "engine.cli.entry", "demo", *rest]) or 0


def test(rest: list[str]) -> int:
    """Run every check and every test, or the checks and the tests that are named.

    All parts run, whatever failed before; the times and the failing tests are told at the end.
    """
    import suite  # noqa: PLC0415 - it needs the Python that ``main`` has looked for

    setup([])
    chosen = suite.parts(ROOT)
    if rest:
        chosen = (*suite.CHECKS, suite.Part("Tests", ("pytest", "-q", *rest), CHOSEN_WITHIN_S))
    return suite.run_parts(chosen, _run_part, _step)


def _run_part(command: list[str], within_s: float) -> int | None:
    program, *arguments = command
    if program == "pytest":
        return _call([str(_python()), "-m", "pytest", *arguments], within_s)
    return _call([str(_python().parent / program), *arguments], within_s)


def _python() -> Path:
    return VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def _environment() -> dict[str, str]:
    # A test may start ten processes, and each would compile the engine anew.
    own = {"DAISY_DATA": str(DATA), "PYTHONPYCACHEPREFIX": str(VENV / "bytecode")}
    inherited = {key: v for key, v in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    return {**inherited, **own}


def _fingerprint() -> str:
    digest = hashlib.sha256(sys.version.encode())
    for file in (ROOT / "pyproject.toml", CONSTRAINTS):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _run(command: list[str]) -> None:
    status = _call(command)
    if status:
        raise subprocess.CalledProcessError(status, command)


def _call(command: list[str], within_s: float | None = None) -> int | None:
    """Run a command to its end; after Ctrl-C, which it gets as well, let it tidy up first.

    Returns:
        Its exit status; None if it was stopped because its time was over.

    Raises:
        KeyboardInterrupt: Ctrl-C; the command has ended.
    """
    with subprocess.Popen(command, cwd=ROOT, env=_environment()) as child:
        try:
            return child.wait(within_s)
        except subprocess.TimeoutExpired:
            if os.name == "posix":
                child.send_signal(signal.SIGINT)  # it then tells where it hangs
            _end(child)
            return None
        except KeyboardInterrupt:
            _end(child)
            raise


def _end(child: subprocess.Popen[bytes]) -> None:
    if not _has_ended(child):
        child.terminate()
    if not _has_ended(child):
        child.kill()


def _has_ended(child: subprocess.Popen[bytes]) -> bool:
    try:
        child.wait(TIDY_UP_WITHIN_S)
    except subprocess.TimeoutExpired:
        return False
    return True


_BEGIN = time.monotonic()


def _step(what: str) -> None:
    print(f"[{time.monotonic() - _BEGIN:6.1f} s] {what}", flush=True)


if __name__ == "__main__":
    sys.exit(main())

"""What ``pip install`` gives: a wheel with every file the program reads, and, in the long form,
a fresh environment in which all of it works."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

pytestmark = [pytest.mark.processes, pytest.mark.together]

CHECKOUT = Path(__file__).parents[2]
BUILT_OF = ("app", "engine", "resources", "pyproject.toml", "README.md", "LICENSE")
NO_CACHES = shutil.ignore_patterns("__pycache__")
IS_LONG = bool(os.environ.get("DAISY_LONG"))
INSTALL_WITHIN_S = 1200
WINDOW = """
import os, sys
from pathlib import Path
from PySide6.QtWidgets import QApplication
from app.start import Program, prepare

prepare()
application = QApplication(sys.argv[:1])
program = Program(application, Path("window"))
program.about.preferences.choose(starts_node=False, language="zh")
program.window.show()
for page in ("chat", "pool", "models", "devices", "doctor", "settings"):
    program.window.go(page)
    application.processEvents()
os._exit(0)
"""


def run(*command: object, cwd: Path, **environment: str) -> str:
    """Run a command to its end; nothing of the checkout is on its path."""
    inherited = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        timeout=INSTALL_WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built of a copy: a build leaves folders beside what it builds."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in BUILT_OF:
        if (CHECKOUT / name).is_dir():
            shutil.copytree(CHECKOUT / name, folder / name, ignore=NO_CACHES)
        else:
            shutil.copyfile(CHECKOUT / name, folder / name)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    run(*pip, "wheel", "--no-deps", "--quiet", "-w", "out", ".", cwd=folder)
    (built,) = (folder / "out").glob("*.whl")
    return built


def test_every_file_the_program_reads_is_in_the_wheel_and_no_other(wheel):
    with zipfile.ZipFile(wheel) as opened:
        there = {name for name in opened.namelist() if ".dist-info/" not in name}
    wanted = {
        str(file.relative_to(CHECKOUT))
        for name in ("app", "engine", "resources")
        for file in (CHECKOUT / name).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }

    assert there == wanted


@pytest.mark.skipif(not IS_LONG, reason="installs everything anew; DAISY_LONG=1 does")
@pytest.mark.timeout(INSTALL_WITHIN_S)
def test_installed_in_a_fresh_environment_everything_works(wheel, embedded, tmp_path):
    venv.create(tmp_path / "env", with_pip=True)
    bin_folder = tmp_path / "env" / ("Scripts" if os.name == "nt" else "bin")
    python = bin_folder / Path(sys.executable).name
    constraints = CHECKOUT / "installer" / "constraints.txt"
    run(python, "-m", "pip", "install", "-q", "-c", constraints, f"{wheel}[app]", cwd=tmp_path)
    daisy = bin_folder / "daisy"

    where = run(python, "-c", "import app, engine; print(app.__file__)", cwd=tmp_path)
    assert str(tmp_path) in where
    doctor = run(daisy, "doctor", "--data", tmp_path / "data", cwd=tmp_path)
    assert "a token in" in doctor
    run(python, "-c", WINDOW, cwd=tmp_path, QT_QPA_PLATFORM="offscreen")
    words = ("ask", "Say hello.", "--model", embedded.folder, "--max-tokens", 4)
    assert run(daisy, *words, "--data", tmp_path / "data", cwd=tmp_path).strip()

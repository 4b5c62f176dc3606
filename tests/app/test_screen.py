"""Where no window can be shown, it is said in a sentence with what to do."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from app.places import WORDING, app_folder
from app.screen import why_no_screen
from app.wording.catalogue import read_language


@pytest.mark.parametrize(
    ("platform", "environment", "has_library", "key"),
    [
        ("linux", {}, True, "window.no_screen"),
        ("linux", {"DISPLAY": ":0"}, False, "window.no_library"),
        ("linux", {"DISPLAY": ":0"}, True, None),
        ("linux", {"WAYLAND_DISPLAY": "wayland-0"}, False, None),
        ("linux", {"QT_QPA_PLATFORM": "offscreen"}, False, None),
        ("win32", {}, False, None),
    ],
)
def test_why_no_window_can_be_shown(platform, environment, has_library, key):
    assert why_no_screen(platform, environment, lambda _: has_library) == key


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is always a screen")
@pytest.mark.parametrize("language", ["en", "zh"])
def test_without_a_screen_the_program_says_so_in_the_persons_language_and_ends(tmp_path, language):
    choices = app_folder(tmp_path) / "choices.json"
    choices.parent.mkdir(parents=True, exist_ok=True)
    choices.write_text(f'{{"language": "{language}"}}')
    without = {"DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM"}
    done = subprocess.run(
        [sys.executable, "-m", "app", "--data", str(tmp_path)],
        env={name: value for name, value in os.environ.items() if name not in without},
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    said = read_language(WORDING / language)["window.no_screen"]
    assert done.stderr.splitlines() == [said]
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [choices]

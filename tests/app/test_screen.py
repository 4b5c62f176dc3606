"""Where no window can be shown, it is said in a sentence with what to do."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from app.screen import why_no_screen


@pytest.mark.parametrize(
    ("platform", "environment", "has_library", "words"),
    [
        ("linux", {}, True, "There is no screen here"),
        ("linux", {"DISPLAY": ":0"}, False, "libxcb-cursor"),
        ("linux", {"DISPLAY": ":0"}, True, None),
        ("linux", {"WAYLAND_DISPLAY": "wayland-0"}, False, None),
        ("linux", {"QT_QPA_PLATFORM": "offscreen"}, False, None),
        ("win32", {}, False, None),
    ],
)
def test_why_no_window_can_be_shown(platform, environment, has_library, words):
    told = why_no_screen(platform, environment, lambda _: has_library)
    assert (told is None) if words is None else (words in told)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is always a screen")
def test_without_a_screen_the_program_says_so_and_ends(tmp_path):
    without = {"DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM"}
    done = subprocess.run(
        [sys.executable, "-m", "app", "--data", str(tmp_path)],
        env={name: value for name, value in os.environ.items() if name not in without},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.splitlines() == [why_no_screen("linux", {}, lambda _: True)]
    assert not list(tmp_path.iterdir())

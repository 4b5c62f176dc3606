import importlib.util
import subprocess
import sys

from engine.cli.main import main


def test_without_a_command_the_window_is_shown(monkeypatch):
    started = []
    monkeypatch.setattr(subprocess, "call", lambda command: started.append(command) or 3)
    assert main([]) == 3
    assert started == [[sys.executable, "-m", "app"]]


def test_where_the_window_is_not_installed_the_commands_are_told(monkeypatch, capsys):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert main([]) == 0
    assert "COMMAND" in capsys.readouterr().out

import configparser
import re

import pytest
from PySide6.QtCore import QSettings

from app.settings import autostart
from app.settings.autostart import DesktopAutostart, RunKeyAutostart, desktop_entry
from engine.errors import StorageError

COMMAND = ("/usr/bin/python3", "-m", "app")


def exec_words(entry):
    """Return the words a desktop runs, by the specification's two steps."""
    parser = configparser.RawConfigParser()
    parser.optionxform = str
    parser.read_string(entry)
    value = parser["Desktop Entry"]["Exec"].replace("\\\\", "\\")
    words = re.findall(r'"((?:[^"\\]|\\.)*)"|(\S+)', value)
    unquoted = [re.sub(r"\\(.)", r"\1", quoted) if quoted else bare for quoted, bare in words]
    return [word.replace("%%", "%") for word in unquoted]


def test_it_is_off_until_somebody_switches_it_on(tmp_path):
    switch = DesktopAutostart(tmp_path / "autostart", COMMAND)

    assert not switch.is_on()
    assert list(tmp_path.iterdir()) == []


def test_switching_it_on_writes_one_file_and_off_removes_it(tmp_path):
    folder = tmp_path / "home" / ".config" / "autostart"
    switch = DesktopAutostart(folder, COMMAND)
    switch.switch(on=True)

    assert switch.is_on()
    assert [file.name for file in folder.iterdir()] == ["daisy.desktop"]
    entry = (folder / "daisy.desktop").read_text(encoding="utf-8")
    assert "X-GNOME-Autostart-Delay=5" in entry
    assert "X-KDE-autostart-after=panel" in entry
    switch.switch(on=False)
    assert not switch.is_on()
    assert list(folder.iterdir()) == []
    switch.switch(on=False)  # twice does no harm


@pytest.mark.parametrize("line", ["Hidden=true", "X-GNOME-Autostart-enabled = false"])
def test_what_the_desktops_own_settings_switched_off_is_off(tmp_path, line):
    switch = DesktopAutostart(tmp_path, COMMAND)
    switch.switch(on=True)
    with (tmp_path / "daisy.desktop").open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")

    assert not switch.is_on()


@pytest.mark.parametrize(
    "words",
    [
        COMMAND,
        ("/opt/my python/bin/python3", "-m", "app", "--data", "/home/李雷/Daisy data"),
        ("/a/100%/x", "-m", "app"),
        ("/a/it's/x", '/b/"q"/y', "/c/$HOME/`id`/z", "/d/back\\slash"),
    ],
)
def test_the_desktop_runs_exactly_the_words_of_the_command(words):
    assert exec_words(desktop_entry(words)) == list(words)


def test_a_folder_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "autostart").write_text("a file in its place", encoding="utf-8")

    with pytest.raises(StorageError, match="autostart"):
        DesktopAutostart(tmp_path / "autostart", COMMAND).switch(on=True)


def test_on_windows_it_is_one_value_with_every_word_quoted(tmp_path):
    key = QSettings(str(tmp_path / "run.ini"), QSettings.Format.IniFormat)
    switch = RunKeyAutostart(key, ("C:\\Program Files\\Daisy\\pythonw.exe", "-m", "app"))
    assert not switch.is_on()
    switch.switch(on=True)

    assert switch.is_on()
    assert key.value("Daisy") == '"C:\\Program Files\\Daisy\\pythonw.exe" "-m" "app"'
    switch.switch(on=False)
    assert not switch.is_on()
    assert key.allKeys() == []


def test_this_systems_switch_is_in_the_persons_own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setattr(autostart.sys, "platform", "linux")
    switch = autostart.autostart_of_this_pc(COMMAND)
    switch.switch(on=True)

    assert (tmp_path / ".config" / "autostart" / "daisy.desktop").exists()

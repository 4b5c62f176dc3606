"""Starting Daisy when its person logs in: off until asked for, and undone by the same switch."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from PySide6.QtCore import QSettings, QStandardPaths

from engine.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Sequence

_FILE = "daisy.desktop"
_VALUE = "Daisy"
_RUN_KEY = r"HKEY_CURRENT_USER\Software\Microsoft\Windows\CurrentVersion\Run"
_OFF_LINES = frozenset({"hidden=true", "x-gnome-autostart-enabled=false"})
_QUOTED = frozenset(" \t\n\"'\\><~|&;$*?#()`")


class Autostart(Protocol):
    """The switch of one system."""

    def is_on(self) -> bool:
        """Return whether Daisy starts at log-in."""
        ...

    def switch(self, *, on: bool) -> None:
        """Switch it.

        Args:
            on: Whether it starts at log-in from now on.

        Raises:
            StorageError: It could not be written.
        """
        ...


class DesktopAutostart:
    """By a file in the folder that Linux desktops read."""

    def __init__(self, folder: Path, command: Sequence[str]) -> None:
        """Change nothing.

        Args:
            folder: The person's autostart folder.
            command: Starts Daisy.
        """
        self._file = folder / _FILE
        self._command = tuple(command)

    def is_on(self) -> bool:
        """Return whether Daisy starts at log-in; the desktop's own settings may say no."""
        try:
            lines = self._file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            return False
        return not _OFF_LINES & {line.strip().lower().replace(" ", "") for line in lines}

    def switch(self, *, on: bool) -> None:
        """Write the file, or remove it.

        Args:
            on: Whether it starts at log-in from now on.

        Raises:
            StorageError: It could not be written.
        """
        try:
            if on:
                self._file.parent.mkdir(parents=True, exist_ok=True)
                self._file.write_text(desktop_entry(self._command), encoding="utf-8")
            else:
                self._file.unlink(missing_ok=True)
        except OSError as exc:
            raise StorageError(f"{self._file}: {exc.strerror}.") from exc


class RunKeyAutostart:
    """By a value of the person's own Run key, as on Windows."""

    def __init__(self, key: QSettings, command: Sequence[str]) -> None:
        """Change nothing.

        Args:
            key: The Run key.
            command: Starts Daisy.
        """
        self._key = key
        self._command = tuple(command)

    def is_on(self) -> bool:
        """Return whether Daisy starts at log-in."""
        return bool(self._key.value(_VALUE))

    def switch(self, *, on: bool) -> None:
        """Write the value, or remove it.

        Args:
            on: Whether it starts at log-in from now on.

        Raises:
            StorageError: It could not be written.
        """
        if on:
            self._key.setValue(_VALUE, " ".join(f'"{word}"' for word in self._command))
        else:
            self._key.remove(_VALUE)
        self._key.sync()
        if self._key.status() != QSettings.Status.NoError:
            raise StorageError(f"{self._key.fileName()} could not be written.")


def autostart_of_this_pc(command: Sequence[str]) -> Autostart:
    """Return the switch of the system that runs.

    Args:
        command: Starts Daisy.
    """
    if sys.platform == "win32":
        return RunKeyAutostart(QSettings(_RUN_KEY, QSettings.Format.NativeFormat), command)
    config = QStandardPaths.StandardLocation.GenericConfigLocation
    folder = Path(QStandardPaths.writableLocation(config)) / "autostart"
    return DesktopAutostart(folder, command)


def desktop_entry(command: Sequence[str]) -> str:
    """Return the file that starts a command at log-in, once there is a panel.

    Args:
        command: Program and arguments.
    """
    return "\n".join((
        "[Desktop Entry]",
        "Type=Application",
        "Name=Daisy",
        f"Exec={' '.join(map(_exec_word, command))}",
        "Terminal=false",
        "X-GNOME-Autostart-Delay=5",
        "X-KDE-autostart-after=panel",
        "",
    ))


def _exec_word(word: str) -> str:
    """Return a word as the desktop entry specification wants it in ``Exec``."""
    escaped = word.replace("%", "%%")
    if not _QUOTED & set(escaped):
        return escaped
    for char in '\\"`$':
        escaped = escaped.replace(char, f"\\{char}")
    # The value of a key is unescaped once more before it is split into words.
    return '"{}"'.format(escaped.replace("\\", "\\\\"))

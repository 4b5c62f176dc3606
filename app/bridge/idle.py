"""How long nobody has used this PC, where its desktop tells."""

from __future__ import annotations

import ctypes
import os
import sys
from typing import TYPE_CHECKING, Any, Protocol

from PySide6.QtCore import QObject
from PySide6.QtDBus import QDBusConnection, QDBusMessage, QDBusPendingCallWatcher

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Told = Callable[[float | None], None]

_MUTTER = "org.gnome.Mutter.IdleMonitor"
_ASK_WITHIN_MS = 2000


class IdleSource(Protocol):
    """One desktop's way to tell."""

    def look(self, told: Told) -> None:
        """Look how long nobody has used a key or the pointer; returns at once.

        Args:
            told: Told the seconds, soon; None where the desktop does not say.
        """
        ...


class WindowsIdle:
    """As Windows counts it."""

    def look(self, told: Told) -> None:
        """Look.

        Args:
            told: Told the seconds before this returns.
        """
        told(_windows_idle_s())


class XIdle:
    """As the X server's screen saver counts it."""

    def __init__(self) -> None:
        """Open a connection of its own; where there is none, nothing is known."""
        self._info: Any = None
        try:
            self._x = ctypes.CDLL("libX11.so.6")
            self._saver = ctypes.CDLL("libXss.so.1")
        except OSError:
            return
        self._x.XOpenDisplay.restype = ctypes.c_void_p
        self._x.XDefaultRootWindow.argtypes = (ctypes.c_void_p,)
        self._x.XDefaultRootWindow.restype = ctypes.c_ulong
        self._saver.XScreenSaverAllocInfo.restype = ctypes.POINTER(_SaverInfo)
        self._saver.XScreenSaverQueryInfo.argtypes = (
            ctypes.c_void_p,
            ctypes.c_ulong,
            ctypes.POINTER(_SaverInfo),
        )
        self._display = self._x.XOpenDisplay(None)
        if self._display:
            self._info = self._saver.XScreenSaverAllocInfo()

    def look(self, told: Told) -> None:
        """Look.

        Args:
            told: Told the seconds before this returns.
        """
        if not self._info:
            told(None)
            return
        root = self._x.XDefaultRootWindow(self._display)
        is_told = self._saver.XScreenSaverQueryInfo(self._display, root, self._info)
        told(self._info.contents.idle / 1000 if is_told else None)


class MutterIdle(QObject):
    """As GNOME's window manager counts it, on Wayland too."""

    def look(self, told: Told) -> None:
        """Look.

        Args:
            told: Told the seconds once the answer is there.
        """
        message = QDBusMessage.createMethodCall(
            _MUTTER, "/org/gnome/Mutter/IdleMonitor/Core", _MUTTER, "GetIdletime"
        )
        call = QDBusConnection.sessionBus().asyncCall(message, _ASK_WITHIN_MS)
        watcher = QDBusPendingCallWatcher(call, self)
        if watcher.isFinished():  # there is no bus
            self._on_reply(watcher, told)
        else:
            watcher.finished.connect(lambda: self._on_reply(watcher, told))

    @staticmethod
    def _on_reply(watcher: QDBusPendingCallWatcher, told: Told) -> None:
        found = watcher.reply().arguments()
        told(None if watcher.isError() or not found else float(found[0]) / 1000)
        watcher.deleteLater()


def source_name(platform: str, environment: Mapping[str, str]) -> str | None:
    """Return whose way tells on a system; None where no one's does.

    Args:
        platform: As ``sys.platform``.
        environment: Of the process.
    """
    if platform == "win32":
        return "windows"
    if "GNOME" in environment.get("XDG_CURRENT_DESKTOP", "").upper().split(":"):
        return "mutter"
    is_wayland = bool(environment.get("WAYLAND_DISPLAY"))
    return "x" if environment.get("DISPLAY") and not is_wayland else None


def idle_source_of_this_pc(parent: QObject) -> IdleSource | None:
    """Return the way this desktop tells; None where it has none we know.

    Args:
        parent: Owns what has to be owned.
    """
    match source_name(sys.platform, os.environ):
        case "windows":
            return WindowsIdle()
        case "mutter":
            return MutterIdle(parent)
        case "x":
            return XIdle()
    return None


class _SaverInfo(ctypes.Structure):
    _fields_ = (
        ("window", ctypes.c_ulong),
        ("state", ctypes.c_int),
        ("kind", ctypes.c_int),
        ("til_or_since", ctypes.c_ulong),
        ("idle", ctypes.c_ulong),
        ("event_mask", ctypes.c_ulong),
    )


class _LastInput(ctypes.Structure):
    _fields_ = (("size", ctypes.c_uint), ("time", ctypes.c_uint))


def _windows_idle_s() -> float | None:
    if sys.platform != "win32":
        return None
    last = _LastInput(ctypes.sizeof(_LastInput), 0)
    if not ctypes.windll.user32.GetLastInputInfo(ctypes.byref(last)):
        return None
    now = ctypes.windll.kernel32.GetTickCount()
    return float((now - last.time) & 0xFFFFFFFF) / 1000  # both count modulo 2**32

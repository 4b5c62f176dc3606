"""What tells this PC from another one that got a copy of its files."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

if sys.platform == "win32":
    import winreg

_PLACES = (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id"))
_MAX_BYTES = 256


def machine_mark() -> str | None:
    """Return a mark that is the same on this PC after every start, and on no other PC.

    The system's own id is hashed: it is not to be told to anyone (machine-id(5)).

    Returns:
        32 hex digits; None where the system has no id, as in some containers.
    """
    own = _machine_id()
    return None if own is None else hashlib.sha256(b"daisy machine 1\0" + own).hexdigest()[:32]


if sys.platform == "win32":

    def _machine_id() -> bytes | None:
        access = winreg.KEY_READ | winreg.KEY_WOW64_64KEY
        place = r"SOFTWARE\Microsoft\Cryptography"
        try:
            with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, place, 0, access) as key:
                return str(winreg.QueryValueEx(key, "MachineGuid")[0]).encode()
        except OSError:
            return None

else:

    def _machine_id() -> bytes | None:
        found = (_content(place) for place in _PLACES)
        # An image says "uninitialized" before its first boot.
        return next((content for content in found if content and content != b"uninitialized"), None)

    def _content(place: Path) -> bytes:
        try:
            with place.open("rb") as file:
                return file.read(_MAX_BYTES).strip()
        except OSError:
            return b""

"""What can be seen of this PC's firewall without being its administrator.

Only enough to say where a person has to look; whether it lets Daisy through is shown by the
network's own test and by who hears whom. The Windows part has not been run on Windows.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil

from engine.messages.doctor_control import FirewallSeen

ASK_WITHIN_S = 10.0
_UFW = Path("/etc/ufw/ufw.conf")
_PROFILES = "(Get-NetConnectionProfile).NetworkCategory"


def seen_firewall(ufw: Path = _UFW) -> FirewallSeen:
    """Return what is seen; takes up to ``ASK_WITHIN_S`` on Windows, and milliseconds elsewhere.

    Args:
        ufw: The settings of that firewall.

    Thread: any but the loop's.
    """
    if sys.platform == "win32":
        return FirewallSeen(kind="windows", is_public=_is_public(_network_categories()))
    is_on = _is_ufw_on(ufw)
    if is_on:
        return FirewallSeen(kind="ufw", is_on=True)
    if _runs("firewalld"):
        return FirewallSeen(kind="firewalld", is_on=True)
    return FirewallSeen(kind="ufw" if is_on is False else "unknown", is_on=is_on)


def _is_ufw_on(settings: Path) -> bool | None:
    """Return whether it is switched on; None where it isn't installed or may not be read."""
    try:
        lines = settings.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    values = {k.strip(): v.strip() for k, _, v in (line.partition("=") for line in lines)}
    return values.get("ENABLED", "").lower() == "yes"


def _runs(name: str) -> bool:
    return any(process.info["name"] == name for process in psutil.process_iter(["name"]))


def _network_categories() -> str:
    command = ["powershell.exe", "-NoProfile", "-NonInteractive", "-Command", _PROFILES]
    try:
        done = subprocess.run(  # noqa: S603 - the system's own, with fixed words
            command, capture_output=True, text=True, timeout=ASK_WITHIN_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


def _is_public(categories: str) -> bool | None:
    """Return whether a network counts as public; None where nothing was told."""
    told = categories.split()
    return "Public" in told if told else None

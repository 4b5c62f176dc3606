"""Evidence that the operating system ended processes because memory ran out."""

from __future__ import annotations

from pathlib import Path

_VMSTAT = Path("/proc/vmstat")


def num_oom_kills() -> int:
    """Return how many processes Linux has ended for want of memory since it started.

    Control groups count too. 0 where the system does not say.
    """
    try:
        lines = _VMSTAT.read_text("ascii").splitlines()
    except OSError:
        return 0
    counts = [line.split()[1] for line in lines if line.startswith("oom_kill ")]
    return int(counts[0]) if counts else 0

"""What a figure was measured on, and whether the machine is quiet enough to measure."""

from __future__ import annotations

import fcntl
import os
import platform
import tempfile
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import openvino as ov

if TYPE_CHECKING:
    from collections.abc import Iterator

# The instructions that decide which of OpenVINO's kernels run.
_TELLING_FLAGS = (
    "avx2",
    "avx_vnni",
    "avx512f",
    "avx512_vnni",
    "avx512_bf16",
    "avx512_fp16",
    "amx_int8",
    "amx_bf16",
)
_PACKAGES = ("openvino", "openvino-genai", "numpy", "websockets")
_LOCK = "daisy-reproduction.lock"


class MachineBusyError(Exception):
    """The machine does something else; says what, and how to go on."""


def describe_machine() -> dict[str, object]:
    """Say what kind of machine this is, without its name."""
    first_core = Path("/proc/cpuinfo").read_text("utf-8").split("\n\n", 1)[0]
    lines = [line.partition(":") for line in first_core.splitlines()]
    fields = {name.strip(): value.strip() for name, _, value in lines}
    flags = set(fields.get("flags", "").split())
    return {
        "cpu": fields.get("model name", platform.processor()),
        "cpu_flags": [flag for flag in _TELLING_FLAGS if flag in flags],
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": {name: version(name) for name in _PACKAGES},
        "openvino_build": ov.get_version(),
    }


def refuse_when_busy(max_load: float, is_forced: bool) -> float:
    """Check that nothing else runs.

    Args:
        max_load: Highest load average of the last minute to start at.
        is_forced: Start all the same.

    Returns:
        The load average; it belongs into the results.

    Raises:
        MachineBusyError: It is higher.
    """
    load = os.getloadavg()[0]
    if load > max_load and not is_forced:
        raise MachineBusyError(
            f"The load average is {load:.2f}, above {max_load}: times would mean nothing. "
            "Wait, or use --force and take ratios only."
        )
    return load


@contextmanager
def alone(folder: Path | None = None) -> Iterator[None]:
    """Keep other measurements from running at the same time.

    Args:
        folder: Where the lock file lies; the system's temporary folder when left out.

    Raises:
        MachineBusyError: Another measurement runs.
    """
    path = (folder or Path(tempfile.gettempdir())) / _LOCK
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            raise MachineBusyError("Another measurement runs. Wait until it has ended.") from exc
        yield

"""A lock that goes with the process that has it, however it ends."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import BinaryIO

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_LOOKS, _LOOK_S = 3, 0.02  # a look at the lock takes microseconds


def lock_soon(file: BinaryIO) -> None:
    """Lock a file, though a command may be looking just now whether it is locked.

    Args:
        file: Open for writing.

    Raises:
        OSError: It stays locked.
    """
    for _ in range(_LOOKS):
        try:
            return lock(file)
        except OSError:
            time.sleep(_LOOK_S)
    return lock(file)


def lock(file: BinaryIO) -> None:
    """Lock a file for as long as it is open; fails with ``OSError`` if it is locked.

    Args:
        file: Open for writing.
    """
    if sys.platform == "win32":
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
    else:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

"""Paths as people read them.

Under the C locale Python keeps the bytes of a non-ASCII file name as surrogates. Such a path opens
the right file everywhere, OpenVINO's bindings included, but it can't be printed or sent.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import PurePath


def shown_path(path: PurePath | str) -> str:
    """Return a path as text that can always be encoded: its bytes, read as UTF-8.

    Args:
        path: A path, or a part of one.
    """
    return os.fsencode(path).decode("utf-8", "replace")

"""Paths as OpenVINO wants them: UTF-8, whatever the locale of this process is."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def native_path(path: Path) -> str:
    """Return the path as text that becomes the file's own bytes when encoded as UTF-8.

    Under the C locale Python keeps the bytes of a non-ASCII file name as surrogates, which the
    bindings of OpenVINO can't encode. On any other locale, and on Windows, nothing changes.

    Args:
        path: Any path.
    """
    return os.fsencode(path).decode("utf-8", "surrogateescape")


def shown_path(path: Path) -> str:
    """Return the path as text fit for a message: no surrogates, so it can always be encoded.

    Args:
        path: Any path.
    """
    return os.fsencode(path).decode("utf-8", "replace")

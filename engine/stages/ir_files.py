"""Is the IR whole? Asked before OpenVINO reads it, whose own answers name neither file nor size.

The weights file must reach as far as the largest ``offset + size`` the XML names.
"""

from __future__ import annotations

import mmap
import re
from typing import TYPE_CHECKING

from engine.errors import ModelFileError

if TYPE_CHECKING:
    from pathlib import Path

_EXTENT = re.compile(rb'\boffset="([^"]*)" size="([^"]*)"')
_LARGEST_OFFSET = 2**63 - 1  # a file offset is signed
_EDGE_BYTES = 4096


def check_ir_files(xml: Path) -> int:
    """Check that both files of an IR are there and as long as they must be.

    Args:
        xml: Path of the ``.xml``; the weights lie beside it as ``.bin``.

    Returns:
        Bytes of weights the XML needs.

    Raises:
        ModelFileError: One is missing, cut short, or not an IR; names the file and both sizes.
    """
    try:
        needed = _needed_bytes(xml)
    except FileNotFoundError as exc:
        raise ModelFileError(f"{xml} is missing.") from exc
    except OSError as exc:
        raise ModelFileError(f"{xml} can't be read: {exc.strerror}.") from exc
    weights = xml.with_suffix(".bin")
    try:
        size = weights.stat().st_size
    except OSError as exc:
        what = "is a link to a file that is not there" if weights.is_symlink() else "is missing"
        raise ModelFileError(f"{weights} {what}; it must have {needed} bytes.") from exc
    if size < needed:
        raise ModelFileError(f"{weights} has {size} bytes; {xml.name} needs {needed}.")
    return needed


def _needed_bytes(xml: Path) -> int:
    size = xml.stat().st_size
    if size == 0:
        raise ModelFileError(f"{xml} is empty.")
    with xml.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        if b"<net" not in text[:_EDGE_BYTES]:
            raise ModelFileError(f"{xml} has {size} bytes and is not an OpenVINO IR.")
        if not text[-_EDGE_BYTES:].rstrip().endswith(b"</net>"):
            raise ModelFileError(f"{xml} ends in the middle, after {size} bytes.")
        # Copies: the map can't be closed while a match looks at it.
        extents = {(found[1], found[2]) for found in _EXTENT.finditer(text)}
    return max((_end(xml, offset, length) for offset, length in extents), default=0)


def _end(xml: Path, offset: bytes, size: bytes) -> int:
    if not (offset.isdigit() and size.isdigit()) or int(offset) + int(size) > _LARGEST_OFFSET:
        raise ModelFileError(
            f"{xml} places weights at offset {offset.decode('utf-8', 'replace')} with size "
            f"{size.decode('utf-8', 'replace')}, which no file has."
        )
    return int(offset) + int(size)

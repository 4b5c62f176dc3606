"""What the converter is told, and what it says when it is done; imports no OpenVINO."""

from __future__ import annotations

import msgspec


class ConversionOrder(msgspec.Struct, frozen=True):
    """Which file to convert, and the empty folder to fill."""

    gguf: str
    folder: str


class Converted(msgspec.Struct, frozen=True, tag="result"):
    """The folder is whole."""

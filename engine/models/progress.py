"""How long jobs say how far they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

ProgressStep = Literal["fetch", "unpack", "hash", "convert", "tokenizer", "store"]


class Progress(msgspec.Struct, frozen=True, tag="progress"):
    """One report of a long job.

    Attributes:
        step: What is being done.
        done: Bytes done of this step.
        total: Bytes of this step; None where it isn't known beforehand.
    """

    step: ProgressStep
    done: int
    total: int | None = None


ProgressCallback = Callable[[Progress], None]


def no_progress(progress: Progress) -> None:
    """Tell nobody.

    Args:
        progress: Not looked at.
    """

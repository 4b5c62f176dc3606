"""Folders of a shelf that last as long as one piece of work, or one process."""

from __future__ import annotations

import asyncio
import shutil
import uuid
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from engine.models.storage import storage_errors

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

_PREFIX = "scratch-"


def clear_scratch(work: Path) -> None:
    """Remove what killed processes left.

    Args:
        work: The shelf's folder; one process has it.
    """
    for path in work.glob(f"{_PREFIX}*"):
        # A worker that outlives its node for a moment finds its folder gone and can't add to it.
        aside = work / f"{_PREFIX}{uuid.uuid4().hex}"
        with suppress(OSError):
            path = path.rename(aside)  # noqa: PLW2901 - the same folder
        shutil.rmtree(path, ignore_errors=True)


@asynccontextmanager
async def scratch_folder(work: Path) -> AsyncIterator[Path]:
    """Give an empty folder; it is gone afterwards, with what is in it.

    Args:
        work: The shelf's folder.

    Yields:
        The folder.

    Fails with ``StorageError`` if it can't be made.
    """
    folder = work / f"{_PREFIX}{uuid.uuid4().hex}"

    def make() -> None:
        with storage_errors(folder):
            folder.mkdir(parents=True, mode=0o700)

    try:
        await asyncio.to_thread(make)
        yield folder
    finally:
        await asyncio.shield(asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True))

"""Write into the data folder so that nothing half-done is ever seen there."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from engine.errors import StorageError
from engine.models.shown_path import shown_path

if TYPE_CHECKING:
    from collections.abc import Iterator

_PREFIX = ".unfinished-"


@contextmanager
def unfinished_folder(parent: Path) -> Iterator[Path]:
    """Give a folder to work in, on the same volume as its parent; it is gone afterwards.

    Folders that a killed process left behind are removed first.

    Args:
        parent: Made if it isn't there.

    Yields:
        The folder. What is to stay is renamed out of it.

    Fails with ``StorageError`` if the parent can't be made or written.
    """
    with storage_errors(parent):
        parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(parent)
        folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def storage_errors(where: Path) -> Iterator[None]:
    """Translate what the operating system says while writing.

    Args:
        where: What was being written, for the sentence.

    Raises:
        StorageError: An OSError came out of the body.
    """
    try:
        yield
    except OSError as exc:
        raise StorageError(f"{shown_path(where)} can't be written: {exc.strerror}.") from exc


def require_space(folder: Path, needed_bytes: int, purpose: str) -> None:
    """Check that a volume has room.

    Args:
        folder: Any folder on it; the nearest one that exists is asked.
        needed_bytes: How much is going to be written.
        purpose: What for, as a noun.

    Raises:
        StorageError: There is less; the sentence has both numbers.
    """
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    free_bytes = shutil.disk_usage(existing).free
    if free_bytes < needed_bytes:
        raise StorageError(
            f"{purpose} needs {needed_bytes} bytes in {shown_path(folder)}, and {free_bytes} "
            f"are free: {needed_bytes - free_bytes} too few."
        )


def write_json(path: Path, content: object) -> None:
    """Write a JSON file as UTF-8 with a line end at its end.

    Args:
        path: The file; it must be in an unfinished folder.
        content: Plain data.
    """
    text = json.dumps(content, ensure_ascii=False, indent=2) + "\n"
    path.write_text(text, encoding="utf-8", newline="\n")


def flush_to_disk(folder: Path) -> None:
    """Make sure that every file of a folder is on the disk, so that a rename can't precede it.

    Args:
        folder: Its files, not those of folders in it.
    """
    for path in folder.iterdir():
        if path.is_file():
            with path.open("rb+") as file:
                os.fsync(file.fileno())


def _remove_leftovers(parent: Path) -> None:
    for path in parent.glob(f"{_PREFIX}*"):
        owner = path.name.removeprefix(_PREFIX).partition("-")[0]
        if owner.isdigit() and not psutil.pid_exists(int(owner)):
            shutil.rmtree(path, ignore_errors=True)

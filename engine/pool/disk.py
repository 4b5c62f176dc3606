"""Where a store keeps what, and the few things it does with the disk.

format                  what kind of folder this is
objects/HASH            whole files, verified
lists/HASH              their chunk lists; touched at each use
partial/HASH.data       files on their way, as long as the whole file, with holes
partial/HASH.bitmap     which chunks of them are there
folders/HASH/...        hard links, laid out as a manifest says
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from engine.errors import ModelFileError
from engine.models.shown_path import shown_path
from engine.pool.chunks import CHUNK_BYTES, checked_name

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STORE_FORMAT = b"daisy store 1\n"


@dataclass(frozen=True, slots=True)
class StorePaths:
    """The paths of a store; every name is checked before it becomes part of one.

    Attributes:
        root: The store's folder.
    """

    root: Path

    @property
    def marker(self) -> Path:
        """Says what kind of folder this is."""
        return self.root / "format"

    @property
    def lists(self) -> Path:
        """Where the chunk lists lie."""
        return self.root / "lists"

    @property
    def folders(self) -> Path:
        """Where files are linked as manifests say."""
        return self.root / "folders"

    @property
    def _parts(self) -> tuple[Path, ...]:
        return (self.root / "objects", self.lists, self.root / "partial", self.folders)

    def whole(self, name: str) -> Path:
        """Where a whole file lies."""
        return self.root / "objects" / checked_name(name)

    def chunk_list(self, name: str) -> Path:
        """Where a file's chunk list lies."""
        return self.lists / checked_name(name)

    def data(self, name: str) -> Path:
        """Where a file lies that is on its way."""
        return self.root / "partial" / f"{checked_name(name)}.data"

    def bitmap(self, name: str) -> Path:
        """Which of its chunks are there."""
        return self.root / "partial" / f"{checked_name(name)}.bitmap"

    def make(self) -> None:
        """Make the marker and the folders, where they are not there."""
        self.root.mkdir(parents=True, exist_ok=True)
        if not self.marker.exists():
            write_whole(self.marker, STORE_FORMAT)
        for folder in self._parts:
            folder.mkdir(exist_ok=True)

    def is_damaged(self) -> bool:
        """Return whether there is something at the root that is no store of this format."""
        if not self.root.exists():
            return False
        if not self.root.is_dir():
            return True
        if not self.marker.is_file():
            # The marker is the first thing that is written.
            return any(
                path.name != f"{self.marker.name}.unfinished" for path in self.root.iterdir()
            )
        return self.marker.read_bytes() != STORE_FORMAT or any(
            part.exists() and not part.is_dir() for part in self._parts
        )

    def set_aside(self) -> Path:
        """Rename the root to a name that is free.

        Returns:
            The new path.
        """
        number = 1
        while (aside := self.root.with_name(f"{self.root.name}.damaged-{number}")).exists():
            number += 1
        self.root.rename(aside)
        return aside


def read_at(file: BinaryIO, index: int) -> bytes:
    """Return one chunk of a file.

    Args:
        file: Open for reading.
        index: Of the chunk.
    """
    file.seek(index * CHUNK_BYTES)
    return file.read(CHUNK_BYTES)


def write_at(path: Path, offset: int, data: bytes | memoryview) -> None:
    """Write into a file that exists; the system has it when this returns.

    Args:
        path: The file.
        offset: In bytes.
        data: What to write.
    """
    with path.open("r+b", buffering=0) as file:
        file.seek(offset)
        view = memoryview(data)
        while view:
            view = view[file.write(view) :]


def pieces_of(path: Path) -> Iterator[bytes]:
    """Yield a file's bytes in chunks.

    Args:
        path: The file.

    Yields:
        ``CHUNK_BYTES`` each, but the last.
    """
    with path.open("rb") as file:
        while piece := file.read(CHUNK_BYTES):
            yield piece


def write_whole(path: Path, data: bytes, *, is_private: bool = False) -> None:
    """Write a small file so that it is there whole or not at all.

    Args:
        path: The file; replaced if it is there.
        data: All of it.
        is_private: Whether only this person may read it, from its first byte on. On Windows the
            folder's own rights say that.
    """
    unfinished = path.with_name(f"{path.name}.unfinished")
    if is_private:
        unfinished.unlink(missing_ok=True)  # one that is there may be anybody's to read

    def opened(name: str, flags: int) -> int:
        return os.open(name, flags, 0o600 if is_private else 0o666)

    with open(unfinished, "wb", opener=opened) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)


def flush_file(path: Path) -> None:
    """Make what is in a file lasting.

    Args:
        path: The file.
    """
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def flush_folder(folder: Path) -> None:
    """Make the names in a folder lasting, where the system can.

    Args:
        folder: The folder.
    """
    with suppress(OSError):  # Windows opens no folders, and keeps names in order by itself
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def link_or_copy(source: Path, target: Path) -> bool:
    """Give a file a second name, or copy it where that is impossible; appears whole.

    Args:
        source: The file.
        target: The other name; replaced if it is there.

    Returns:
        Whether it is a link.

    Raises:
        ModelFileError: The source is gone.
    """
    unfinished = target.with_name(f"{target.name}.unfinished")
    unfinished.unlink(missing_ok=True)
    is_link = True
    try:
        unfinished.hardlink_to(source)
    except FileNotFoundError as exc:
        raise ModelFileError(f"{shown_path(source)} is missing.") from exc
    except OSError:  # another volume, or one that knows no links
        is_link = False
        shutil.copyfile(source, unfinished)
        flush_file(unfinished)
    unfinished.replace(target)
    # Of two links to one file, renaming one to the other does nothing.
    unfinished.unlink(missing_ok=True)
    flush_folder(target.parent)
    return is_link


def remove_links(folder: Path, file: Path) -> None:
    """Remove every other name of a file below a folder.

    Args:
        folder: Looked through to its bottom.
        file: Nothing happens if it isn't there.
    """
    if not file.is_file():
        return
    for path in list(folder.rglob("*")):
        if path.is_file() and path.samefile(file):
            path.unlink()


def signature(path: Path) -> tuple[int, int]:
    """Return what changes whenever someone writes to a file: its size and its date.

    Args:
        path: The file.

    Returns:
        Bytes, and nanoseconds.
    """
    stat = path.stat()
    return stat.st_size, stat.st_mtime_ns


def is_one_volume(path: Path, other: Path) -> bool:
    """Return whether two files or folders lie on one volume, so that links may lead across.

    Args:
        path: One of them.
        other: The other.
    """
    return path.stat().st_dev == other.stat().st_dev


def bytes_below(root: Path) -> int:
    """Return what the files below a folder take, each counted once however often it is linked.

    Args:
        root: The folder.
    """
    sizes: dict[tuple[int, int], int] = {}
    for path in root.rglob("*"):
        with suppress(FileNotFoundError):  # it went meanwhile
            stat = path.lstat()
            if path.is_file():
                sizes[stat.st_dev, stat.st_ino] = stat.st_size
    return sum(sizes.values())

"""A model's files from this PC into a store: hashed once, linked, and listed."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import ModelFileError, ShardCorruptError
from engine.models.files import IR_BIN, IR_XML, require_readable
from engine.models.shown_path import shown_path
from engine.models.storage import storage_errors
from engine.pool.disk import is_one_volume, signature
from engine.pool.model_listing import LISTING_FORMAT, ModelListing, check_listing
from engine.pool.shard_files import hashed, take_file
from engine.splitter.manifest import FileEntry

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import BinaryIO

    from engine.models.files import ModelFiles
    from engine.pool.chunks import ChunkList
    from engine.pool.store import ShardStore
    from engine.splitter.orders import Described


class ModelIntake:
    """Takes one model's files into a store.

    Thread: any but the loop's; blocks for about a second for each gigabyte.
    """

    def __init__(
        self,
        store: ShardStore,
        scratch: Path,
        hold: Callable[[str], None],
        report: Callable[[int, int], None],
        check_cancelled: Callable[[], None],
    ) -> None:
        """Begin with nothing read.

        Args:
            store: Gets the files.
            scratch: An empty folder on the store's volume.
            hold: Told each file's name before the store has it.
            report: Told of bytes read, and of how many there are in all.
            check_cancelled: Called for every few megabytes; raises to stop.
        """
        self._store = store
        self._scratch = scratch
        self._hold = hold
        self._report = report
        self._check_cancelled = check_cancelled
        self._done = 0
        self._total = 0

    def take(self, files: ModelFiles, described: Described) -> ModelListing:
        """Hash a model's files, give each its name in the store, and list them.

        Args:
            files: Opened. Files on the store's volume are linked; links in a hub's cache are
                followed first. Others are copied while they are hashed.
            described: What the model is.

        Returns:
            The list, which is in the store too.

        Fails with ``ModelFileError`` if a file can't be read, changes meanwhile, or has a name
        that not every PC can hold; with ``StorageError`` if there is no room. Files that were
        taken in by then stay until room is needed.
        """
        sources = _sources(files)
        sizes = {name: require_readable(path) for name, path in sources.items()}
        self._total = sum(sizes.values())
        _check_names(sources, sizes, described)
        self._make_room(sources, sizes)
        entries = tuple(self._take_one(name, path) for name, path in sources.items())
        listing = _listing(described, entries)
        self._keep_listing(listing)
        return listing

    def _make_room(self, sources: dict[str, Path], sizes: dict[str, int]) -> None:
        """See that there is room before hours are spent on reading.

        What is as long as a file of the store may be that file.
        """
        root = self._store.paths.root
        with storage_errors(root):
            known = {path.stat().st_size for path in (root / "objects").iterdir()}
        new = {name: size for name, size in sizes.items() if size not in known}
        for is_there in (True, False):
            there = [n for n in new if is_one_volume(sources[n], root) is is_there]
            if there:
                self._store.make_room(sum(new[n] for n in there), is_there=is_there)

    def _take_one(self, name: str, path: Path) -> FileEntry:
        before = signature(path)
        with ExitStack() as stack:
            source = path
            copy: BinaryIO | None = None
            if not is_one_volume(path, self._scratch):
                source = self._scratch / f"copy-{self._done}"
                with storage_errors(source):
                    copy = stack.enter_context(source.open("xb"))
            chunks = self._hashed(path, copy)
            if copy is not None:
                with storage_errors(source):
                    copy.flush()
                    os.fsync(copy.fileno())
        if signature(path) != before:
            raise ModelFileError(
                f"{shown_path(path)} is being changed while it is read.",
                "Wait until it is whole, and load the model again.",
            )
        self._hold(chunks.sha256)
        self._store.add_hashed(source, chunks)
        if source is not path:
            source.unlink(missing_ok=True)
        return FileEntry(name, chunks.num_bytes, chunks.sha256)

    def _hashed(self, path: Path, copy: BinaryIO | None) -> ChunkList:
        def on_piece(piece: bytes) -> None:
            self._check_cancelled()
            if copy is not None:
                copy.write(piece)
            self._done += len(piece)
            self._report(self._done, self._total)

        try:
            return hashed(path, on_piece)
        except ShardCorruptError as exc:
            raise ModelFileError(f"{shown_path(path)} is being changed while it is read.") from exc

    def _keep_listing(self, listing: ModelListing) -> None:
        path = self._scratch / "listing.json"
        with storage_errors(path):
            path.write_bytes(listing.encoded())
        self._hold(listing.sha256)
        take_file(self._store, path, listing.sha256)


def _sources(files: ModelFiles) -> dict[str, Path]:
    named = ((IR_XML, files.xml), (IR_BIN, files.bin), *files.text_files)
    return {name: Path(path).resolve() for name, path in named}


def _check_names(sources: dict[str, Path], sizes: dict[str, int], described: Described) -> None:
    """See that every PC can hold the files, before any is read.

    Raises:
        ModelFileError: A file has a name that not every PC can hold.
    """
    entries = tuple(FileEntry(name, sizes[name], "0" * 64) for name in sources)
    try:
        check_listing(_listing(described, entries))
    except ShardCorruptError as exc:
        raise ModelFileError(
            exc.what,
            "Rename it: small letters, digits, dots, hyphens and underscores are known everywhere.",
        ) from exc


def _listing(described: Described, entries: tuple[FileEntry, ...]) -> ModelListing:
    return ModelListing(
        format=LISTING_FORMAT,
        model=described.model,
        files=entries,
        paged_refusal=described.paged_refusal,
    )

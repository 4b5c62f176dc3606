"""A model's files from this PC into a store: hashed once, linked or copied, and listed."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.errors import ModelFileError, ShardCorruptError
from engine.models.files import IR_BIN, IR_XML, require_readable
from engine.models.shown_path import shown_path
from engine.models.storage import storage_errors
from engine.pool.chunks import chunk_list_of
from engine.pool.disk import pieces_of, signature
from engine.pool.model_listing import LISTING_FORMAT, ModelListing, check_listing
from engine.pool.shard_files import take_file
from engine.splitter.manifest import FileEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import BinaryIO

    from engine.models.files import ModelFiles
    from engine.pool.chunks import ChunkList
    from engine.pool.store import ShardStore
    from engine.splitter.orders import Described

# People edit settings and templates in place, and the store's copy must stay what it was. Nobody
# edits weights, and a second copy of them is what a disk may have no room for.
LINKED_FROM_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class _Source:
    """One file: its name in the list, where it is, and where the store is to take it from."""

    name: str
    path: Path
    num_bytes: int
    own: Path
    is_linked: bool


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
            files: Opened. Large ones get a second name where the system allows it; the others
                are copied while they are hashed.
            described: What the model is.

        Returns:
            The list, which is in the store too.

        Fails with ``ModelFileError`` if a file can't be read, changes meanwhile, or has a name
        that not every PC can hold; with ``StorageError`` if there is no room. Files that were
        taken in by then stay until room is needed.
        """
        named = ((IR_XML, files.xml), (IR_BIN, files.bin), *files.text_files)
        sizes = {name: require_readable(path) for name, path in named}
        self._total = sum(sizes.values())
        _check_names(sizes, described)
        sources = [self._prepared(name, path, sizes[name]) for name, path in named]
        self._make_room(sources)
        entries = tuple(self._take_one(source) for source in sources)
        listing = _listing(described, entries)
        self._keep_listing(listing)
        return listing

    def _prepared(self, name: str, path: Path, num_bytes: int) -> _Source:
        # A hub's cache holds links, and not every system follows one to give a second name.
        path = path.resolve()
        own = self._scratch / name.replace("/", "-")
        is_linked = False
        if num_bytes >= LINKED_FROM_BYTES:
            try:
                own.hardlink_to(path)
                is_linked = True
            except OSError:  # another volume or owner, or a volume that knows no links
                is_linked = False
        return _Source(name, path, num_bytes, own, is_linked)

    def _make_room(self, sources: list[_Source]) -> None:
        """See that there is room before minutes are spent on reading.

        What is as long as a file of the store may be that file.
        """
        root = self._store.paths.root
        with storage_errors(root):
            known = {path.stat().st_size for path in (root / "objects").iterdir()}
        new = [source for source in sources if source.num_bytes not in known]
        self._store.make_room(sum(s.num_bytes for s in new), is_there=True)
        copied = sum(s.num_bytes for s in new if not s.is_linked)
        if copied:
            self._store.make_room(copied)

    def _take_one(self, source: _Source) -> FileEntry:
        try:
            before = signature(source.path)
            chunks = self._hashed(source)
            has_changed = signature(source.path) != before
        except ShardCorruptError:
            has_changed = True
        except OSError as exc:
            raise ModelFileError(
                f"{shown_path(source.path)} can't be read: {exc.strerror}."
            ) from exc
        if has_changed:
            raise ModelFileError(
                f"{shown_path(source.path)} is being changed while it is read.",
                "Wait until it is whole, and load the model again.",
            )
        self._hold(chunks.sha256)
        self._store.add_hashed(source.own, chunks)
        with storage_errors(source.own):
            source.own.unlink()
        return FileEntry(source.name, chunks.num_bytes, chunks.sha256)

    def _hashed(self, source: _Source) -> ChunkList:
        with ExitStack() as stack:
            copy: BinaryIO | None = None
            if not source.is_linked:
                with storage_errors(source.own):
                    copy = stack.enter_context(source.own.open("xb"))
            chunks = chunk_list_of(self._pieces(source, copy))
            if copy is not None:
                with storage_errors(source.own):
                    copy.flush()
                    os.fsync(copy.fileno())
        return chunks

    def _pieces(self, source: _Source, copy: BinaryIO | None) -> Iterator[bytes]:
        for piece in pieces_of(source.path):
            self._check_cancelled()
            if copy is not None:
                with storage_errors(source.own):
                    copy.write(piece)
            self._done += len(piece)
            self._report(self._done, self._total)
            yield piece

    def _keep_listing(self, listing: ModelListing) -> None:
        path = self._scratch / "listing"
        with storage_errors(path):
            path.write_bytes(listing.encoded())
        self._hold(listing.sha256)
        take_file(self._store, path, listing.sha256)


def _check_names(sizes: dict[str, int], described: Described) -> None:
    """See that every PC can hold the files, before any is read.

    Raises:
        ModelFileError: A file has a name that not every PC can hold.
    """
    entries = tuple(FileEntry(name, size, "0" * 64) for name, size in sizes.items())
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

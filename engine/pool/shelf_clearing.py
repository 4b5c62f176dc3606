"""Taking a model off this PC's disk: which files are its alone, and what else holds their bytes.

Blocks on the disk; a loop calls it through ``StoreThreads``.
"""

from __future__ import annotations

import logging
import shutil
from typing import TYPE_CHECKING, NamedTuple

from engine.errors import DaisyError
from engine.models.storage import storage_errors
from engine.pool.shard_files import stored_listing, stored_manifest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from engine.pool.holds import Holds
    from engine.pool.model_listing import ModelListing
    from engine.pool.shelf_records import ShelfRecords
    from engine.pool.store import ShardStore

CONVERTED = "models"  # in the data folder: what GGUFs were converted to

_logger = logging.getLogger(__name__)


class KeptFiles(NamedTuple):
    """One model's files in a store.

    Attributes:
        listing: What the model is.
        names: Of all its files, those of its shards included.
        manifests: Of its shards.
    """

    listing: ModelListing
    names: frozenset[str]
    manifests: frozenset[str]


def kept_files(store: ShardStore, records: ShelfRecords, model_sha256: str) -> KeptFiles:
    """Return the files of a model that is kept.

    Args:
        store: Has them.
        records: Of the shelf.
        model_sha256: The model's name.

    Fails with ``ModelNotFoundError`` if its listing isn't there.
    """
    listing = stored_listing(store, model_sha256)
    names = {model_sha256, *records.signatures_of(model_sha256)}
    manifests = set()
    for manifest_sha256 in records.manifests:
        try:
            manifest = stored_manifest(store, manifest_sha256)
        except DaisyError:  # it went when room was needed
            continue
        if manifest.model == listing.model:
            manifests.add(manifest_sha256)
            names |= {manifest_sha256, *(entry.sha256 for entry in manifest.files)}
    return KeptFiles(listing, frozenset(names), frozenset(manifests))


def size_of(store: ShardStore, names: Iterable[str]) -> int:
    """Return the bytes of those files that are whole and there.

    Args:
        store: Has them.
        names: SHA-256 of each, in hex.
    """
    return sum(store.paths.whole(name).stat().st_size for name in names if store.has(name))


def take_out(
    store: ShardStore, records: ShelfRecords, holds: Holds, data_dir: Path, model_sha256: str
) -> int:
    """Take a model's files off the disk, apart from those another model or a stage needs.

    A folder of Daisy's own with the same bytes (what a GGUF was converted to) goes as well;
    whatever a person brought stays where it is.

    Args:
        store: Has the files.
        records: Of the shelf; forget the model.
        holds: Of the store; nobody holds files for this model any more.
        data_dir: Daisy's data folder.
        model_sha256: The model's name.

    Returns:
        The bytes of the files that went.

    Fails with ``ModelNotFoundError`` if it isn't kept, with ``StorageError`` if a file can't be
    removed.
    """
    kept = kept_files(store, records, model_sha256)
    for holder in (model_sha256, *kept.manifests):
        holds.release(holder)
    others = [name for name in records.models if name != model_sha256]
    needed = {*others, *(name for other in others for name in records.signatures_of(other))}
    going = kept.names - needed - holds.all_names()
    freed = size_of(store, going)
    with storage_errors(data_dir):
        for folder in _same_bytes(store, going, data_dir / CONVERTED):
            shutil.rmtree(folder)
    records.forget_model(model_sha256, kept.manifests)
    for name in going:
        store.remove(name)
    _logger.info("shelf: took out %s, %d bytes", kept.listing.model.name, freed)
    return freed


def _same_bytes(store: ShardStore, names: Iterable[str], folder: Path) -> Iterator[Path]:
    """Yield the folders of Daisy's own in which a file is another name of one of these."""
    if folder.is_symlink() or not folder.is_dir():
        return  # what a person linked in is theirs
    inodes = {_inode(store.paths.whole(name)) for name in names if store.has(name)}
    for model in sorted(folder.iterdir()):
        is_own = model.is_dir() and not model.is_symlink()
        if is_own and any(_inode(path) in inodes for path in model.iterdir() if path.is_file()):
            yield model


def _inode(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino

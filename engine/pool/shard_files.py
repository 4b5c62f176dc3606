"""Folders of shards into a store, and out of it again for a stage process."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from engine.errors import ModelFileError, ShardCorruptError
from engine.models.names import safe_folder_name
from engine.models.shown_path import shown_path
from engine.models.storage import storage_errors
from engine.pool.chunks import chunk_list_of
from engine.pool.disk import link_or_copy, pieces_of
from engine.pool.model_listing import MAX_LISTING_BYTES, decode_listing
from engine.splitter.manifest import (
    MANIFEST_NAME,
    MAX_MANIFEST_BYTES,
    FileEntry,
    Manifest,
    decode_manifest,
    sha256_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from engine.domain import LayerRange
    from engine.pool.chunks import ChunkList
    from engine.pool.model_listing import ModelListing
    from engine.pool.store import ShardStore


OnPiece = Callable[[bytes], None]  # told each piece that was read; may raise to stop


def no_piece(piece: bytes) -> None:
    """Tell nobody.

    Args:
        piece: Not looked at.
    """


def hashed(path: Path, on_piece: OnPiece = no_piece) -> ChunkList:
    """Return the chunk list of a file on this PC.

    Args:
        path: The file; read to its end.
        on_piece: Told of each piece; what it raises stops the reading.

    Fails with ``ShardCorruptError`` if it changes meanwhile, with ``StorageError`` if it can't be
    read.
    """

    def pieces() -> Iterator[bytes]:
        for piece in pieces_of(path):
            on_piece(piece)
            yield piece

    with storage_errors(path):
        return chunk_list_of(pieces())


def take_file(store: ShardStore, path: Path, name: str, on_piece: OnPiece = no_piece) -> bool:
    """Take a file from this PC into a store, after hashing it; not read if it is there.

    Args:
        store: Gets it.
        path: The file.
        name: The SHA-256 it must have, in hex.
        on_piece: Told of each piece that was read; what it raises stops the work.

    Returns:
        Whether it was new.

    Raises:
        ShardCorruptError: It is another file.

    Fails with ``StorageError`` if it can't be read, or quota or disk are too small.
    """
    if store.has(name):
        return False
    chunks = hashed(path, on_piece)
    if chunks.sha256 != name:
        raise ShardCorruptError(
            f"{shown_path(path)} is not the file it should be: its SHA-256 is "
            f"{chunks.sha256}, not {name}."
        )
    return store.add_hashed(path, chunks)


def import_folder(store: ShardStore, folder: Path, on_piece: OnPiece = no_piece) -> str:
    """Take a folder that ``daisy split`` made into a store; what is there already is not read.

    Args:
        store: Gets the manifest and every file it names.
        folder: On this PC; nothing in it is changed.
        on_piece: Told of each piece that was read; what it raises stops the work.

    Returns:
        The manifest's SHA-256, its name everywhere.

    Raises:
        ModelFileError: The manifest can't be read.
        ShardCorruptError: It is none, or a file is not what it says.
    """
    path = folder / MANIFEST_NAME
    try:
        with path.open("rb") as file:
            data = file.read(MAX_MANIFEST_BYTES + 1)
    except OSError as exc:
        raise ModelFileError(f"{shown_path(path)} can't be read: {exc.strerror}.") from exc
    for entry in decode_manifest(data).files:
        source = folder / entry.path
        if not source.is_file():
            raise ShardCorruptError(f"{shown_path(source)} is missing.")
        take_file(store, source, entry.sha256, on_piece)
    name = sha256_of(data)
    take_file(store, path, name)
    return name


def stored_manifest(store: ShardStore, manifest_sha256: str) -> Manifest:
    """Return a manifest out of a store.

    Args:
        store: Has it.
        manifest_sha256: Its name.

    Fails with ``ModelNotFoundError`` if it isn't there, ``ShardCorruptError`` if it is none.
    """
    with store.object_path(manifest_sha256).open("rb") as file:
        return decode_manifest(file.read(MAX_MANIFEST_BYTES + 1))


def stored_listing(store: ShardStore, model_sha256: str) -> ModelListing:
    """Return the list of a whole model's files out of a store.

    Args:
        store: Has it.
        model_sha256: Its name.

    Fails with ``ModelNotFoundError`` if it isn't there, ``ShardCorruptError`` if it is none.
    """
    path = store.object_path(model_sha256)
    with storage_errors(path), path.open("rb") as file:
        return decode_listing(file.read(MAX_LISTING_BYTES + 1))


def verify_file(store: ShardStore, name: str, on_piece: OnPiece = no_piece) -> None:
    """Hash a whole file of a store again.

    Args:
        store: Has it.
        name: SHA-256 of the file, in hex.
        on_piece: Told of each piece that was read; what it raises stops the work.

    Raises:
        ShardCorruptError: It changed on the disk; it is no longer in the store.
    """
    if hashed(store.object_path(name), on_piece).sha256 != name:
        store.remove(name)
        raise ShardCorruptError(
            f"The file {name} changed on the disk; it was taken out.",
            "Load the model again; the file is fetched anew.",
        )


def files_for(manifest: Manifest, layers: LayerRange) -> tuple[FileEntry, ...]:
    """Return the files a PC needs to run one shard: never another's weights.

    Args:
        manifest: Of the model.
        layers: Of the shard.

    Returns:
        Its IR and weights, the golden vectors at its ends, and, for the first shard, whose PC is
        the head, tokenizer, template and settings.

    Raises:
        ShardCorruptError: The manifest has no shard of those layers.
    """
    shard = next((shard for shard in manifest.shards if shard.layers == layers), None)
    if shard is None:
        raise ShardCorruptError(f"The manifest has no shard of layers {layers}.")
    files = [shard.xml, shard.weights]
    if layers.start == 0:
        files.extend(manifest.text_files)
    golden = manifest.golden
    if golden is not None:
        is_last = layers.stop == manifest.model.num_layers
        after = golden.logits if is_last else golden.before(layers.stop)
        files.extend(e for e in (golden.before(layers.start), after) if e is not None)
    return tuple(files)


def lay_out(store: ShardStore, manifest_sha256: str, layers: LayerRange | None = None) -> Path:
    """Make a folder as the manifest describes it, for a stage process to read.

    Files are hard links into the store, or copies where the volume knows none. A folder that is
    there already is completed.

    Args:
        store: Has the manifest and the files.
        manifest_sha256: The manifest's name.
        layers: Of the one shard wanted; None for every file.

    Returns:
        The folder; ``open_shard_folder`` opens it.

    Fails with ``ModelNotFoundError`` if a file isn't in the store, ``ShardCorruptError`` if the
    manifest gives a file a name that not every PC can hold, or two files one name.
    """
    manifest = stored_manifest(store, manifest_sha256)
    wanted = manifest.files if layers is None else files_for(manifest, layers)
    _check_paths(wanted)
    sources = [(entry, store.object_path(entry.sha256)) for entry in wanted]
    folder = store.paths.folders / manifest_sha256
    with storage_errors(folder):
        for entry, source in sources:
            target = folder / entry.path
            target.parent.mkdir(parents=True, exist_ok=True)
            if not _is_same(source, target, entry):
                link_or_copy(source, target)
        # Last, so that a folder with a manifest is one to be used.
        whole = store.object_path(manifest_sha256)
        link_or_copy(whole, folder / MANIFEST_NAME)
    return folder


def _check_paths(files: tuple[FileEntry, ...]) -> None:
    paths = [MANIFEST_NAME, *(entry.path for entry in files)]
    for path in paths:
        if any(safe_folder_name(part) != part for part in path.split("/")):
            raise ShardCorruptError(f"The manifest names a file that no PC could hold: {path!r}.")
    twice = {path for path in paths if paths.count(path) > 1}
    if twice:
        raise ShardCorruptError(f"The manifest names two files {min(twice)!r}.")


def _is_same(source: Path, target: Path, entry: FileEntry) -> bool:
    """Return whether the target is a link to the source, or a whole copy of it."""
    if not target.is_file():
        return False
    return target.samefile(source) or target.stat().st_size == entry.num_bytes

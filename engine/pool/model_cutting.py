"""A kept model into shards: laid out, cut by a process of its own, and taken into the store."""

from __future__ import annotations

import shutil
from functools import partial
from typing import TYPE_CHECKING

from engine.errors import ShardCorruptError
from engine.models.files import IR_BIN, IR_XML
from engine.models.ir_header import check_ir, check_language_model
from engine.models.shown_path import shown_path
from engine.models.storage import storage_errors
from engine.pool.disk import link_or_copy
from engine.pool.shard_files import import_folder, stored_manifest
from engine.pool.shelf_scratch import scratch_folder
from engine.splitter.manifest import MANIFEST_NAME, MAX_MANIFEST_BYTES, decode_manifest, sha256_of
from engine.splitter.orders import SplitOrder
from engine.splitter.process import split_in_process

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from engine.domain import LayerRange
    from engine.pool.holds import Holds
    from engine.pool.model_listing import ModelListing
    from engine.pool.paced_report import PacedReport
    from engine.pool.store import ShardStore
    from engine.pool.store_threads import StoreThreads
    from engine.splitter.orders import Progress

_SPARE_BYTES = 128 * 1024 * 1024  # beside the weights: XML, golden vectors, the file system


async def cut_model(
    listing: ModelListing,
    layers: Sequence[LayerRange],
    work: Path,
    stock: tuple[ShardStore, StoreThreads, Holds],
    report: PacedReport,
) -> str:
    """Cut a model whose files are in a store; its shards are in the store afterwards, and held.

    Args:
        listing: Of the model.
        layers: Of each shard; together all of the model's.
        work: A folder on the store's volume.
        stock: Store, threads for its disk work, and who holds what.
        report: Told how many layers are done.

    Returns:
        The manifest's SHA-256, which also holds the files.

    Fails as ``split_model`` does, and with ``StorageError``, before anything is cut, if there is no
    room.

    Cancellation: at once; nothing is left but whole files of the store.
    """
    store, threads, holds = stock
    await threads.call(_make_room, store, work, listing)
    async with scratch_folder(work) as scratch:
        order = await threads.call(_lay_out, store, listing, layers, scratch)
        await split_in_process(order, _LayersDone(listing.model.num_layers, report))
        folder = scratch / "shards"
        name, files = await threads.call(_read_manifest, folder)
        with holds.trying(name):
            holds.add(name, (name, *files))
            await threads.call_stoppable(partial(_import, store, folder))
    return name


def whole_manifest(store: ShardStore, manifest_sha256: str) -> frozenset[str]:
    """Return the names of a manifest's files and its own, if all of them are in a store.

    Args:
        store: Looked at.
        manifest_sha256: The manifest's name.

    Raises:
        ShardCorruptError: A file is not as long as it must be; it is no longer in the store.

    Fails with ``ModelNotFoundError`` if one is missing, with ``ShardCorruptError`` if the manifest
    is none.

    Thread: any but the loop's.
    """
    manifest = stored_manifest(store, manifest_sha256)
    for entry in manifest.files:
        have = store.object_path(entry.sha256).stat().st_size
        if have != entry.num_bytes:
            store.remove(entry.sha256)
            raise ShardCorruptError(f"{entry.sha256} has {have} bytes, not {entry.num_bytes}.")
    return frozenset({manifest_sha256, *(entry.sha256 for entry in manifest.files)})


class _LayersDone:
    """Tells a split's phases as layers: half of one is done when it is cut, all when it has run."""

    def __init__(self, num_layers: int, report: PacedReport) -> None:
        self._num_layers = num_layers
        self._report = report
        self._done = {"cut": 0, "golden": 0}

    def __call__(self, progress: Progress) -> None:
        if progress.phase in self._done:
            self._done[progress.phase] = progress.done
        done = sum(self._done.values()) // 2
        self._report("split", min(done, self._num_layers - 1), self._num_layers, "layers")


def _make_room(store: ShardStore, work: Path, listing: ModelListing) -> None:
    """See that the shards have room, and let go of what nobody holds if they don't."""
    model = listing.model
    needed = sum(model.layer_bytes) + model.embedding_bytes + model.head_bytes
    needed += sum(entry.num_bytes for entry in listing.text_files)
    with storage_errors(work):
        free = shutil.disk_usage(work).free
    if free < needed + _SPARE_BYTES:
        store.collect_garbage(needed + _SPARE_BYTES - free)
    store.make_room(needed)


def _lay_out(
    store: ShardStore, listing: ModelListing, layers: Sequence[LayerRange], scratch: Path
) -> SplitOrder:
    """Link a model's files as they were, check the IR, and make the order to cut it."""
    folder = scratch / "model"
    with storage_errors(folder):
        for entry in listing.files:
            target = folder / entry.path
            target.parent.mkdir(parents=True, exist_ok=True)
            link_or_copy(store.object_path(entry.sha256), target)
    check_language_model(check_ir(folder / IR_XML, folder / IR_BIN), listing.model.name)
    model = listing.model
    return SplitOrder(
        xml=shown_path(folder / IR_XML),
        name=model.name,
        architecture=model.architecture,
        context_length=model.context_length,
        eos_token_ids=model.eos_token_ids,
        out=shown_path(scratch / "shards"),
        text_files=tuple((e.path, shown_path(folder / e.path)) for e in listing.text_files),
        cuts=tuple(part.start for part in layers[1:]),
    )


def _read_manifest(folder: Path) -> tuple[str, tuple[str, ...]]:
    path = folder / MANIFEST_NAME
    with storage_errors(path), path.open("rb") as file:
        data = file.read(MAX_MANIFEST_BYTES + 1)
    return sha256_of(data), tuple(entry.sha256 for entry in decode_manifest(data).files)


def _import(store: ShardStore, folder: Path, check_cancelled: Callable[[], None]) -> None:
    import_folder(store, folder, lambda _: check_cancelled())

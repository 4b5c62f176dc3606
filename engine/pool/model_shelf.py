"""The models a node keeps whole, and the shards it cuts from them or fetches.

All bytes lie in the store under their hashes. What is wanted now is pinned there; the rest goes
when room is needed.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import (
    DaisyError,
    ModelInUseError,
    ModelNotFoundError,
    ShardCorruptError,
    UsageError,
)
from engine.messages.own_pc_control import ModelLine
from engine.models.shown_path import shown_path
from engine.models.storage import storage_errors
from engine.pool.disk import signature
from engine.pool.holds import Holds
from engine.pool.model_cutting import cut_model, whole_manifest
from engine.pool.model_listing import MAX_LISTING_BYTES
from engine.pool.paced_report import PacedReport, Report
from engine.pool.pull_files import FilesPull
from engine.pool.shard_files import files_for, lay_out, stored_listing, stored_manifest, verify_file
from engine.pool.shelf_clearing import kept_files, size_of, take_out
from engine.pool.shelf_records import ShelfRecords, division_key, signatures_in, source_key
from engine.pool.shelf_scratch import clear_scratch, scratch_folder
from engine.pool.taking_in import ModelIntake
from engine.preparation import describe_order, holds_shards, open_source
from engine.splitter.manifest import MAX_MANIFEST_BYTES
from engine.splitter.partition import check_partition
from engine.splitter.process import describe_in_process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from engine.domain import LayerRange, ModelDescription
    from engine.models.files import ModelFiles
    from engine.models.progress import Progress
    from engine.pool.pull import ChunkSource, Pulls
    from engine.pool.store import ShardStore
    from engine.pool.store_threads import StoreThreads

_TAKING_IN = "taking in"  # holds files until the model they belong to has a name


@dataclass(frozen=True, slots=True)
class KeptModel:
    """A model of which this node has every file.

    Attributes:
        model_sha256: Its name everywhere.
        model: What it is.
        paged_refusal: Why its layers can't be paged; None if they can.
    """

    model_sha256: str
    model: ModelDescription
    paged_refusal: str | None

    @property
    def can_be_paged(self) -> bool:
        """Whether every layer can."""
        return self.paged_refusal is None


class ModelShelf:
    """A node's models.

    Thread: the loop's; disks and processes are waited for elsewhere. Every call may be cancelled
    at once, and nothing half-done is taken for whole: what was verified stays for the next time.

    Attributes:
        notes: What was wrong when it was opened, for people.
    """

    def __init__(self, work: Path, store: ShardStore, threads: StoreThreads, pulls: Pulls) -> None:
        """Open the shelf, and clear away what a killed process left.

        Args:
            work: A folder of its own on the store's volume; made if it isn't there.
            store: Has the files.
            threads: For its disk work.
            pulls: Into it.

        Fails with ``StorageError`` if the folder can't be made or looked at.
        """
        with storage_errors(work):
            work.mkdir(parents=True, exist_ok=True)
            clear_scratch(work)
        self._work = work
        self._store = store
        self._threads = threads
        self._files_pull = FilesPull(store, threads, pulls)
        self._records = ShelfRecords(work)
        self.notes = self._records.notes
        self._holds = Holds(store)
        self._taking = asyncio.Lock()
        self._splitting = asyncio.Lock()
        self._records.forget_all_but(self.kept())
        for name in self._records.models:
            self._hold_model(name)

    # ---- whole models

    def kept(self) -> tuple[str, ...]:
        """Return the models of which every file is there, as it was when it was hashed.

        Cheap: looks at sizes and dates only.
        """
        return tuple(sorted(name for name in self._records.models if self._is_whole(name)))

    async def take_in(self, source: str | None, data_dir: Path, report: Report) -> KeptModel:
        """Open a model on this PC, converting it if need be, and keep its files.

        A source that looks as it did is neither converted, described nor hashed again.

        Args:
            source: A path; None for the embedded model.
            data_dir: Daisy's data folder.
            report: Told of the steps "convert" and "keep", ten times a second at most.

        Fails with ``UsageError`` if the source is divided already, ``ModelError`` if there is no
        model or it can't be used, ``StorageError`` if there is no room.
        """
        paced = self._paced(report)
        async with self._taking:
            path = None if source is None else Path(source)
            if path is not None and (known := await self._known(path)):
                return known
            await _require_whole_model(source)
            files = await open_source(source, data_dir, partial(_tell_opening, paced))
            looked_at = path or files.folder
            if path is None and (known := await self._known(looked_at)):
                return known
            key = await self._threads.call(source_key, looked_at)
            return await self._take_files(files, key, paced)

    async def keep(self, model_sha256: str, sources: Sequence[ChunkSource], report: Report) -> None:
        """Fetch a model's files, and keep them.

        Args:
            model_sha256: Its name.
            sources: PCs that may have them.
            report: Told of the step "keep" in verified bytes, ten times a second at most.

        Fails with ``ShardCorruptError`` if nobody has a whole and right copy, ``StorageError`` if
        there is no room, before the first byte.
        """
        paced = self._paced(report)
        with self._holds.trying(model_sha256):
            self._holds.add(model_sha256, (model_sha256,))
            await self._files_pull.pull_small(model_sha256, sources, MAX_LISTING_BYTES)
            listing = await self._threads.call(stored_listing, self._store, model_sha256)
            names = (model_sha256, *(entry.sha256 for entry in listing.files))
            self._holds.add(model_sha256, names)
            if self._is_whole(model_sha256):
                return
            await self._take_out_damaged(model_sha256, names)
            await self._files_pull.pull(
                listing.files, sources, lambda done, total: paced("keep", done, total, "bytes")
            )
            signatures = await self._threads.call(signatures_in, self._store, names)
            await self._threads.call(self._records.keep_model, model_sha256, signatures)

    def let_go(self, model_sha256: str) -> None:
        """Let a model's files go when room is needed; until then it is still kept.

        Args:
            model_sha256: Its name.
        """
        self._holds.release(model_sha256)

    async def listed(self) -> tuple[ModelLine, ...]:
        """Return the models that are kept, as people are shown them; none is in use."""
        return await self._threads.call(self._lines)

    async def drop(self, model_sha256: str, data_dir: Path) -> int:
        """Take a model's files off the disk; nothing happens to one that isn't kept.

        Args:
            model_sha256: Its name.
            data_dir: Daisy's data folder.

        Returns:
            The bytes that went.

        Raises:
            ModelInUseError: A model is being taken in or cut just now.

        Fails with ``StorageError`` if a file can't be removed.
        """
        if self._taking.locked() or self._splitting.locked():
            raise ModelInUseError("This PC is reading or cutting a model just now.")
        async with self._taking, self._splitting:
            if model_sha256 not in self._records.models:
                return 0
            return await self._threads.call(
                take_out, self._store, self._records, self._holds, data_dir, model_sha256
            )

    # ---- shards

    async def split(self, model_sha256: str, layers: tuple[LayerRange, ...], report: Report) -> str:
        """Cut a model that is kept; the same division again is found as it was cut.

        One split runs at a time.

        Args:
            model_sha256: The model's name.
            layers: Of each shard; together all of the model's.
            report: Told of the step "split" in layers, ten times a second at most.

        Returns:
            The manifest's SHA-256; its files are in the store, and stay until ``release``.

        Raises:
            ModelNotFoundError: The model isn't kept here.

        Fails with ``PlacementError`` if the layers are not those of the model; with
        ``ShardCorruptError`` if a file changed on the disk, and the model is no longer kept; with
        ``StorageError`` if there is no room, before anything is cut.
        """
        paced = self._paced(report)
        if not self._records.signatures_of(model_sha256):
            raise ModelNotFoundError(f"This PC does not keep the model {model_sha256}.")
        listing = await self._threads.call(stored_listing, self._store, model_sha256)
        num_layers = listing.model.num_layers
        check_partition(layers, num_layers)
        key = division_key(model_sha256, layers)
        async with self._splitting:
            manifest = await self._threads.call(self._found, key)
            if manifest is None:
                await self._require_unchanged(model_sha256)
                manifest = await cut_model(
                    listing, layers, self._work, (self._store, self._threads, self._holds), paced
                )
                await self._threads.call(self._records.keep_division, key, manifest)
        paced("split", num_layers, num_layers, "layers")
        return manifest

    async def fetch(
        self,
        manifest_sha256: str,
        layers: LayerRange,
        sources: Sequence[ChunkSource],
        report: Report,
    ) -> Path:
        """Fetch one shard's files, and lay them out for a stage process.

        Args:
            manifest_sha256: Of the shards.
            layers: Of the one that is wanted.
            sources: PCs that may have the files.
            report: Told of the step "push" in verified bytes, ten times a second at most.

        Returns:
            A folder that ``open_shard_folder`` opens; its files stay until ``release``.

        Fails with ``ShardCorruptError`` if nobody has a whole and right copy of a file, or there is
        no shard of those layers; with ``StorageError`` if there is no room, before the first byte.
        """
        paced = self._paced(report)
        with self._holds.trying(manifest_sha256):
            self._holds.add(manifest_sha256, (manifest_sha256,))
            await self._files_pull.pull_small(manifest_sha256, sources, MAX_MANIFEST_BYTES)
            manifest = await self._threads.call(stored_manifest, self._store, manifest_sha256)
            entries = files_for(manifest, layers)
            self._holds.add(manifest_sha256, (entry.sha256 for entry in entries))
            await self._files_pull.pull(
                entries, sources, lambda done, total: paced("push", done, total, "bytes")
            )
            return await self._threads.call(lay_out, self._store, manifest_sha256, layers)

    async def copy_shards(
        self,
        model_sha256: str,
        manifest_sha256: str,
        layers: tuple[LayerRange, ...],
        sources: Sequence[ChunkSource],
    ) -> None:
        """Fetch every shard of a model that is kept here, as if this node had cut it.

        So that a PC that takes over a lost one's layers finds them, whichever PC was lost.

        Args:
            model_sha256: Of the model.
            manifest_sha256: Of its shards.
            layers: Of each shard.
            sources: PCs that may have the files.

        Fails as ``fetch`` does; nothing happens if they are here already, or the model isn't.
        """
        key = division_key(model_sha256, layers)
        if model_sha256 not in self.kept():
            return
        found: str | None = await self._threads.call(self._found, key)
        if found is not None:
            return
        with self._holds.trying(manifest_sha256):
            self._holds.add(manifest_sha256, (manifest_sha256,))
            await self._files_pull.pull_small(manifest_sha256, sources, MAX_MANIFEST_BYTES)
            manifest = await self._threads.call(stored_manifest, self._store, manifest_sha256)
            self._holds.add(manifest_sha256, (entry.sha256 for entry in manifest.files))
            await self._files_pull.pull(manifest.files, sources, lambda _done, _total: None)
            if tuple(shard.layers for shard in manifest.shards) == layers:
                await self._threads.call(self._records.keep_division, key, manifest_sha256)

    async def verify(self, manifest_sha256: str, layers: LayerRange) -> None:
        """Hash one shard's files again, and take out those that changed on the disk.

        Args:
            manifest_sha256: Of the shards.
            layers: Of the shard.

        Fails with ``ShardCorruptError`` if one did; ``fetch`` gets it anew.
        """

        def work(check_cancelled: Callable[[], None]) -> None:
            manifest = stored_manifest(self._store, manifest_sha256)
            for entry in files_for(manifest, layers):
                verify_file(self._store, entry.sha256, lambda _: check_cancelled())

        await self._threads.call_stoppable(work)

    def release(self, manifest_sha256: str) -> None:
        """Let shards go when room is needed.

        Args:
            manifest_sha256: Of the shards; nothing happens if none are held.
        """
        self._holds.release(manifest_sha256)

    def let_go_all_but(self, names: Iterable[str]) -> None:
        """Let everything go but what the pool runs now; work under way keeps what it needs.

        Args:
            names: Of the model, and of the manifest of the shards.
        """
        self._holds.release_all_but(names)

    # ---- inside

    def _lines(self) -> tuple[ModelLine, ...]:
        lines = []
        for name in self.kept():
            kept = kept_files(self._store, self._records, name)
            line = ModelLine(
                model_sha256=name,
                name=kept.listing.model.name,
                num_layers=kept.listing.model.num_layers,
                num_bytes=size_of(self._store, kept.names),
                is_in_use=False,
            )
            lines.append(line)
        return tuple(lines)

    def _paced(self, report: Report) -> PacedReport:
        return PacedReport(report, asyncio.get_running_loop().time)

    def _is_whole(self, model_sha256: str) -> bool:
        files = self._records.signatures_of(model_sha256)
        try:
            return bool(files) and all(
                signature(self._store.paths.whole(name)) == tuple(known)
                for name, known in files.items()
            )
        except OSError:
            return False

    def _hold_model(self, model_sha256: str) -> None:
        self._holds.add(model_sha256, self._records.signatures_of(model_sha256))

    async def _known(self, source: Path) -> KeptModel | None:
        """Return what a source was found to be, if it looks as it did then and is kept."""
        key = await self._threads.call(source_key, source)
        name = None if key is None else self._records.model_of(key)
        if name is None or not self._is_whole(name):
            return None
        self._hold_model(name)
        listing = await self._threads.call(stored_listing, self._store, name)
        return KeptModel(name, listing.model, listing.paged_refusal)

    async def _take_files(
        self, files: ModelFiles, key: str | None, report: PacedReport
    ) -> KeptModel:
        report("keep", 0, 0, "bytes")
        order = await self._threads.call(describe_order, files)
        described = await describe_in_process(order, lambda _: None)
        loop = asyncio.get_running_loop()

        def tell(done: int, total: int) -> None:
            loop.call_soon_threadsafe(report, "keep", done, total, "bytes")

        def hold(name: str) -> None:
            self._holds.add(_TAKING_IN, (name,))

        with self._holds.trying(_TAKING_IN):
            async with scratch_folder(self._work) as scratch:
                listing = await self._threads.call_stoppable(
                    lambda check: ModelIntake(self._store, scratch, hold, tell, check).take(
                        files, described
                    )
                )
            names = (listing.sha256, *(entry.sha256 for entry in listing.files))
            signatures = await self._threads.call(signatures_in, self._store, names)
            await self._threads.call(self._records.keep_model, listing.sha256, signatures, key)
            self._hold_model(listing.sha256)
        self._holds.release(_TAKING_IN)
        return KeptModel(listing.sha256, listing.model, listing.paged_refusal)

    def _found(self, division: str) -> str | None:
        """Return the manifest of a division that was cut before, if all of it is there."""
        manifest = self._records.manifest_of(division)
        if manifest is None:
            return None
        try:
            self._holds.add(manifest, whole_manifest(self._store, manifest))
        except DaisyError:
            return None
        return manifest

    async def _require_unchanged(self, model_sha256: str) -> None:
        """Return if a model's files are as they were hashed.

        Raises:
            ShardCorruptError: One is not; it is no longer in the store.
        """
        if self._is_whole(model_sha256):
            return
        names = tuple(self._records.signatures_of(model_sha256))
        if damaged := await self._take_out_damaged(model_sha256, names):
            raise ShardCorruptError(
                f"{len(damaged)} files of the model {model_sha256} changed on the disk, "
                f"{damaged[0]} first; they were taken out.",
                "Load the model again.",
            )
        signatures = await self._threads.call(signatures_in, self._store, names)
        await self._threads.call(self._records.keep_model, model_sha256, signatures)

    async def _take_out_damaged(self, model_sha256: str, names: Sequence[str]) -> tuple[str, ...]:
        """Hash the files whose size or date is not the known one; return what was not right."""
        known = self._records.signatures_of(model_sha256)
        damaged: list[str] = []

        def work(check_cancelled: Callable[[], None]) -> None:
            for name in filter(self._store.has, names):
                if known.get(name) == signature(self._store.paths.whole(name)):
                    continue
                try:
                    verify_file(self._store, name, lambda _: check_cancelled())
                except ShardCorruptError:
                    damaged.append(name)

        await self._threads.call_stoppable(work)
        return tuple(damaged)


def _tell_opening(report: PacedReport, progress: Progress) -> None:
    report("convert", progress.done, progress.total or 0, "bytes")


async def _require_whole_model(source: str | None) -> None:
    if source is not None and await holds_shards(source):
        raise UsageError(
            f"{shown_path(source)} holds shards already.",
            "Load the model they were cut from; the pool cuts it as its PCs need it.",
        )

"""Splitting a model on disk: analysis in, a folder of shards with their manifest out.

The folder appears whole or not at all: everything is written beside it under another name, and
renamed at the end.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import openvino as ov

import engine
from engine.errors import ModelFileError, StorageError, UsageError
from engine.splitter.analysis import Analysis, analyse
from engine.splitter.cut import cut_shard
from engine.splitter.describe import description_of, vocab_size
from engine.splitter.golden import golden_run, golden_token_ids, group_layers
from engine.splitter.manifest import (
    MANIFEST_FORMAT,
    MANIFEST_NAME,
    FileEntry,
    GoldenBoundary,
    GoldenVectors,
    Manifest,
    ShardEntry,
    is_plain_path,
    sha256_of,
)
from engine.splitter.orders import SCRATCH_PREFIX, Progress, SplitOrder, SplitResult
from engine.splitter.paged_support import probe_paged_support
from engine.splitter.partition import (
    LayerCosts,
    NodeCapability,
    check_partition,
    partition_by_time,
    partition_evenly,
    ranges_from_cuts,
)
from engine.splitter.weights import WeightBytes, weigh

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy as np
    from numpy.typing import NDArray

    from engine.domain import LayerRange

_HASH_CHUNK_BYTES = 4 * 1024 * 1024
_SPARE_BYTES = 64 * 1024 * 1024  # XML, golden vectors, and room for the file system itself


def split_model(
    order: SplitOrder,
    report: Callable[[Progress], None],
    check_cancelled: Callable[[], None],
) -> SplitResult:
    """Cut a model into shards.

    Args:
        order: What to split and how.
        report: Told of every step.
        check_cancelled: Called often; raises to stop, and nothing is left behind.

    Raises:
        ModelFileError: The model can't be read.
        UnsupportedModelError: It can't be cut there.
        UsageError: The cuts do not fit the model, or the folder exists.
        PlacementError: More stages than layers.
        StorageError: The folder can't be written.
    """
    out = Path(order.out)
    require_absent(out)
    report(Progress("analyse", 0, 1))
    core = ov.Core()
    analysis = analyse(core, Path(order.xml))
    weights = weigh(analysis)
    ranges = _ranges(order, analysis, weights)
    report(Progress("analyse", 1, 1))
    _check_space(out, weights, order)
    with _appearing_whole(out, order.scratch) as folder:
        writer = _Writer(analysis, folder, report, check_cancelled)
        shards = [writer.write_shard(layers) for layers in ranges]
        golden = writer.write_golden(ranges, weights) if order.has_golden else None
        texts = tuple(writer.copy_text(name, Path(file)) for name, file in order.text_files)
        manifest = Manifest(
            format=MANIFEST_FORMAT,
            made_by=f"daisy {engine.__version__}",
            model=description_of(order, analysis, weights),
            shards=tuple(shards),
            text_files=texts,
            golden=golden,
        )
        data = manifest.encoded()
        _write(folder / MANIFEST_NAME, data)
    return SplitResult(str(out), sha256_of(data))


def require_absent(out: Path) -> None:
    """Return if a folder can be made there.

    Args:
        out: The folder.

    Raises:
        UsageError: Something is there already.
        StorageError: The path can't be looked at; its name may be too long.
    """
    try:
        out.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return
    except (OSError, ValueError) as exc:
        reason = getattr(exc, "strerror", None) or str(exc)
        raise StorageError(f"{str(out)[:200]} can't be made: {reason}.") from exc
    shown = os.fsencode(out).decode("utf-8", "replace")  # whatever this process's locale
    raise UsageError(f"{shown} exists already.", "Choose another folder, or delete that one.")


def _ranges(order: SplitOrder, analysis: Analysis, weights: WeightBytes) -> tuple[LayerRange, ...]:
    if order.cuts is not None:
        ranges = ranges_from_cuts(order.cuts, analysis.num_layers)
    else:
        ranges = balanced_ranges(weights, order.num_stages or 1)
    check_partition(ranges, analysis.num_layers)
    return ranges


def balanced_ranges(weights: WeightBytes, num_stages: int) -> tuple[LayerRange, ...]:
    """Divide among equal PCs so that the slowest stage is as fast as can be.

    Until milliseconds are measured, a stage's time is taken to be in proportion to the weights
    it reads for a token: all of its layers', and the LM head's on the last. Looking up one row
    of the embedding costs nothing. Where that would leave a stage without layers, the layers
    are divided evenly.

    Args:
        weights: Of the model.
        num_stages: From 1 to the number of layers.

    Raises:
        PlacementError: There are more stages than layers.
    """
    even = partition_evenly(len(weights.layers), num_stages)
    times = LayerCosts(weights.layers, last_extra=weights.head)
    sizes = LayerCosts(weights.layers, weights.embedding, weights.head)
    room = NodeCapability(capacity_bytes=sum(weights.layers) + weights.embedding + weights.head)
    balanced = partition_by_time(times, sizes, [room] * num_stages)
    ranges = tuple(layers for layers in balanced if layers is not None)
    return ranges if len(ranges) == num_stages else even


def _check_space(out: Path, weights: WeightBytes, order: SplitOrder) -> None:
    needed = sum(weights.layers) + weights.embedding + weights.head + _SPARE_BYTES
    needed += sum(_size(Path(file)) for _, file in order.text_files)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(out.parent).free
    except OSError as exc:
        raise StorageError(f"{out.parent} can't be written: {exc.strerror}.") from exc
    if free < needed:
        raise StorageError(
            f"The shards need {needed} bytes and {out.parent} has {free} free: "
            f"{needed - free} too few."
        )


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError as exc:
        raise ModelFileError(f"{file.name} can't be read: {exc.strerror}.") from exc


@contextmanager
def _appearing_whole(out: Path, scratch: str | None) -> Iterator[Path]:
    """Give a folder to write in; rename it to ``out`` at the end, or leave nothing behind.

    Yields:
        The folder to write in.

    Raises:
        StorageError: It can't be made, written or renamed.
    """
    try:
        folder = Path(scratch or tempfile.mkdtemp(prefix=SCRATCH_PREFIX, dir=out.parent))
        folder.mkdir(mode=0o700, exist_ok=scratch is None)
    except OSError as exc:
        raise StorageError(f"{out.parent} can't be written: {exc.strerror}.") from exc
    try:
        yield folder
        folder.chmod(0o755)
        folder.rename(out)
    except OSError as exc:
        raise StorageError(f"The shards could not be written: {exc.strerror}.") from exc
    finally:
        if folder.exists():
            shutil.rmtree(folder, ignore_errors=True)


class _Writer:
    """Writes the files of one split, hashing each."""

    def __init__(
        self,
        analysis: Analysis,
        folder: Path,
        report: Callable[[Progress], None],
        check_cancelled: Callable[[], None],
    ) -> None:
        self._analysis = analysis
        self._folder = folder
        self._report = report
        self._check_cancelled = check_cancelled

    def write_shard(self, layers: LayerRange) -> ShardEntry:
        self._check_cancelled()
        self._report(Progress("cut", layers.start, self._analysis.num_layers))
        cut = cut_shard(self._analysis, layers)
        support = probe_paged_support(cut.model, len(layers))
        name = f"layers-{layers.start:03}-{layers.stop:03}"
        folder = self._folder / name
        folder.mkdir()
        xml = folder / "openvino_model.xml"
        try:
            ov.save_model(cut.model, str(xml), compress_to_fp16=False)
        except RuntimeError as exc:
            raise StorageError(_save_failure(exc, self._folder)) from exc
        self._report(Progress("cut", layers.stop, self._analysis.num_layers))
        return ShardEntry(
            layers=layers,
            xml=self._entry(xml),
            weights=self._entry(xml.with_suffix(".bin")),
            injected_reorders=cut.injected_reorders,
            can_be_paged=support.refusal is None,
            paged_refusal=support.refusal,
            sliding_window=support.sliding_window,
        )

    def write_golden(self, ranges: tuple[LayerRange, ...], weights: WeightBytes) -> GoldenVectors:
        token_ids = golden_token_ids(vocab_size(self._analysis))
        stops = frozenset(layers.stop for layers in ranges)
        # The head is repacked with the last layer, and may be as large as five of them.
        layer_bytes = (*weights.layers[:-1], weights.layers[-1] + weights.head)
        groups = group_layers(layer_bytes, stops)
        (self._folder / "golden").mkdir()
        self._report(Progress("golden", 0, len(layer_bytes)))
        entries: list[GoldenBoundary] = []
        run = golden_run(self._analysis, groups, token_ids, self._check_cancelled)
        for group, value in run:
            self._report(Progress("golden", group.stop, len(layer_bytes)))
            if group.stop in stops:
                file = self._write_vector(group.stop, value)
                entries.append(GoldenBoundary(group.stop, file))
        logits = entries.pop().file  # behind the last layer come the logits
        return GoldenVectors(token_ids=token_ids, boundaries=tuple(entries), logits=logits)

    def _write_vector(self, layer: int, value: NDArray[np.float32]) -> FileEntry:
        path = self._folder / "golden" / f"after-{layer:03}.f32"
        _write(path, value.astype("<f4").tobytes())
        return self._entry(path)

    def copy_text(self, name: str, source: Path) -> FileEntry:
        relative = f"text/{name}"
        if not is_plain_path(relative):
            raise ModelFileError(
                f"The file {name!r} can't be carried along: its name may have small letters, "
                "digits, dots, hyphens and underscores only.",
                "Rename it.",
            )
        target = self._folder / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            data = source.read_bytes()
        except OSError as exc:
            raise ModelFileError(f"{source.name} can't be read: {exc.strerror}.") from exc
        _write(target, data)
        return self._entry(target)

    def _entry(self, path: Path) -> FileEntry:
        digest = hashlib.sha256()
        total = path.stat().st_size
        done = 0
        with path.open("rb") as file:
            while chunk := file.read(_HASH_CHUNK_BYTES):
                self._check_cancelled()
                digest.update(chunk)
                done += len(chunk)
                self._report(Progress("hash", done, total))
            os.fsync(file.fileno())
        return FileEntry(path.relative_to(self._folder).as_posix(), total, digest.hexdigest())


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _save_failure(exc: RuntimeError, folder: Path) -> str:
    free = shutil.disk_usage(folder).free
    reason = str(exc).strip().splitlines()[-1]
    return f"A shard could not be written with {free} bytes free on the disk: {reason}"

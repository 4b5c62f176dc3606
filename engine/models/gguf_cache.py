"""Convert each GGUF once, in a process that may die, and keep the result by its SHA-256."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from engine.errors import ModelError, ModelFileError, RequestCancelledError
from engine.models.files import ModelFiles, open_folder, read_text
from engine.models.gguf_header import read_gguf_header
from engine.models.gguf_order import ConversionOrder, Converted
from engine.models.gguf_support import check_supported
from engine.models.ir_header import check_ir
from engine.models.progress import Progress, ProgressCallback, no_progress
from engine.models.shown_path import shown_path
from engine.models.storage import require_space, storage_errors, unfinished_folder, write_json
from engine.worker import run_worker_blocking

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Cancelled = Callable[[], bool]

FORMAT = 1  # of the folders written here; another number means convert again
_RECORD = "conversion.json"
_HASH_CHUNK_BYTES = 4 * 1024 * 1024
_SPARE_BYTES = 64 * 1024 * 1024


def never_cancelled() -> bool:
    """Let the job run to its end."""
    return False


def converted(
    gguf: Path,
    data_dir: Path,
    progress: ProgressCallback = no_progress,
    cancelled: Cancelled = never_cancelled,
) -> ModelFiles:
    """Convert a GGUF, or find what was converted before from the same bytes.

    Args:
        gguf: The file; left as it is.
        data_dir: Daisy's data folder; the result goes into its ``models`` folder.
        progress: Told of each step.
        cancelled: Asked at least every 0.2 s.

    Returns:
        The files of the result, named after the GGUF.

    Fails with ``ModelFileError`` if the file is damaged or the converter ended on it,
    ``UnsupportedModelError`` if it is of a kind that can't be converted, ``TokenizerError`` if its
    tokenizer can't be rebuilt, ``StorageError`` if there is too little space or no permission,
    and ``RequestCancelledError``, with nothing left behind, if ``cancelled`` said so.

    Thread: any; blocks for seconds to minutes.
    """
    check_supported(read_gguf_header(gguf))
    digest = sha256_of(gguf, progress, cancelled)
    found = find_converted(digest, data_dir)
    if found is None:
        _convert_into(_place(digest, data_dir), gguf, digest, progress, cancelled)
        found = open_folder(_place(digest, data_dir))
    return dataclasses.replace(found, name=shown_path(gguf.stem))


def find_converted(digest: str, data_dir: Path) -> ModelFiles | None:
    """Find what was converted before; None if nothing was, or it is no longer whole.

    Args:
        digest: SHA-256 of the GGUF, in hex.
        data_dir: Daisy's data folder.
    """
    place = _place(digest, data_dir)
    try:
        record = json.loads(read_text(place / _RECORD))
        sizes = {path.name: path.stat().st_size for path in place.iterdir()}
        whole = all(sizes.get(name) == size for name, size in record["files"].items())
        if not whole or record["source_sha256"] != digest:
            return None
        files = open_folder(place)
        check_ir(files.xml, files.bin)
    except (ModelError, OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
    return files


def sha256_of(
    path: Path, progress: ProgressCallback = no_progress, cancelled: Cancelled = never_cancelled
) -> str:
    """Return the SHA-256 of a file, in hex.

    Args:
        path: The file.
        progress: Told of bytes read.
        cancelled: Asked every few megabytes.

    Returns:
        64 digits.

    Raises:
        RequestCancelledError: ``cancelled`` said so.

    Fails with ``ModelFileError`` if it can't be read.
    """
    digest = hashlib.sha256()
    done = 0
    for chunk in _chunks(path):
        if cancelled():
            raise RequestCancelledError(f"Reading {shown_path(path.name)} was stopped.")
        digest.update(chunk)
        done += len(chunk)
        progress(Progress("hash", done, path.stat().st_size))
    return digest.hexdigest()


def _chunks(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            while chunk := file.read(_HASH_CHUNK_BYTES):
                yield chunk
    except OSError as exc:
        raise ModelFileError(f"{shown_path(path.name)} can't be read: {exc.strerror}.") from exc


def _place(digest: str, data_dir: Path) -> Path:
    return data_dir / "models" / f"gguf-{digest[:32]}-{FORMAT}"


def _convert_into(
    place: Path, gguf: Path, digest: str, progress: ProgressCallback, cancelled: Cancelled
) -> None:
    # The IR stores what the GGUF stores, or less: every other type becomes 4 or 8 bits or f16.
    needed_bytes = gguf.stat().st_size * 5 // 4 + _SPARE_BYTES
    require_space(place.parent, needed_bytes, f"Converting {shown_path(gguf.name)}")
    with unfinished_folder(place.parent) as folder:
        output = folder / "model"
        with storage_errors(output):
            output.mkdir()
        _run_converter(gguf, output, progress, cancelled)
        with storage_errors(place):
            files = {path.name: path.stat().st_size for path in output.iterdir() if path.is_file()}
            write_json(output / _RECORD, {"source_sha256": digest, "files": files})
            if place.exists():  # no longer whole
                place.rename(folder / "old")
            output.rename(place)
    progress(Progress("store", needed_bytes, needed_bytes))


def _run_converter(
    gguf: Path, output: Path, progress: ProgressCallback, cancelled: Cancelled
) -> None:
    # As UTF-8, whatever the locale: the worker reads it so.
    order = ConversionOrder(shown_path(gguf.absolute()), shown_path(output.absolute()))
    run_worker_blocking(
        "engine.models.gguf_conversion", order, Progress | Converted, progress, cancelled
    )

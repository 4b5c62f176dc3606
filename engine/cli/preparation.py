"""From whatever the person named to a folder of shards: open, convert, split, or find it done."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

import engine
from engine.errors import StorageError, UsageError
from engine.messages.control import SHARD_FORMAT
from engine.models.embedded import embedded_model
from engine.models.names import safe_folder_name
from engine.models.opening import open_model
from engine.models.settings import read_settings
from engine.models.shown_path import shown_path
from engine.pipeline.shard_folder import ShardFolder, open_shard_folder
from engine.splitter.manifest import MANIFEST_NAME
from engine.splitter.process import split_in_process
from engine.splitter.split import Progress as SplitProgress
from engine.splitter.split import SplitOrder, require_absent

if TYPE_CHECKING:
    from engine.cli.output import Output
    from engine.models.files import ModelFiles
    from engine.models.progress import Progress
    from engine.models.settings import ModelSettings

_STEP_NAMES = {
    "fetch": "Fetching the embedded model",
    "unpack": "Unpacking the embedded model",
    "hash": "Checking the file",
    "convert": "Converting the model",
    "tokenizer": "Building the tokenizer",
    "store": "Storing the model",
}
_PHASE_NAMES = {
    "analyse": "Reading the model",
    "cut": "Cutting",
    "golden": "Computing golden vectors",
    "hash": "Hashing",
}


class Division(msgspec.Struct, frozen=True):
    """How a model is to be divided: by cuts, or into a number of stages."""

    num_stages: int | None = None
    cuts: tuple[int, ...] | None = None
    is_asked: bool = True  # False: the number is the command's own


async def open_source(source: str | None, data_dir: Path, output: Output) -> ModelFiles:
    """Open the model a person named, converting it if need be.

    Args:
        source: A path; None for the embedded model.
        data_dir: Daisy's data folder.
        output: Told of every step.

    Raises:
        ModelError: There is none, or it can't be used.
        StorageError: No space or no permission to convert it.

    Cancellation: stops a download or a conversion; nothing half-done is left.
    """  # noqa: DOC501 - cancellation is passed on
    loop = asyncio.get_running_loop()
    cancelled = threading.Event()

    def report(progress: Progress) -> None:
        name = _STEP_NAMES[progress.step]
        loop.call_soon_threadsafe(output.progress, name, progress.done, progress.total, "bytes")

    def work() -> ModelFiles:
        if source is None:
            return embedded_model(data_dir, report, cancelled.is_set)
        return open_model(Path(source), data_dir, report, cancelled.is_set)

    thread = loop.run_in_executor(None, work)
    try:
        return await asyncio.shield(thread)
    except asyncio.CancelledError:
        cancelled.set()
        await asyncio.wait([thread])
        raise


async def split_source(
    source: str | None, division: Division, out: Path, data_dir: Path, output: Output
) -> ShardFolder:
    """Split a model into a folder that does not exist yet.

    Args:
        source: A path; None for the embedded model.
        division: How to divide it.
        out: The folder to make.
        data_dir: Daisy's data folder.
        output: Told of every step.

    Raises:
        UsageError: The folder exists, or the source is divided already.

    Fails as ``open_source`` and ``split_model`` do.
    """
    if source is not None and await _holds_shards(source):
        raise UsageError(
            f"{shown_path(source)} holds shards already.", "Use them: daisy ask --model FOLDER."
        )
    await asyncio.to_thread(require_absent, out)
    files = await open_source(source, data_dir, output)
    return await _split(files, division, out, output)


async def shards_for(
    source: str | None, division: Division, data_dir: Path, output: Output
) -> ShardFolder:
    """Return the shards of a model, made now or found as they were made before.

    Args:
        source: A model's path, a folder of shards, or None for the embedded model.
        division: How to divide it; not looked at where the source is divided already.
        data_dir: Daisy's data folder; shards are kept in it.
        output: Told of every step.

    Raises:
        DaisyError: As ``open_source`` and ``split_model`` do.
    """  # noqa: DOC501 - passed on
    if source is not None and await _holds_shards(source):
        if division.is_asked:
            raise UsageError(
                f"{shown_path(source)} is divided already.",
                "Leave --stages and --cuts out, or name the model itself.",
            )
        return open_shard_folder(Path(source))
    files = await open_source(source, data_dir, output)
    out = data_dir / "shards" / f"{safe_folder_name(files.name)}-{_key(files, division)}"
    if await asyncio.to_thread((out / MANIFEST_NAME).is_file):
        return open_shard_folder(out)
    try:
        return await _split(files, division, out, output)
    except (StorageError, UsageError):
        if await asyncio.to_thread((out / MANIFEST_NAME).is_file):
            return open_shard_folder(out)  # another Daisy was quicker
        raise


async def _holds_shards(source: str) -> bool:
    return await asyncio.to_thread((Path(source) / MANIFEST_NAME).is_file)


async def _split(files: ModelFiles, division: Division, out: Path, output: Output) -> ShardFolder:
    for note in files.notes:
        output.say(f"Note: {note}")
    settings = await asyncio.to_thread(read_settings, files)
    order = _order(files, settings, division, out)

    def report(progress: SplitProgress) -> None:
        unit = "bytes" if progress.phase == "hash" else "layers"
        output.progress(_PHASE_NAMES[progress.phase], progress.done, progress.total, unit)

    await split_in_process(order, report)
    return open_shard_folder(out)


def _order(files: ModelFiles, settings: ModelSettings, division: Division, out: Path) -> SplitOrder:
    return SplitOrder(
        xml=shown_path(files.xml.absolute()),
        out=shown_path(out.absolute()),
        name=files.name,
        architecture=settings.model_type,
        context_length=settings.context_length,
        eos_token_ids=settings.eos_token_ids,
        text_files=tuple((name, shown_path(path.absolute())) for name, path in files.text_files),
        cuts=division.cuts,
        num_stages=division.num_stages,
    )


def _key(files: ModelFiles, division: Division) -> str:
    """Name a division of a model: another file, cut or version gives another name."""
    paths = [files.xml, files.bin, *(path for _, path in files.text_files)]
    facts = [
        [shown_path(path.absolute()), stat.st_size, stat.st_mtime_ns]
        for path in paths
        for stat in [path.stat()]
    ]
    told = msgspec.json.encode([
        facts,
        division.num_stages,
        division.cuts,
        SHARD_FORMAT,
        engine.__version__,
    ])
    return hashlib.sha256(told).hexdigest()[:16]

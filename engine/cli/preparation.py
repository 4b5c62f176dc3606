"""A folder of shards of whatever the person named, made or found, and every step said."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

import engine
from engine import preparation
from engine.cli.arguments import refuse_pattern
from engine.errors import PlacementError, StorageError, UsageError
from engine.messages.control import SHARD_FORMAT
from engine.models.names import safe_folder_name
from engine.models.shown_path import shown_path
from engine.pipeline.shard_folder import ShardFolder, open_shard_folder
from engine.preparation import holds_shards, split_order
from engine.splitter.manifest import MANIFEST_NAME
from engine.splitter.process import split_in_process
from engine.splitter.split import require_absent

if TYPE_CHECKING:
    from engine.cli.output import Output
    from engine.models.files import ModelFiles
    from engine.models.progress import Progress
    from engine.splitter.orders import Progress as SplitProgress

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
    """Open the model a person named, and say each step.

    Args:
        source: A path; None for the embedded model.
        data_dir: Daisy's data folder.
        output: Told of every step.

    Fails and is cancelled as ``engine.preparation.open_source`` does and is.
    """

    def say(progress: Progress) -> None:
        output.progress(_STEP_NAMES[progress.step], progress.done, progress.total, "bytes")

    return await preparation.open_source(source, data_dir, say)


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
    await asyncio.to_thread(refuse_pattern, source)
    if source is not None and await holds_shards(source):
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
    await asyncio.to_thread(refuse_pattern, source)
    if source is not None and await holds_shards(source):
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


async def _split(files: ModelFiles, division: Division, out: Path, output: Output) -> ShardFolder:
    for note in files.notes:
        output.say(f"Note: {note}")
    order = await asyncio.to_thread(split_order, files, out, division.cuts, division.num_stages)

    def report(progress: SplitProgress) -> None:
        unit = "bytes" if progress.phase == "hash" else "layers"
        output.progress(_PHASE_NAMES[progress.phase], progress.done, progress.total, unit)

    try:
        await split_in_process(order, report)
    except PlacementError as exc:
        if not division.is_asked:
            raise
        # More stages than layers: the option is wrong, as a cut beyond the model is.
        raise UsageError(exc.what, exc.advice) from exc
    return open_shard_folder(out)


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

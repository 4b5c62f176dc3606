"""From whatever a person named to a model's files, opened and converted; for a command and a node.

No OpenVINO is loaded here: conversions, descriptions and splits run in processes of their own.
"""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import ModelFileError
from engine.models.embedded import embedded_model
from engine.models.opening import open_model
from engine.models.progress import no_progress
from engine.models.settings import read_settings
from engine.models.shown_path import shown_path
from engine.splitter.manifest import MANIFEST_NAME
from engine.splitter.orders import DescribeOrder, SplitOrder

if TYPE_CHECKING:
    from engine.models.files import ModelFiles
    from engine.models.progress import Progress, ProgressCallback


async def open_source(
    source: str | None, data_dir: Path, progress: ProgressCallback = no_progress
) -> ModelFiles:
    """Open the model a person named, converting it if need be.

    Args:
        source: A path; None for the embedded model.
        data_dir: Daisy's data folder.
        progress: Told of every step, on this loop.

    Returns:
        Its files; its IR is whole, stateful, and a language model's.

    Raises:
        ModelFileError: The path, or what it leads to, can't be looked at.
        ModelError: There is no model, or it can't be used.
        StorageError: No space or no permission to convert it.

    Cancellation: stops a download or a conversion; nothing half-done is left.
    """  # noqa: DOC501 - cancellation is passed on
    loop = asyncio.get_running_loop()
    cancelled = threading.Event()

    def report(step: Progress) -> None:
        loop.call_soon_threadsafe(progress, step)

    def work() -> ModelFiles:
        if source is None:
            return embedded_model(data_dir, report, cancelled.is_set)
        try:
            return open_model(Path(source), data_dir, report, cancelled.is_set)
        except OSError as exc:
            shown = shown_path(source)[:200]
            raise ModelFileError(
                f"{shown} can't be read: {exc.strerror}.",
                "Check the path and the permissions of the folders that lead to it.",
            ) from exc

    thread = loop.run_in_executor(None, work)
    try:
        return await asyncio.shield(thread)
    except asyncio.CancelledError:
        cancelled.set()
        await asyncio.gather(thread, return_exceptions=True)  # that it stopped is no news
        raise


async def holds_shards(source: str) -> bool:
    """Return whether a path leads to a model that is divided already.

    Args:
        source: As a person named it.
    """

    def look() -> bool:
        try:
            return (Path(source) / MANIFEST_NAME).is_file()
        except OSError:  # said when it is opened
            return False

    return await asyncio.to_thread(look)


def describe_order(files: ModelFiles) -> DescribeOrder:
    """Return the order to describe a model.

    Args:
        files: Opened; settings, tokenizer and template are read.

    Fails with ``ModelError`` if one of them is damaged.

    Thread: any but the loop's.
    """
    settings = read_settings(files)
    return DescribeOrder(
        xml=shown_path(files.xml.absolute()),
        name=files.name,
        architecture=settings.model_type,
        context_length=settings.context_length,
        eos_token_ids=settings.eos_token_ids,
    )


def split_order(
    files: ModelFiles,
    out: Path,
    cuts: tuple[int, ...] | None = None,
    num_stages: int | None = None,
) -> SplitOrder:
    """Return the order to split a model.

    Args:
        files: Opened; settings, tokenizer and template are read.
        out: The folder to make.
        cuts: Layers before which to cut; None to divide evenly.
        num_stages: Shards wanted, where no cuts are given.

    Fails with ``ModelError`` if a file that is read is damaged.

    Thread: any but the loop's.
    """
    known = describe_order(files)
    return SplitOrder(
        xml=known.xml,
        name=known.name,
        architecture=known.architecture,
        context_length=known.context_length,
        eos_token_ids=known.eos_token_ids,
        out=shown_path(out.absolute()),
        text_files=tuple((name, shown_path(path.absolute())) for name, path in files.text_files),
        cuts=cuts,
        num_stages=num_stages,
    )

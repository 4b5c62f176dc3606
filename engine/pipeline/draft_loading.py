"""From a draft model's folder to a draft model that runs, or the reason why it can't help."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from engine.config import RESOURCES, STAGE_LOAD_DEADLINE_S
from engine.domain import LayerRange
from engine.errors import ModelFileError, ModelNotFoundError, OtherVocabularyError
from engine.messages.stage_control import LoadShard
from engine.models.files import open_folder
from engine.models.shown_path import shown_path
from engine.models.tokenizer import load_tokenizer
from engine.models.vocabulary import (
    VocabularyStamp,
    check_same_size,
    check_same_tokens,
    check_stamp,
    read_stamp,
)
from engine.pipeline.draft_model import DraftModel
from engine.preparation import describe_order
from engine.splitter.process import describe_in_process
from engine.stages.host import StageProcess

if TYPE_CHECKING:
    from pathlib import Path

    from engine.messages.chain import Placement
    from engine.models.files import ModelFiles
    from engine.models.tokenizer import Tokenizer

DRAFTS = RESOURCES / "drafts"
_DRAFT_ROOM_TOKENS = 64  # guesses in flight, beside what a sequence has


@dataclass(frozen=True, slots=True)
class DraftTarget:
    """The model that is guessed for.

    Attributes:
        tokenizer: Its own.
        vocab_size: Of its logits.
    """

    tokenizer: Tokenizer
    vocab_size: int


class _Shape(NamedTuple):
    """Of a draft model."""

    num_layers: int
    hidden_size: int
    vocab_size: int


async def load_draft_model(
    folder: Path,
    target: DraftTarget,
    placement: Placement,
    cpus: tuple[int, ...] | None = None,
) -> DraftModel:
    """Load a draft model beside the first stage of a placement.

    Args:
        folder: Holds its IR, and its tokenizer or a ``vocabulary.json``.
        target: What it is to guess for.
        placement: Says the device, and how many tokens of how many sequences there may be.
        cpus: Processors it may use, the first stage's; None for all.

    Returns:
        The draft model; whoever asked for it ends it.

    Raises:
        OtherVocabularyError: Its tokens are not the target's, or it does not say what they are.

    Fails with ``ModelError`` if it isn't whole or no language model, with ``StageError`` if it
    can't be loaded.

    Cancellation: ends the process.
    """
    files = await asyncio.to_thread(_opened, folder)
    shape = await _shape(files)
    check_same_size(target.vocab_size, shape.vocab_size)
    await asyncio.to_thread(_check_tokens, files, target)
    process = StageProcess(cpus=cpus)
    try:
        await process.load(_order(files, shape, placement), STAGE_LOAD_DEADLINE_S)
    except BaseException:
        await asyncio.shield(process.close())
        raise
    return DraftModel(process, files.name)


def find_draft(target: DraftTarget) -> Path | None:
    """Return the folder of the draft model that comes with Daisy for a target; None for none.

    Args:
        target: Compared with what each draft model says of its vocabulary.

    Thread: any but the loop's; takes some tens of milliseconds.
    """
    try:
        folders = sorted(DRAFTS.iterdir())
    except OSError:  # an installation without any
        return None
    for folder in folders:
        try:
            check_stamp(target.tokenizer, _stamp(folder))
        except (ModelFileError, OtherVocabularyError):
            continue
        return folder
    return None


def _opened(folder: Path) -> ModelFiles:
    try:
        return open_folder(folder)
    except OSError as exc:
        raise ModelNotFoundError(
            f"{shown_path(folder)} can't be read: {exc.strerror}.", "Check the path."
        ) from exc


async def _shape(files: ModelFiles) -> _Shape:
    """Read what the folder says of the model, or else look at its graph."""
    stamp = await asyncio.to_thread(read_stamp, files.folder)
    if stamp is not None and not _has_tokenizer(files):
        return _Shape(stamp.num_layers, stamp.hidden_size, stamp.vocab_size)
    order = await asyncio.to_thread(describe_order, files)
    model = (await describe_in_process(order, lambda _: None)).model
    return _Shape(model.num_layers, model.hidden_size, model.vocab_size)


def _has_tokenizer(files: ModelFiles) -> bool:
    return files.tokenizer_json is not None or files.openvino_tokenizer is not None


def _check_tokens(files: ModelFiles, target: DraftTarget) -> None:
    if _has_tokenizer(files):
        check_same_tokens(target.tokenizer, load_tokenizer(files))
    else:
        check_stamp(target.tokenizer, _stamp(files.folder))


def _stamp(folder: Path) -> VocabularyStamp:
    stamp = read_stamp(folder)
    if stamp is None:
        raise OtherVocabularyError(
            f"{shown_path(folder)} does not say which tokens it knows.",
            "Put the tokenizer.json of its model into the folder.",
        )
    return stamp


def _order(files: ModelFiles, shape: _Shape, placement: Placement) -> LoadShard:
    """Return the order to load the whole model as one stage.

    It need not be exact for the answer to be: f32 arithmetic with everything else as the device
    likes it is the fastest for a small model on a CPU.
    """
    device = placement.stages[0].device
    tokens = placement.context_tokens + _DRAFT_ROOM_TOKENS
    return LoadShard(
        xml_path=str(files.xml),
        layers=LayerRange(0, shape.num_layers),
        is_first=True,
        is_last=True,
        hidden_size=shape.hidden_size,
        vocab_size=shape.vocab_size,
        device="CPU" if device.startswith("NPU") else device,  # an NPU runs one shape at a time
        kind="stateful",
        mode="fast",
        num_threads=1,
        max_tokens=tokens * placement.max_sequences,
        sliding_window=None,
        cache_dir=None,
        golden=None,
        max_sequences=placement.max_sequences,
        precision="f32" if device.startswith("CPU") else None,
    )

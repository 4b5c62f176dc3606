"""Open a model, whatever was pointed at: a folder with an IR, its XML, or a GGUF."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from engine.errors import ModelNotFoundError
from engine.models.files import IR_XML, ModelFiles, open_folder
from engine.models.gguf_cache import Cancelled, converted, never_cancelled
from engine.models.ir_header import check_ir, check_language_model
from engine.models.progress import ProgressCallback, no_progress
from engine.models.shown_path import shown_path

if TYPE_CHECKING:
    from pathlib import Path


def open_model(
    source: Path,
    data_dir: Path,
    progress: ProgressCallback = no_progress,
    cancelled: Cancelled = never_cancelled,
) -> ModelFiles:
    """Open a model and check it, before OpenVINO sees any of it.

    Args:
        source: A folder with openvino_model.xml, that file itself, a .gguf file, or a folder with
            exactly one of those. Only read, so it may be read-only or full of links.
        data_dir: Daisy's data folder, where a GGUF is converted to.
        progress: Told of each step of a conversion.
        cancelled: Asked during a conversion.

    Returns:
        The model's files. The IR is whole, stateful, and a language model's.

    Raises:
        ModelNotFoundError: There is no model.

    Fails with ``ModelFileError`` if a file is missing, cut short or contradicts another, with
    ``UnsupportedModelError`` if the model is of another kind, and as ``converted`` does for GGUFs.
    """
    gguf = _gguf(source)
    if gguf is not None:
        return converted(gguf, data_dir, progress, cancelled)
    if source.is_file() and source.name != IR_XML:
        raise ModelNotFoundError(f"{shown_path(source)} is neither an {IR_XML} nor a .gguf file.")
    files = open_folder(source)
    header = check_ir(files.xml, files.bin)
    check_language_model(header, files.name)
    return dataclasses.replace(files, notes=header.notes)


def _gguf(source: Path) -> Path | None:
    if source.suffix.lower() == ".gguf" and not source.is_dir():
        return source
    if not source.is_dir() or (source / IR_XML).is_symlink() or (source / IR_XML).exists():
        return None
    found = sorted(path for path in source.iterdir() if path.suffix.lower() == ".gguf")
    if len(found) > 1:
        names = ", ".join(shown_path(path.name) for path in found[:4])
        raise ModelNotFoundError(
            f"{shown_path(source)} holds {len(found)} GGUF files ({names}); which one is meant?",
            "Give the path of the file instead of the folder.",
        )
    return found[0] if found else None

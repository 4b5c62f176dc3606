"""Convert a GGUF into a folder with an OpenVINO IR, tokenizer and template.

Runs in a worker process, because the reader inside openvino_genai can end the process on a damaged
file: ``python -m engine.models.gguf_conversion``.
"""

from __future__ import annotations

import shutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import openvino_genai

from engine.errors import ModelFileError
from engine.models.files import IR_BIN, IR_XML
from engine.models.gguf_header import read_gguf_header
from engine.models.gguf_order import ConversionOrder, Converted
from engine.models.gguf_settings import (
    chat_templates_from,
    config_from,
    generation_config_from,
    tokenizer_config_from,
)
from engine.models.gguf_support import check_supported
from engine.models.gguf_tokenizer import build_tokenizer
from engine.models.ir_header import check_ir, check_language_model
from engine.models.progress import Progress, ProgressCallback
from engine.models.shown_path import shown_path
from engine.models.storage import flush_to_disk, storage_errors, write_json
from engine.worker import serve_order

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.models.gguf_header import GgufHeader

_LINK = "source.gguf"


def convert(gguf: Path, folder: Path, progress: ProgressCallback) -> None:
    """Fill a folder with everything a model needs, from a GGUF alone.

    Args:
        gguf: The file; left as it is.
        folder: An empty folder.
        progress: Told of each step.

    Fails with ``ModelFileError`` if the file is damaged or no whole IR came of it,
    ``UnsupportedModelError`` if it is of a kind that can't be converted, ``TokenizerError`` if its
    tokenizer can't be rebuilt, and ``StorageError`` if the folder can't be written.

    Thread: any; not to be cancelled but by ending the process.
    """
    header = read_gguf_header(gguf)
    check_supported(header)
    progress(Progress("tokenizer", 0))
    _write_settings(header, folder)
    progress(Progress("convert", 0, header.file_bytes))
    _write_ir(gguf, folder)
    progress(Progress("convert", header.file_bytes, header.file_bytes))
    with storage_errors(folder):
        flush_to_disk(folder)


def _write_settings(header: GgufHeader, folder: Path) -> None:
    tokenizer = build_tokenizer(header)
    with storage_errors(folder):
        text = tokenizer.to_str(pretty=False)
        (folder / "tokenizer.json").write_text(text, encoding="utf-8", newline="\n")
        write_json(folder / "tokenizer_config.json", tokenizer_config_from(header))
        write_json(folder / "config.json", config_from(header))
        write_json(folder / "generation_config.json", generation_config_from(header))
        for name, template in chat_templates_from(header).items():
            path = folder / "chat_template.jinja"
            if name != "default":
                path = folder / "additional_chat_templates" / f"{name}.jinja"
                path.parent.mkdir(exist_ok=True)
            path.write_text(template, encoding="utf-8", newline="\n")


def _write_ir(gguf: Path, folder: Path) -> None:
    # openvino_genai writes the IR beside the file it is given: a link of ours.
    link = folder / _LINK
    with storage_errors(folder):
        _link_or_copy(gguf.absolute(), link)
    failure: Exception | None = None
    try:
        openvino_genai.LLMPipeline(link, "CPU", enable_save_ov_model=True)
    except Exception as exc:  # noqa: BLE001 - the IR is written before the model is compiled
        failure = exc
    with storage_errors(folder):
        link.unlink()
    try:
        check_language_model(check_ir(folder / IR_XML, folder / IR_BIN), shown_path(gguf.name))
    except ModelFileError as exc:
        reason = " ".join(str(failure).split())[:300] if failure else str(exc)
        raise ModelFileError(f"{shown_path(gguf.name)} could not be converted: {reason}") from exc


def _link_or_copy(source: Path, link: Path) -> None:
    for make_link in (link.symlink_to, link.hardlink_to):
        with suppress(OSError):  # Windows without developer mode; another volume
            make_link(source)
            return
    shutil.copyfile(source, link)


def _work(
    order: ConversionOrder, report: ProgressCallback, _check_cancelled: Callable[[], None]
) -> Converted:
    convert(Path(order.gguf), Path(order.folder), report)
    return Converted()


if __name__ == "__main__":
    sys.exit(serve_order(ConversionOrder, _work))

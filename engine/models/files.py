"""Find the files of a model: what is there, what is missing, and why."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from engine.errors import ModelFileError, ModelNotFoundError, UnsupportedModelError
from engine.models.shown_path import shown_path

if TYPE_CHECKING:
    from pathlib import Path

IR_XML = "openvino_model.xml"
IR_BIN = "openvino_model.bin"
MAX_TEXT_BYTES = 64 * 1024 * 1024  # of a JSON or template file; tokenizer.json reaches 40 MB

_HUB_FOLDER = re.compile(r"models--(?P<name>.+)")
_EXPORT_ADVICE = (
    "Export it with `optimum-cli export openvino --task text-generation-with-past`, "
    "or choose a folder with openvino_model.xml."
)


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """Where the files of one model are.

    Paths are those beside ``xml`` as it was given: in a hub cache that is a link, and the other
    files are beside the link, not beside the blob it leads to. Optional files are None where
    there are none.
    """

    name: str  # as shown; not fit for a path
    folder: Path
    xml: Path
    bin: Path
    config: Path | None
    generation_config: Path | None
    tokenizer_json: Path | None
    tokenizer_config: Path | None
    special_tokens_map: Path | None
    openvino_tokenizer: Path | None
    openvino_detokenizer: Path | None
    chat_template: Path | None
    additional_chat_templates: tuple[tuple[str, Path], ...]  # (name, file), sorted by name
    notes: tuple[str, ...] = ()  # what is odd and does no harm, one sentence each

    @property
    def text_files(self) -> tuple[tuple[str, Path], ...]:
        """Everything but the IR, as ``(name below the folder, file)``: what a head needs."""
        single = (
            self.config,
            self.generation_config,
            self.tokenizer_json,
            self.tokenizer_config,
            self.special_tokens_map,
            self.openvino_tokenizer,
            self.openvino_detokenizer,
            self.chat_template,
        )
        graphs = (self.openvino_tokenizer, self.openvino_detokenizer)
        weights = (xml.with_suffix(".bin") for xml in graphs if xml is not None)
        templates = self.additional_chat_templates
        return (
            *((path.name, path) for path in single if path is not None),
            *((path.name, path) for path in weights),
            *((f"additional_chat_templates/{name}.jinja", path) for name, path in templates),
        )


def open_folder(folder: Path) -> ModelFiles:
    """Find the files of a folder with an OpenVINO IR; reads none of them.

    Args:
        folder: The folder, or the openvino_model.xml in it. Read only; may hold links.

    Returns:
        The files, with IR and weights present and readable.

    Raises:
        ModelNotFoundError: There is no such folder, or no IR in it.

    Fails with ``ModelFileError`` if a file is missing, can't be read, or is a link that leads
    nowhere, and with ``UnsupportedModelError`` if the folder holds a model of another kind.
    """
    if folder.name == IR_XML and not folder.is_dir():
        folder = folder.parent
    if not folder.is_dir():
        raise ModelNotFoundError(f"There is no folder {shown_path(folder)}.")
    xml = folder / IR_XML
    if not _is_there(xml):
        _raise_no_ir(folder)
    require_readable(xml)
    require_readable(folder / IR_BIN)
    return _files_in(folder, shown_name(folder))


def open_text_folder(folder: Path, name: str) -> ModelFiles:
    """Find what belongs to the text side of a model, in a folder that need not hold its IR.

    Args:
        folder: Holds tokenizer, template and settings, named as in a model's folder.
        name: The model's, as shown.

    Fails with ``ModelFileError`` if a file can't be read.
    """
    return _files_in(folder, name)


def _files_in(folder: Path, name: str) -> ModelFiles:
    return ModelFiles(
        name=name,
        folder=folder,
        xml=folder / IR_XML,
        bin=folder / IR_BIN,
        config=_optional(folder / "config.json"),
        generation_config=_optional(folder / "generation_config.json"),
        tokenizer_json=_optional(folder / "tokenizer.json"),
        tokenizer_config=_optional(folder / "tokenizer_config.json"),
        special_tokens_map=_optional(folder / "special_tokens_map.json"),
        openvino_tokenizer=_optional(folder / "openvino_tokenizer.xml"),
        openvino_detokenizer=_optional(folder / "openvino_detokenizer.xml"),
        chat_template=_optional(folder / "chat_template.jinja"),
        additional_chat_templates=_additional_templates(folder / "additional_chat_templates"),
    )


def shown_name(folder: Path) -> str:
    """Return the name a model in this folder is shown by.

    Args:
        folder: ``.../models--org--name/snapshots/revision`` in a hub cache gives ``org/name``;
            any other folder its own name.
    """
    if folder.parent.name == "snapshots":
        match = _HUB_FOLDER.fullmatch(folder.parent.parent.name)
        if match:
            return match["name"].replace("--", "/")
    name = folder.name or folder.absolute().name
    return shown_path(name) if name else "model"


def require_readable(path: Path) -> int:
    """Return the size of a file in bytes, after seeing that it can be opened.

    Args:
        path: The file, or a link to it.

    Returns:
        Its size in bytes.

    Raises:
        ModelFileError: It is missing, a link that leads nowhere, no file, or can't be opened.
    """
    name = shown_path(path.name)
    where = f"the model folder {shown_path(path.parent)}"
    try:
        if path.is_symlink() and not path.exists():
            target = shown_path(path.readlink())
            raise ModelFileError(f"{name} is missing (link to {target}) from {where}.")
        if not path.exists():
            raise ModelFileError(f"{name} is missing from {where}.")
        if not path.is_file():
            raise ModelFileError(f"{name} in {where} is not a file.")
        with path.open("rb"):
            return path.stat().st_size
    except OSError as exc:
        raise ModelFileError(
            f"{name} in {where} can't be read: {exc.strerror}.",
            "Check the permissions of the folder and its files.",
        ) from exc


def read_text(path: Path) -> str:
    """Read a text file of a model; always UTF-8, whatever the locale.

    Args:
        path: The file.

    Returns:
        Its text, without a byte order mark, with line ends as they are in the file.

    Raises:
        ModelFileError: It can't be read, isn't UTF-8, or is absurdly large.
    """
    name = shown_path(path.name)
    size = require_readable(path)
    if size > MAX_TEXT_BYTES:
        raise ModelFileError(
            f"{name} is {size} bytes long; more than {MAX_TEXT_BYTES} can't be right."
        )
    try:
        return path.read_bytes().decode("utf-8-sig")
    except OSError as exc:
        raise ModelFileError(f"{name} can't be read: {exc.strerror}.") from exc
    except UnicodeDecodeError as exc:
        raise ModelFileError(
            f"{name} is not UTF-8 text: byte {exc.start} can't be decoded."
        ) from exc


def _is_there(path: Path) -> bool:
    return path.is_symlink() or path.exists()


def _optional(path: Path) -> Path | None:
    """Return the path if there is something; a link that leads nowhere is an error, not nothing."""
    if not _is_there(path):
        return None
    require_readable(path)
    return path


def _additional_templates(folder: Path) -> tuple[tuple[str, Path], ...]:
    if not folder.is_dir():
        return ()
    found = sorted(path for path in folder.iterdir() if path.suffix == ".jinja")
    for path in found:
        require_readable(path)
    return tuple((path.stem, path) for path in found)


def _raise_no_ir(folder: Path) -> NoReturn:
    # Say what is there instead, as far as the file names tell.
    where = shown_path(folder)
    try:
        names = sorted(path.name for path in folder.iterdir())
    except OSError as exc:
        raise ModelFileError(f"The folder {where} can't be read: {exc.strerror}.") from exc
    if IR_BIN in names:
        raise ModelFileError(f"{IR_XML} is missing from the model folder {where}.")
    if "openvino_language_model.xml" in names:
        raise UnsupportedModelError(
            f"{where} holds a model in several parts (images or sound and language)."
        )
    for suffix in (".safetensors", ".bin", ".pt", ".pth", ".onnx"):
        first = next((name for name in names if name.endswith(suffix)), None)
        if first is not None:
            raise UnsupportedModelError(
                f"{where} holds {first} but no {IR_XML}: it is not an OpenVINO model.",
                _EXPORT_ADVICE,
            )
    raise ModelNotFoundError(f"There is no {IR_XML} in {where}.")

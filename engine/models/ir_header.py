"""Check an OpenVINO IR before OpenVINO sees it.

OpenVINO's own words for a file that was cut short speak of neither file nor size, and one that is
too long it reads without complaint. The XML is read as a stream: memory doesn't grow with it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from xml.parsers import expat

from engine.errors import ModelFileError, UnsupportedModelError
from engine.models.files import require_readable
from engine.models.shown_path import shown_path

if TYPE_CHECKING:
    from pathlib import Path

MAX_XML_BYTES = 256 * 1024 * 1024  # a model of 80 layers has about 10 MB
MAX_DEPTH = 64
_CHUNK_BYTES = 256 * 1024
_LARGEST_FILE = 2**63 - 1
_CUT_SHORT = frozenset(
    expat.errors.codes[message]
    for message in (
        expat.errors.XML_ERROR_NO_ELEMENTS,
        expat.errors.XML_ERROR_UNCLOSED_TOKEN,
        expat.errors.XML_ERROR_PARTIAL_CHAR,
    )
)
_STATELESS_ADVICE = (
    "Export it again as a stateful model: "
    "`optimum-cli export openvino --task text-generation-with-past` without --disable-stateful."
)


@dataclass(frozen=True, slots=True)
class IrHeader:
    """What the XML says about the model as a whole.

    Attributes:
        xml_bytes: Size of the XML.
        bin_bytes: Size of the weights file.
        needed_bytes: Largest offset + size of any constant; at most ``bin_bytes``.
        inputs: Tensor names of the parameters.
        outputs: Tensor names of the results.
        num_states: Distinct variables that are read.
        notes: What is odd and does no harm, one sentence each.
    """

    xml_bytes: int
    bin_bytes: int
    needed_bytes: int
    inputs: frozenset[str]
    outputs: frozenset[str]
    num_states: int
    notes: tuple[str, ...]


def check_ir(xml: Path, weights: Path) -> IrHeader:
    """Check that an IR is whole: the XML parses and the weights file holds every constant.

    Args:
        xml: The XML, or a link to it.
        weights: The weights file, or a link to it.

    Returns:
        What the XML says.

    Raises:
        ModelFileError: A file is missing, cut short, or no IR. The sentence names the file, its
            size and, for the weights, the size the XML needs.
    """
    xml_bytes = require_readable(xml)
    if xml_bytes > MAX_XML_BYTES:
        raise ModelFileError(
            f"{xml.name} is {xml_bytes} bytes long; more than {MAX_XML_BYTES} can't be right."
        )
    contents = _read_contents(xml, xml_bytes)
    bin_bytes = require_readable(weights)
    if bin_bytes < contents.needed_bytes:
        raise ModelFileError(
            f"{weights.name} in {shown_path(weights.parent)} is {bin_bytes} bytes long, and "
            f"{xml.name} needs {contents.needed_bytes}: "
            f"{contents.needed_bytes - bin_bytes} are missing."
        )
    notes: tuple[str, ...] = ()
    if bin_bytes > contents.needed_bytes:
        notes = (
            f"{weights.name} is {bin_bytes} bytes long, and {xml.name} needs only "
            f"{contents.needed_bytes}: {bin_bytes - contents.needed_bytes} are too many.",
        )
    return IrHeader(
        xml_bytes=xml_bytes,
        bin_bytes=bin_bytes,
        needed_bytes=contents.needed_bytes,
        inputs=frozenset(contents.inputs),
        outputs=frozenset(contents.outputs),
        num_states=len(contents.read_variables),
        notes=notes,
    )


def check_language_model(header: IrHeader, name: str) -> None:
    """Check that an IR is a stateful language model.

    Args:
        header: From ``check_ir``.
        name: The model's name, for the sentence.

    Raises:
        UnsupportedModelError: It is none, or keeps its KV cache outside.
    """
    past = sorted(tensor for tensor in header.inputs if tensor.startswith("past_key_values"))
    if past:
        raise UnsupportedModelError(
            f"{name} is a stateless model: it takes its KV cache as inputs ({past[0]}, ...).",
            _STATELESS_ADVICE,
        )
    if not header.inputs & {"input_ids", "inputs_embeds"}:
        raise UnsupportedModelError(
            f"{name} is not a language model: it has no input named input_ids."
        )
    if "logits" not in header.outputs:
        raise UnsupportedModelError(
            f"{name} is not a language model that writes text: it has no output named logits."
        )
    if header.num_states == 0:
        raise UnsupportedModelError(
            f"{name} keeps no state: it was exported without a KV cache.", _STATELESS_ADVICE
        )


@dataclass(slots=True)
class _Contents:
    """What is gathered while the XML streams by."""

    xml_name: str
    xml_bytes: int
    needed_bytes: int = 0
    inputs: set[str] = field(default_factory=set)
    outputs: set[str] = field(default_factory=set)
    has_logits_port: bool = False
    read_variables: set[str] = field(default_factory=set)
    assigned_variables: set[str] = field(default_factory=set)
    # The elements that are open, and the layers among them with their names.
    open_elements: list[str] = field(default_factory=list)
    open_layers: list[tuple[str, str]] = field(default_factory=list)

    def doctype(self, name: str, *_rest: object) -> None:
        # An IR has none, and one could define entities that grow without bound.
        kind = "is an HTML page" if name.lower() == "html" else "has a document type"
        raise ModelFileError(
            f"{self.xml_name} ({self.xml_bytes} bytes) {kind}, not an OpenVINO IR."
        )

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if not self.open_elements and tag != "net":
            raise ModelFileError(
                f"{self.xml_name} ({self.xml_bytes} bytes) is not an OpenVINO IR: "
                f"it begins with <{tag[:40]}>, not <net>."
            )
        if len(self.open_elements) >= MAX_DEPTH:
            raise ModelFileError(f"{self.xml_name} nests more than {MAX_DEPTH} elements.")
        self.open_elements.append(tag)
        if tag == "layer":
            self._start_layer(attributes)
        elif self.open_layers:
            self._start_inside_layer(tag, attributes)

    def end(self, tag: str) -> None:
        self.open_elements.pop()
        if tag == "layer":
            self.open_layers.pop()

    def _start_layer(self, attributes: dict[str, str]) -> None:
        kind, name = attributes.get("type", ""), attributes.get("name", "")
        self.open_layers.append((kind, name))
        if len(self.open_layers) > 1:
            return  # the body of an If or a loop: its inputs aren't the model's
        if kind == "Parameter":
            self.inputs.add(name)
        elif kind == "Result":
            self.outputs.update(_names(attributes.get("output_names", "")))

    def _start_inside_layer(self, tag: str, attributes: dict[str, str]) -> None:
        kind, name = self.open_layers[-1]
        if tag == "data":
            if kind == "Const":
                self._constant(name, attributes)
            elif kind in {"ReadValue", "Assign"}:
                used = self.read_variables if kind == "ReadValue" else self.assigned_variables
                used.add(attributes.get("variable_id", ""))
        elif tag == "port" and len(self.open_layers) == 1:
            names = _names(attributes.get("names", ""))
            self.has_logits_port = self.has_logits_port or "logits" in names
            if kind == "Parameter":
                self.inputs.update(names)

    def _constant(self, name: str, attributes: dict[str, str]) -> None:
        offset = self._number(name, "offset", attributes.get("offset"))
        size = self._number(name, "size", attributes.get("size"))
        if offset + size > _LARGEST_FILE:
            raise ModelFileError(
                f"{self.xml_name} is damaged: the constant {name[:80]!r} has offset {offset} and "
                f"size {size}, beyond the end of any file."
            )
        self.needed_bytes = max(self.needed_bytes, offset + size)

    def _number(self, name: str, what: str, text: str | None) -> int:
        # Only plain digits: OpenVINO reads them with stoull, Python would take more.
        if text is None or not (text.isascii() and text.isdigit() and len(text) <= 20):
            raise ModelFileError(
                f"{self.xml_name} is damaged: the constant {name[:80]!r} has the {what} "
                f"{(text or '')[:40]!r}, not a number of bytes."
            )
        return int(text)


def _names(text: str) -> list[str]:
    """Split a list of tensor names; a comma inside one is written with a backslash."""
    return [part.replace("\0", ",") for part in text.replace("\\,", "\0").split(",") if part]


def _read_contents(xml: Path, xml_bytes: int) -> _Contents:
    contents = _Contents(xml.name, xml_bytes)
    parser = expat.ParserCreate()
    parser.StartElementHandler = contents.start
    parser.EndElementHandler = contents.end
    parser.StartDoctypeDeclHandler = contents.doctype
    try:
        with xml.open("rb") as file:
            _refuse_other_kinds(xml.name, xml_bytes, file.read(64))
            file.seek(0)
            while chunk := file.read(_CHUNK_BYTES):
                parser.Parse(chunk, False)
            parser.Parse(b"", True)
    except expat.ExpatError as exc:
        is_cut = exc.code in _CUT_SHORT
        how = "ends in the middle" if is_cut else f"is damaged in line {exc.lineno}"
        raise ModelFileError(
            f"{xml.name} in {shown_path(xml.parent)} ({xml_bytes} bytes) {how}: "
            f"{expat.ErrorString(exc.code)}."
        ) from exc
    except OSError as exc:
        raise ModelFileError(f"{xml.name} can't be read: {exc.strerror}.") from exc
    if not contents.outputs and contents.has_logits_port:
        contents.outputs.add("logits")  # files of 2023 name the tensor only where it is made
    if contents.read_variables != contents.assigned_variables:
        lone = min(contents.read_variables ^ contents.assigned_variables)
        raise ModelFileError(
            f"{xml.name} is damaged: the state {lone[:80]!r} is read or written, but not both."
        )
    return contents


def _refuse_other_kinds(name: str, xml_bytes: int, beginning: bytes) -> None:
    if xml_bytes == 0:
        raise ModelFileError(f"{name} is empty (0 bytes).")
    if not beginning.strip(b"\0"):
        raise ModelFileError(f"{name} ({xml_bytes} bytes) holds zeros: its copy broke off.")
    if beginning.startswith(b"version https://git-lfs"):
        raise ModelFileError(
            f"{name} ({xml_bytes} bytes) is a pointer of Git LFS, not the file itself.",
            "Fetch the files with `git lfs pull`, or download the model again.",
        )

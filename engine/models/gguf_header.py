"""Read the header of a GGUF file: metadata and tensor list, with every read bounded.

The format is little-endian: magic, version, two counts, key-value pairs, tensor descriptions,
padding, data. Nothing of the data is read, only its end compared with the file's.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from engine.errors import ModelFileError, UnsupportedModelError
from engine.models.files import require_readable
from engine.models.shown_path import shown_path

if TYPE_CHECKING:
    from pathlib import Path

GgufScalar = int | float | bool | str
GgufValue = GgufScalar | list[GgufScalar]

VERSIONS = (2, 3)
MAX_PAIRS = 65_536
MAX_TENSORS = 100_000
MAX_STRING_BYTES = 4 * 1024 * 1024
MAX_ARRAY_LENGTH = 4_000_000  # vocabularies reach 262144
MAX_DIMENSIONS = 4
_STRING, _ARRAY = 8, 9
_SCALAR_FORMATS = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """One tensor as the header describes it.

    Attributes:
        name: As in the file.
        shape: Elements per dimension, the fastest first.
        type_name: GGML's name of the element type, e.g. ``Q4_1``; ``type 99`` for one not known.
        num_bytes: Size of the data; None where the type isn't known.
        offset: Of the data, from the beginning of the data section.
    """

    name: str
    shape: tuple[int, ...]
    type_name: str
    num_bytes: int | None
    offset: int


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """A GGUF's metadata and tensor list."""

    file_name: str
    file_bytes: int
    version: int
    metadata: dict[str, GgufValue]
    tensors: tuple[GgufTensor, ...]

    def text(self, key: str) -> str | None:
        """Return a metadata value if it is a string.

        Args:
            key: Its key.
        """
        value = self.metadata.get(key)
        return value if isinstance(value, str) else None

    def integer(self, key: str) -> int | None:
        """Return a metadata value if it is a whole number.

        Args:
            key: Its key.
        """
        value = self.metadata.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def number(self, key: str) -> float | None:
        """Return a metadata value if it is a number.

        Args:
            key: Its key.
        """
        value = self.metadata.get(key)
        return float(value) if isinstance(value, int | float) else None

    def array(self, key: str) -> list[GgufScalar] | None:
        """Return a metadata value if it is an array.

        Args:
            key: Its key.
        """
        value = self.metadata.get(key)
        return value if isinstance(value, list) else None


def read_gguf_header(path: Path) -> GgufHeader:
    """Read and check the header of a GGUF file.

    Args:
        path: The file.

    Returns:
        Metadata and tensors; every tensor's data lies inside the file.

    Raises:
        ModelFileError: It can't be read, is no GGUF, is cut short, or contradicts itself.

    Fails with ``UnsupportedModelError`` if it is of a version that isn't known.
    """
    file_bytes = require_readable(path)
    try:
        with path.open("rb") as file:
            return _Reader(file, shown_path(path.name), file_bytes).header()
    except OSError as exc:
        raise ModelFileError(f"{shown_path(path.name)} can't be read: {exc.strerror}.") from exc


class _Reader:
    """Reads one header; remembers nothing but where it is."""

    def __init__(self, file: BinaryIO, name: str, file_bytes: int) -> None:
        self._file = file
        self._name = name
        self._file_bytes = file_bytes

    def header(self) -> GgufHeader:
        if self._file_bytes == 0:
            raise ModelFileError(f"{self._name} is empty (0 bytes).")
        magic = self._bytes(4)
        if magic != b"GGUF":
            raise ModelFileError(
                f"{self._name} ({self._file_bytes} bytes) is not a GGUF file: "
                f"it begins with {magic!r}."
            )
        version = self._number("<I")
        if version not in VERSIONS:
            raise UnsupportedModelError(
                f"{self._name} is a GGUF of version {version}; versions 2 and 3 can be read."
            )
        num_tensors = self._count("<Q", MAX_TENSORS, "tensors")
        num_pairs = self._count("<Q", MAX_PAIRS, "metadata entries")
        metadata = dict(self._pair() for _ in range(num_pairs))
        tensors = tuple(self._tensor() for _ in range(num_tensors))
        alignment = metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
            raise self._damaged(f"its alignment is {alignment!r}")
        self._check_ends(tensors, -(-self._file.tell() // alignment) * alignment)
        return GgufHeader(self._name, self._file_bytes, version, metadata, tensors)

    def _check_ends(self, tensors: tuple[GgufTensor, ...], data_offset: int) -> None:
        needed = max(
            (data_offset + tensor.offset + (tensor.num_bytes or 0) for tensor in tensors),
            default=data_offset,
        )
        if needed > self._file_bytes:
            raise ModelFileError(
                f"{self._name} is {self._file_bytes} bytes long, and its header needs {needed}: "
                f"{needed - self._file_bytes} are missing."
            )

    def _pair(self) -> tuple[str, GgufValue]:
        key = self._string()
        kind = self._number("<I")
        if kind != _ARRAY:
            return key, self._scalar(kind)
        element_kind = self._number("<I")
        length = self._count("<Q", MAX_ARRAY_LENGTH, f"elements of {key[:80]!r}")
        if element_kind == _STRING:
            return key, [self._string() for _ in range(length)]
        if element_kind not in _SCALAR_FORMATS:
            raise self._damaged(f"{key[:80]!r} holds elements of kind {element_kind}")
        layout = _SCALAR_FORMATS[element_kind]
        data = self._bytes(length * struct.calcsize(layout))
        return key, [value for (value,) in struct.iter_unpack(layout, data)]

    def _tensor(self) -> GgufTensor:
        name = self._string()
        num_dimensions = self._count("<I", MAX_DIMENSIONS, f"dimensions of {name[:80]!r}")
        shape = tuple(int(self._number("<Q")) for _ in range(num_dimensions))
        kind = int(self._number("<I"))
        offset = int(self._number("<Q"))
        try:
            known = GGMLQuantizationType(kind)
        except ValueError:
            return GgufTensor(name, shape, f"type {kind}", None, offset)
        block, block_bytes = GGML_QUANT_SIZES[known]
        num_bytes = -(-math.prod(shape) // block) * block_bytes
        return GgufTensor(name, shape, known.name, num_bytes, offset)

    def _scalar(self, kind: int) -> GgufScalar:
        if kind == _STRING:
            return self._string()
        if kind not in _SCALAR_FORMATS:
            raise self._damaged(f"a metadata entry is of kind {kind}")
        return self._number(_SCALAR_FORMATS[kind])

    def _string(self) -> str:
        length = self._count("<Q", MAX_STRING_BYTES, "bytes of a string")
        # Vocabularies hold pieces of characters only in escaped form; what isn't UTF-8 is damage.
        try:
            return self._bytes(length).decode()
        except UnicodeDecodeError as exc:
            raise self._damaged("a string is not UTF-8") from exc

    def _count(self, layout: str, limit: int, what: str) -> int:
        count = int(self._number(layout))
        if count > limit:
            raise self._damaged(f"it claims {count} {what}, and {limit} is the most possible")
        return count

    def _number(self, layout: str) -> int:
        value: int = struct.unpack(layout, self._bytes(struct.calcsize(layout)))[0]
        return value

    def _bytes(self, length: int) -> bytes:
        data = self._file.read(length)
        if len(data) < length:
            raise ModelFileError(
                f"{self._name} ends in the middle of its header, after {self._file_bytes} bytes."
            )
        return data

    def _damaged(self, how: str) -> ModelFileError:
        return ModelFileError(
            f"{self._name} is damaged: {how} (byte {self._file.tell()} of {self._file_bytes})."
        )

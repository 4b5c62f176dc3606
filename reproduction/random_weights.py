"""Random weights in a file: quantised constants that take no memory of their own.

Each tensor is written to the file in chunks and mapped from it, so a model of any size is built
in the memory of one chunk. The values have the spread that keeps activations near one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self

import numpy as np
import openvino as ov

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType

    from numpy.typing import NDArray

IntFormat = Literal["u4", "i4", "u8", "i8"]

_CHUNK_BYTES = 32 * 1024 * 1024
_ALIGNMENT_BYTES = 64
_SCALE_SPREAD = 0.1  # scales of a real model differ from group to group


@dataclass(frozen=True, slots=True)
class _Format:
    """How one quantised value is stored.

    Attributes:
        element: OpenVINO's element type.
        bits: Of one value.
        zero_points: The two values in the middle of the unsigned range; empty if symmetric.
    """

    element: ov.Type
    bits: int
    zero_points: tuple[int, ...]

    @property
    def deviation(self) -> float:
        """Standard deviation of a value whose bits are all random."""
        return math.sqrt((4.0**self.bits - 1.0) / 12.0)


_FORMATS: dict[IntFormat, _Format] = {
    "u4": _Format(ov.Type.u4, 4, (7, 8)),
    "i4": _Format(ov.Type.i4, 4, ()),
    "u8": _Format(ov.Type.u8, 8, (127, 128)),
    "i8": _Format(ov.Type.i8, 8, ()),
}


@dataclass(frozen=True, slots=True)
class QuantisedWeight:
    """The constants of one weight matrix.

    Attributes:
        values: ``[rows, columns]``, or ``[rows, groups, group_size]`` where grouped.
        scales: f16, of the same rank, 1 on the last axis.
        zero_points: As ``values`` in type and as ``scales`` in shape; None if symmetric.
    """

    values: ov.Node
    scales: ov.Node
    zero_points: ov.Node | None


class WeightFile:
    """A file that grows by random tensors; a context manager, which closes it.

    The constants look into this object's mappings: it must outlive every model built from it.
    """

    def __init__(
        self, path: Path, seed: int, report: Callable[[int], None] = lambda _: None
    ) -> None:
        """Create the file.

        Args:
            path: Replaced if it exists.
            seed: The same seed and the same calls give the same bytes.
            report: Told after each tensor how many bytes there are.
        """
        self._path = path
        self._report = report
        self._file = path.open("wb")
        self._random = np.random.Generator(np.random.SFC64(seed))
        self._mapped: list[NDArray[np.uint8]] = []  # constants do not keep their memory alive

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def quantised(
        self, shape: tuple[int, ...], number_format: IntFormat, deviation: float
    ) -> QuantisedWeight:
        """Add one weight matrix.

        Args:
            shape: ``(rows, columns)``, or ``(rows, groups, group_size)``; for four-bit formats
                the product, and that of all axes but the last, is even.
            number_format: Of the values; the unsigned ones get zero-points.
            deviation: Standard deviation of the decompressed weights.
        """
        kind = _FORMATS[number_format]
        per_group = (*shape[:-1], 1)
        values = self._constant(self._bits(shape, kind.bits), shape, kind.element)
        zeros = None
        if kind.zero_points:
            count = math.prod(per_group)
            zeros = self._constant(self._zero_points(count, kind), per_group, kind.element)
        scales = self._scales(math.prod(per_group), deviation / kind.deviation)
        return QuantisedWeight(values, self._constant(scales, per_group, ov.Type.f16), zeros)

    def norm(self, size: int) -> NDArray[np.float32]:
        """Return the weights of one RMSNorm: ones.

        Args:
            size: Of the hidden state.
        """
        return np.ones(size, np.float32)

    def _bits(self, shape: tuple[int, ...], bits: int) -> int:
        """Write random bytes chunk by chunk; return how many."""
        total = math.prod(shape) * bits // 8
        self._align()
        for start in range(0, total, _CHUNK_BYTES):
            size = min(_CHUNK_BYTES, total - start)
            words = self._random.integers(0, 1 << 64, -(-size // 8), dtype=np.uint64)
            self._file.write(words.view(np.uint8)[:size].data)
        return total

    def _zero_points(self, count: int, kind: _Format) -> int:
        """Write zero-points, both middles equally often, so that weights average to nothing."""
        drawn = self._random.choice(np.array(kind.zero_points, np.uint8), count)
        data = drawn if kind.bits == 8 else drawn[0::2] | (drawn[1::2] << 4)
        return self._write(data)

    def _scales(self, count: int, mean: float) -> int:
        spread = self._random.uniform(1 - _SCALE_SPREAD, 1 + _SCALE_SPREAD, count)
        return self._write((spread * mean).astype(np.float16))

    def _write(self, data: NDArray[np.generic]) -> int:
        self._align()
        self._file.write(data.tobytes())
        return data.nbytes

    def _align(self) -> None:
        self._file.write(bytes(-self._file.tell() % _ALIGNMENT_BYTES))

    def _constant(self, num_bytes: int, shape: tuple[int, ...], element: ov.Type) -> ov.Node:
        """Map what was written last as a constant."""
        end = self._file.tell()
        self._file.flush()
        self._report(end)
        # "c" is copy-on-write: OpenVINO asks for writable memory, and nobody writes.
        data = np.memmap(
            self._path, mode="c", dtype=np.uint8, offset=end - num_bytes, shape=(num_bytes,)
        )
        self._mapped.append(data)
        flat = data if element != ov.Type.f16 else data.view(np.float16)
        return ov.op.Constant(ov.Tensor(flat, ov.Shape(shape), element), shared_memory=True)

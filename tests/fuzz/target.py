"""What a parser is to a fuzzer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.errors import DaisyError


@dataclass(frozen=True)
class Target:
    """One parser.

    Attributes:
        name: Of its corpus.
        run: Parses; what it gives is used where using it could go wrong.
        declared: All that it may raise.
        seeds: What is right, and what is nearly right.
        form: How inputs are mutated: ``bytes``, ``msgpack``, ``control``, ``json`` or ``text``.
        max_bytes: Of an input.
    """

    name: str
    run: Callable[[bytes], None]
    declared: tuple[type[DaisyError], ...]
    seeds: Callable[[], list[bytes]]
    form: str = "bytes"
    max_bytes: int = 4096

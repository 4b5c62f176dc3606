"""Inputs made from other inputs: bytes turned, cut, spliced; and values inside msgpack and JSON.

A parser of a structured form refuses nearly every input whose bytes were turned at random in its
first lines. So half of the inputs are mutated as values and written again.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

_NUMBERS = (0, 1, 2, 7, 16, 127, 128, 255, 256, 32767, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1)
_WIDE = (*_NUMBERS, 2**53, 2**63 - 1, 2**63, 2**64 - 1)
_PREFIX_BYTES = 8  # of a frame; its control body is msgpack
_TEXTS = ("", "a", "../../etc/passwd", "C:\\CON", "\0", "é" * 40, "\u202e", "x" * 300, "-1", "NaN")


def mutated(draw: random.Random, seeds: Sequence[bytes], form: str, max_bytes: int) -> bytes:
    """Return a new input.

    Args:
        draw: Random numbers.
        seeds: Inputs that are known.
        form: ``bytes``, ``msgpack``, ``control``, ``json`` or ``text``.
        max_bytes: It is cut to so many.
    """
    data = draw.choice(seeds)
    if form != "bytes" and draw.random() < 0.5:
        data = _as_value(draw, data, form)
    for _ in range(1 if draw.random() < 0.5 else draw.randint(0, 6)):
        data = _turned(draw, data, seeds)
    return data[:max_bytes]


def _turned(draw: random.Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    if not data:
        return draw.randbytes(draw.randint(1, 40))
    at = draw.randrange(len(data))
    stop = min(len(data), at + draw.randint(1, 32))
    way = draw.randrange(8)
    if way == 0:
        return _number_put(draw, data, at)
    if way == 1:
        other = draw.choice(seeds)
        return data[:at] + other[draw.randint(0, len(other)) :]
    middle = (
        bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 : stop],
        bytes([draw.choice(_NUMBERS) & 255]) + data[at + 1 : stop],
        draw.randbytes(draw.randint(1, 8)) + data[at:stop],
        b"",
        data[at:stop] * draw.choice((2, 3, 40)),
        data[at:stop][::-1],
    )[way - 2]
    return data[:at] + middle + (b"" if draw.random() < 0.1 else data[stop:])


def _number_put(draw: random.Random, data: bytes, at: int) -> bytes:
    num_bytes, order = draw.choice((1, 2, 4, 8)), draw.choice(("little", "big"))
    number = draw.choice(_WIDE) & (1 << 8 * num_bytes) - 1
    return data[:at] + number.to_bytes(num_bytes, order) + data[at + num_bytes :]


# ---- as a value ----------------------------------------------------------------------------------


def _as_value(draw: random.Random, data: bytes, form: str) -> bytes:
    prefix = data[:_PREFIX_BYTES] if form == "control" else b""
    body = data[len(prefix) :]
    try:
        if form == "json":
            return json.dumps(_changed(draw, json.loads(body), 0)).encode(errors="replace")
        if form == "text":
            return _words(draw, body)
        return prefix + msgspec.msgpack.encode(_changed(draw, msgspec.msgpack.decode(body), 0))
    except (ValueError, TypeError, OverflowError, RecursionError, msgspec.MsgspecError):
        return data


def _words(draw: random.Random, text: bytes) -> bytes:
    """Exchange, double or drop a part of a text between the marks it has."""
    mark = draw.choice((b"&", b"=", b":", b"\n", b"?", b"."))
    parts = text.split(mark)
    at, other = draw.randrange(len(parts)), draw.randrange(len(parts))
    kind = draw.randrange(4)
    if kind == 0:
        parts[at], parts[other] = parts[other], parts[at]
    elif kind == 1:
        parts.insert(at, parts[other])
    elif kind == 2:
        parts.pop(at)
    else:
        parts[at] = draw.choice(_TEXTS).encode(errors="replace")
    return mark.join(parts)


def _changed(draw: random.Random, value: object, depth: int) -> object:
    """Change one value somewhere in a tree."""
    if depth < 6 and draw.random() < 0.85:
        if isinstance(value, dict) and value:
            key = draw.choice(list(value))
            return _changed_field(draw, value, key, depth)
        if isinstance(value, list) and value:
            at = draw.randrange(len(value))
            return _changed_item(draw, value, at, depth)
        if isinstance(value, bytes) and value:
            return _turned(draw, value, (value,))
    return _another(draw, value)


def _changed_field(draw: random.Random, value: dict, key: object, depth: int) -> object:
    kind = draw.randrange(8)
    if kind == 0:
        return {k: v for k, v in value.items() if k != key}
    if kind == 1:
        return {**value, draw.choice(_TEXTS): value[key]}
    if kind == 2:
        return dict(reversed(value.items()))
    return {**value, key: _changed(draw, value[key], depth + 1)}


def _changed_item(draw: random.Random, value: list, at: int, depth: int) -> object:
    kind = draw.randrange(8)
    if kind == 0:
        return value[:at] + value[at + 1 :]
    if kind == 1:
        return value[: at + 1] * draw.choice((1, 2, 70)) + value[at:]
    if kind == 2:
        return value[::-1]
    return [*value[:at], _changed(draw, value[at], depth + 1), *value[at + 1 :]]


def _another(draw: random.Random, value: object) -> object:
    nested: object = value
    for _ in range(draw.choice((1, 1, 1, 50))):
        nested = [nested]
    return draw.choice((
        draw.choice(_WIDE),
        -draw.choice(_WIDE[:-2]),
        draw.choice(_TEXTS),
        draw.choice(_TEXTS).encode(errors="replace"),
        draw.choice((None, True, False, 0.5, -1e308, float("inf"), float("nan"))),
        draw.randbytes(draw.randint(0, 80)),
        nested,
        {},
        [],
    ))

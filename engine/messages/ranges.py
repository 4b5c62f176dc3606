"""What the types of a control message can't say: ranges, and which fields go together.

Checked on both sides of every connection, after the types: no count is negative, no number is
infinite, what goes beside an array fits the array's u32, and free-form fields are plain JSON. Pure.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from engine.domain import LayerRange
from engine.errors import UsageError
from engine.messages.control import Generate
from engine.messages.limits import (
    MAX_COUNTER,
    MAX_ID_LENGTH,
    MAX_LAYERS,
    MAX_NAME_LENGTH,
    MAX_NESTING,
    MAX_TOKEN_ID,
    MAX_U32,
)
from engine.sampling.parameters import SamplingParameters

if TYPE_CHECKING:
    from collections.abc import Sized

    from engine.messages.message import Message

_HIGHEST = {
    "epoch": MAX_U32,
    "batch_id": MAX_U32,
    "sequence_id": MAX_U32,
    "sequence_ids": MAX_U32,
    "token_ids": MAX_TOKEN_ID,
    "start": MAX_LAYERS,
    "stop": MAX_LAYERS,
    "counter": MAX_COUNTER,
}
# Characters of what names something: ids are 20, and nobody reads more of a name.
_LONGEST = {
    "node_id": MAX_ID_LENGTH,
    "claimant": MAX_ID_LENGTH,
    "coordinator": MAX_ID_LENGTH,
    "hears": MAX_ID_LENGTH,
    "sender": MAX_ID_LENGTH,
    "product": MAX_ID_LENGTH,
    "devices": MAX_ID_LENGTH,
    "name": MAX_NAME_LENGTH,
    "model": MAX_NAME_LENGTH,
}
_MOST = {"hears": MAX_ID_LENGTH, "devices": MAX_ID_LENGTH}  # entries of a list


def check_ranges(message: Message) -> None:
    """Return if every value of a control message is in its range.

    Raises:
        ValueError: One is not; the sentence names the field and the value.
    """
    _check_struct(message)
    if isinstance(message, Generate) and (message.messages is None) == (message.prompt is None):
        raise ValueError("exactly one of messages and prompt must be given")


def _check_struct(value: msgspec.Struct) -> None:
    for name in value.__struct_fields__:
        _check_field(name, getattr(value, name))
    if isinstance(value, LayerRange) and value.start >= value.stop:
        raise ValueError(f"the layers {value.start} to {value.stop} are none")
    if isinstance(value, SamplingParameters):
        try:
            value.checked()
        except UsageError as exc:
            raise ValueError(exc.what) from exc


def _check_field(name: str, value: object) -> None:
    if isinstance(value, int):
        if not 0 <= value <= _HIGHEST.get(name, value):
            raise ValueError(f"{name} is {value}, which is out of its range")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{name} is {value}, which is not a number")
    elif isinstance(value, msgspec.Struct):
        _check_struct(value)
    elif isinstance(value, str):
        _check_size(name, value, _LONGEST, "letters")
    elif isinstance(value, tuple | list):
        _check_size(name, value, _MOST, "entries")
        for item in value:
            _check_field(name, item)
    elif isinstance(value, dict):
        _check_json(name, value, MAX_NESTING)


def _check_size(name: str, value: Sized, most: dict[str, int], what: str) -> None:
    if len(value) > most.get(name, len(value)):
        raise ValueError(f"{name} has {len(value)} {what}, more than {most[name]}")


def _check_json(name: str, value: object, depth: int) -> None:
    """Check a field of free form: msgpack can say more than JSON (bytes, dates, keys of any type).

    Its readers are JSON's: chat templates and tool schemas.

    Raises:
        ValueError: A value has no place in JSON, or lies too deep.
    """
    if depth == 0:
        raise ValueError(f"{name} is nested more than {MAX_NESTING} deep")
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise ValueError(f"{name} has a key that is not text")  # noqa: TRY004 - see Raises
            _check_json(name, item, depth - 1)
    elif isinstance(value, list):
        for item in value:
            _check_json(name, item, depth - 1)
    elif isinstance(value, float):
        _check_field(name, value)
    elif not (value is None or isinstance(value, str | int)):
        raise ValueError(f"{name} has a value that JSON does not know")

"""A request as programs write it: the fields of an OpenAI chat or completion body.

Strict where a mistake would be silent (a bool is no number, NaN is no JSON) and forgiving where
programs are sloppy (``null`` means "not given").
"""

from __future__ import annotations

import msgspec

from engine.errors import LocalProtocolError, UsageError
from engine.messages.codec import encode_control
from engine.messages.control import Generate
from engine.sampling.parameters import SamplingParameters

MAX_BODY_BYTES = 16 * 1024 * 1024  # a 1M-token prompt is about 4 MB
# More of these means "all there is", however much more.
_NO_LIMIT = 2**31 - 1
_COUNTS = ("max_tokens", "max_completion_tokens", "top_k")
_INTEGERS = (*_COUNTS, "n", "seed")
_MAX_BITS = 64


class RequestBody(msgspec.Struct, kw_only=True):
    """What may stand in a body; fields not named here are ignored, as the reference does."""

    messages: list[dict[str, object]] | None = None
    prompt: str | None = None
    tools: list[dict[str, object]] | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    n: int | None = None
    stop: str | list[str] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: int | None = None
    ignore_eos: bool | None = None
    speculate: bool | None = None


_SAMPLING = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "seed",
)


def parse_request(body: bytes, request_id: str) -> Generate:
    """Read a request's body.

    Args:
        body: JSON.
        request_id: Given to the request.

    Returns:
        The request. Sampling is greedy where the body says nothing; ``max_completion_tokens``
        wins over ``max_tokens``.

    Raises:
        UsageError: It is no JSON, or a field has a wrong type or value; the sentence names it.
    """
    if len(body) > MAX_BODY_BYTES:
        raise UsageError(f"The request has {len(body)} bytes; at most {MAX_BODY_BYTES} are taken.")
    try:
        fields = msgspec.json.decode(body, type=RequestBody)
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError, RecursionError) as exc:
        raise UsageError(f"The request can't be read: {exc}.") from exc
    return as_generate(fields, request_id)


def as_generate(fields: RequestBody, request_id: str) -> Generate:
    """Check a body's values and return the request it stands for.

    Args:
        fields: Of the right types.
        request_id: Given to the request.

    Raises:
        UsageError: A value is out of its range; the sentence names the field.
    """
    fields = msgspec.structs.replace(fields, **_capped(fields))
    if fields.n is not None and fields.n != 1:
        raise UsageError(f"n is {fields.n}; one answer is given to a request.")
    if (fields.messages is None) == (fields.prompt is None):
        raise UsageError("A request has either messages or a prompt.")
    if fields.messages == []:
        raise UsageError("messages is empty; it must have one at least.")
    is_new_name = fields.max_completion_tokens is not None
    limit = fields.max_completion_tokens if is_new_name else fields.max_tokens
    if limit is not None and limit < 1:
        name = "max_completion_tokens" if is_new_name else "max_tokens"
        raise UsageError(f"{name} is {limit}; it must be 1 or more, or left out.")
    given = {name: value for name in _SAMPLING if (value := getattr(fields, name)) is not None}
    stop = [fields.stop] if isinstance(fields.stop, str) else (fields.stop or [])
    request = Generate(
        request_id=request_id,
        messages=None if fields.messages is None else tuple(fields.messages),
        prompt=fields.prompt,
        tools=None if not fields.tools else tuple(fields.tools),
        max_tokens=limit,
        stop=tuple(stop),
        ignore_eos=bool(fields.ignore_eos),
        sampling=SamplingParameters(**given).checked(),
        seed_given=fields.seed is not None,
        speculate=fields.speculate is not False,
    )
    try:
        encode_control(request)
    except LocalProtocolError as exc:
        # Its free form holds what no message can: nested too deep, too large a number.
        raise UsageError(f"The request can't be passed on: {exc.what}") from exc
    return request


def _capped(fields: RequestBody) -> dict[str, int]:
    """Return the integers given, none of them longer than a sentence may show.

    Raises:
        UsageError: One has more than 64 bits and does not stand for "all there is".
    """
    given = {name: value for name in _INTEGERS if (value := getattr(fields, name)) is not None}
    counts = {name: min(value, _NO_LIMIT) for name, value in given.items() if name in _COUNTS}
    for name, value in (given | counts).items():
        if value.bit_length() > _MAX_BITS:
            raise UsageError(
                f"{name} has {value.bit_length()} bits; at most {_MAX_BITS} are taken."
            )
    return given | counts

"""What each command does."""

from __future__ import annotations

import sys
import uuid
from typing import TYPE_CHECKING, Any

import msgspec

from engine.cli.answerer import open_answerer
from engine.cli.answering import tell_answer
from engine.cli.arguments import data_dir, sampling_fields
from engine.cli.chain_options import division
from engine.cli.preparation import split_source
from engine.config import DEFAULT_MAX_TOKENS
from engine.errors import UsageError
from engine.messages.request_body import RequestBody, as_generate, parse_request
from engine.models.shown_path import shown_path

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from engine.cli.output import Output
    from engine.messages.control import Generate


async def split_command(given: argparse.Namespace, output: Output) -> None:
    """``daisy split``: cut a model into a folder of shards."""
    folder = await split_source(given.model, division(given), given.out, data_dir(given), output)
    manifest = folder.manifest
    output.event(
        "split",
        folder=shown_path(folder.path),
        manifest_sha256=folder.manifest_sha256,
        model=msgspec.to_builtins(manifest.model),
        shards=msgspec.to_builtins(manifest.shards),
    )
    output.say(
        f"{manifest.model.name}: {manifest.model.num_layers} layers in {shown_path(folder.path)}"
    )
    for shard in manifest.shards:
        size = (shard.xml.num_bytes + shard.weights.num_bytes) / 1e6
        paged = "" if shard.can_be_paged else f"; stateful only: {shard.paged_refusal}"
        output.say(f"  layers {shard.layers}: {size:.1f} MB{paged}")


async def ask_command(given: argparse.Namespace, output: Output) -> None:
    """``daisy ask``: one question, one answer."""
    request = _request(given)
    async with open_answerer(given, output) as connect, connect() as connection:
        await tell_answer(connection, request, output)


def _request(given: argparse.Namespace) -> Generate:
    if given.question is None and given.request is None:
        raise UsageError("There is no question.", "Ask one, or name a file with --request.")
    if given.request is not None:
        _refuse_beside_request(given)
        return parse_request(_read(given.request), new_request_id())
    if not given.question.strip():
        raise UsageError("The question is empty.", "Write something.")
    if given.raw:
        return as_generate(_body(given, prompt=given.question), new_request_id())
    messages = [chat_message("user", given.question)]
    if given.system:
        messages.insert(0, chat_message("system", given.system))
    return as_generate(_body(given, messages=messages), new_request_id())


def _refuse_beside_request(given: argparse.Namespace) -> None:
    """Refuse what would be ignored: the body says it all.

    Raises:
        UsageError: Something was given beside it; names it.
    """
    fields = {"question": given.question, "system": given.system, "max_tokens": given.max_tokens}
    fields |= {**sampling_fields(given), "stop": given.stop or None, "raw": given.raw or None}
    beside = [name for name, value in fields.items() if value is not None]
    if beside:
        raise UsageError(
            f"--request holds the whole request, and {beside[0]} was given beside it.",
            "Write it into the file, or leave --request out.",
        )


def _body(given: argparse.Namespace, **what: object) -> RequestBody:
    fields: dict[str, Any] = {
        **sampling_fields(given),
        **what,
        "max_tokens": DEFAULT_MAX_TOKENS if given.max_tokens is None else given.max_tokens,
        "stop": given.stop,
        "ignore_eos": given.ignore_eos,
        "speculate": not given.no_speculation,
    }
    return RequestBody(**fields)


def body_for(given: argparse.Namespace, messages: list[dict[str, object]]) -> Generate:
    """Return the request for a chat so far, with the options given.

    Args:
        given: Parsed options.
        messages: The chat.
    """
    return as_generate(_body(given, messages=messages), new_request_id())


def chat_message(role: str, text: str) -> dict[str, object]:
    """Return one turn of a chat, as a template takes it."""
    return {"role": role, "content": text}


def _read(file: Path) -> bytes:
    try:
        return sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as exc:
        raise UsageError(
            f"{shown_path(file)} can't be read: {exc.strerror}.", "Check the path."
        ) from exc


def new_request_id() -> str:
    """Return a name for a request that nobody else uses."""
    return uuid.uuid4().hex

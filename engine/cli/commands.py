"""What each command does."""

from __future__ import annotations

import sys
import uuid
from typing import TYPE_CHECKING, Any

import msgspec

from engine.cli.arguments import data_dir, division, pool_options, sampling_fields
from engine.cli.asking import ask
from engine.cli.local_pool import LocalPool, open_local_pool
from engine.cli.preparation import shards_for, split_source
from engine.config import DEFAULT_MAX_TOKENS
from engine.errors import PipelineBrokenError, UsageError
from engine.messages.control import Accepted, Finished, Generate, TextDelta
from engine.messages.request_body import RequestBody, as_generate, parse_request
from engine.models.shown_path import shown_path

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from pathlib import Path

    from engine.cli.output import Output


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
    folder = await shards_for(given.model, division(given), data_dir(given), output)
    options = pool_options(given, folder)
    async with open_local_pool(folder, options, _loading(output)) as pool:
        tell_stages(pool, output)
        await tell_answer(pool, request, output)


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


def _loading(output: Output):  # type: ignore[no-untyped-def] # noqa: ANN202
    return lambda done, total: output.progress("Loading stages", done, total)


def tell_stages(pool: LocalPool, output: Output) -> None:
    """Say what was loaded where.

    Args:
        pool: Loaded.
        output: Told.
    """
    for node, stage in zip(pool.nodes, pool.stages, strict=True):
        output.event("stage", node=node.node_id, address=node.address, **msgspec.to_builtins(stage))
        golden = (
            "" if stage.golden_error is None else f", golden step off by {stage.golden_error:.1e}"
        )
        output.say(
            f"{node.node_id}: layers {stage.layers} on {stage.device}, {stage.kind}, {stage.mode}, "
            f"{stage.num_fused_layers} fused, loaded in {stage.load_s:.1f} s{golden}"
        )
        for note in stage.notes:
            output.say(f"  note: {note}")


async def tell_answer(
    pool: LocalPool,
    request: Generate,
    output: Output,
    on_accepted: Callable[[], None] = lambda: None,
) -> tuple[str, Finished]:
    """Ask, show the answer as it comes, and say how fast it was.

    Args:
        pool: Loaded.
        request: What is asked.
        output: Told.
        on_accepted: Called once the head has taken the request, before any text.

    Returns:
        The answer's text, and its end.

    Raises:
        PipelineBrokenError: The head said nothing of the end.
    """
    pieces: list[str] = []
    end: Finished | None = None
    async for event in ask(pool.head, request):
        match event:
            case Accepted():
                on_accepted()
                output.event("accepted", prompt_tokens=event.prompt_tokens, seed=event.seed)
            case TextDelta():
                pieces.append(event.text)
                output.text(event.text, event.token_ids)
            case Finished():
                end = event
    if end is None:
        raise PipelineBrokenError("The answer broke off.")
    output.end_of_text()
    _tell_speed(end, output)
    return "".join(pieces), end


def _tell_speed(end: Finished, output: Output) -> None:
    rate = (end.completion_tokens - 1) / end.decode_s if end.decode_s > 0 else None
    output.event(
        "finished",
        finish_reason=end.finish_reason,
        prompt_tokens=end.prompt_tokens,
        completion_tokens=end.completion_tokens,
        ttft_s=end.ttft_s,
        tokens_per_s=rate,
        chain_compute_ms=end.chain_compute_ms,
    )
    ttft = "-" if end.ttft_s is None else f"{end.ttft_s:.2f} s"
    speed = "-" if rate is None else f"{rate:.1f} tokens/s"
    output.say(
        f"[{end.prompt_tokens} tokens in, {end.completion_tokens} out, {end.finish_reason}; "
        f"first token after {ttft}, then {speed}]"
    )
